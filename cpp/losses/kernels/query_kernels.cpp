// Kernels of the losses of rankings: exponentials of scores, and pairs of one document with others.
#include "losses/kernels/vector_math.h"
#include "losses/query_losses.h"

namespace polyleaf::POLYLEAF_ISA_NAMESPACE {
namespace {

// Sums have so many partial sums, added in order at the end, that a loop over them is vectors.
constexpr int kLanes = 16;

// Adding it to a number of [0, 1] leaves a multiple of 2^-32, sums of 2^21 of which are exact.
constexpr double kRound = 1048576.0;

double exponentials(const float* score, float largest, float* out, int64_t n) {
  double sums[kLanes] = {};
  float* __restrict e = out;
  for (int64_t i = 0; i < n; ++i) e[i] = exp_saturating(score[i] - largest);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane)
      sums[lane] += (static_cast<double>(e[i + lane]) + kRound) - kRound;
  for (; i < n; ++i) sums[0] += (static_cast<double>(e[i]) + kRound) - kRound;
  double sum = 0.0;
  for (const double part : sums) sum += part;
  return sum;
}

// Add the pairs of a group with n groups from `first`. kLanes is a constant n, whose loop is
// vectors.
template <class N>
inline __attribute__((always_inline)) void add_block(const PairRow row,
                                                     const DocumentGroups& groups, int64_t first,
                                                     N n, double* __restrict sums) {
  const float* __restrict scores = groups.score + first;
  const float* __restrict gains = groups.gain + first;
  const float* __restrict counts = groups.count + first;
  const float* __restrict weights = groups.weight + first;
  const double* __restrict below = groups.below + first;
  double* __restrict better = groups.better + first;
  double* __restrict worse = groups.worse + first;
  double* __restrict better_hessian = groups.better_hessian + first;
  double* __restrict worse_hessian = groups.worse_hessian + first;
  const float score = groups.score[row.group], gain = groups.gain[row.group];
  const float count = groups.count[row.group], weight = groups.weight[row.group];
  for (int j = 0; j < n; ++j) {
    const bool is_better = gain > gains[j];  // the upper group
    const double change = (is_better ? row.above_better : row.above_worse) - row.share * below[j];
    const float difference = score - scores[j];
    const float e = exp_saturating(-difference), inverse = 1.0f / (1.0f + e);
    const float gained = min(magnitude(gain - gains[j]), row.largest_difference);
    const float size =
        gained * (static_cast<float>(change) * row.scale) / (row.margin + row.slope * difference);
    const float g = size * ((is_better ? e : 1.0f) * inverse);
    const float h = size * ((e * inverse) * inverse);
    // The weight of a pair is that of the better document.
    const float other_count = counts[j], other_weight = weights[j];
    better[j] += static_cast<double>(is_better ? 0.0f : g * count);
    worse[j] += static_cast<double>(is_better ? g * weight : 0.0f);
    better_hessian[j] += static_cast<double>(is_better ? 0.0f : h * count);
    worse_hessian[j] += static_cast<double>(is_better ? h * weight : 0.0f);
    sums[0 * kLanes + j] += static_cast<double>(is_better ? g * other_count : 0.0f);
    sums[1 * kLanes + j] += static_cast<double>(is_better ? 0.0f : g * other_weight);
    sums[2 * kLanes + j] += static_cast<double>(is_better ? h * other_count : 0.0f);
    sums[3 * kLanes + j] += static_cast<double>(is_better ? 0.0f : h * other_weight);
    sums[4 * kLanes + j] += static_cast<double>((g * count) * other_count);
  }
}

struct AllLanes {
  constexpr operator int() const { return kLanes; }
};

double add_pairs(const PairRow& row, const DocumentGroups& groups, int64_t begin, int64_t end) {
  double sums[5][kLanes] = {};  // of the upper group, and of all magnitudes
  int64_t first = begin;
  for (; first + kLanes <= end; first += kLanes) add_block(row, groups, first, AllLanes(), sums[0]);
  add_block(row, groups, first, static_cast<int>(end - first), sums[0]);
  double totals[5] = {};
  for (int k = 0; k < 5; ++k)
    for (const double part : sums[k]) totals[k] += part;
  groups.better[row.group] += totals[0];
  groups.worse[row.group] += totals[1];
  groups.better_hessian[row.group] += totals[2];
  groups.worse_hessian[row.group] += totals[3];
  return totals[4];
}

}  // namespace

extern const QueryKernels query_kernels;
const QueryKernels query_kernels{exponentials, add_pairs};

}  // namespace polyleaf::POLYLEAF_ISA_NAMESPACE
