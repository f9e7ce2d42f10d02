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

double add_pairs(const PairRow& row, const DocumentGroups& groups, int64_t begin, int64_t end) {
  const float* __restrict scores = groups.score, * __restrict gains = groups.gain;
  const float* __restrict counts = groups.count, * __restrict weights = groups.weight;
  const double* __restrict below = groups.below;
  double* __restrict better = groups.better, * __restrict worse = groups.worse;
  double* __restrict better_hessian = groups.better_hessian;
  double* __restrict worse_hessian = groups.worse_hessian;
  const float score = scores[row.group], gain = gains[row.group];
  const float count = counts[row.group], weight = weights[row.group];
  // Sums of the upper group, and of all magnitudes.
  double sums[5][kLanes] = {};
  for (int64_t first = begin; first < end; first += kLanes) {
    const int64_t n = end - first < kLanes ? end - first : kLanes;
    for (int64_t lane = 0; lane < n; ++lane) {
      const int64_t j = first + lane;
      const bool is_better = gain > gains[j];  // the upper group
      const double change = (is_better ? row.above_better : row.above_worse) - row.share * below[j];
      const float difference = score - scores[j];
      const float e = exp_saturating(-difference), inverse = 1.0f / (1.0f + e);
      const float gained = min(magnitude(gain - gains[j]), row.largest_difference);
      const float size =
          gained * (static_cast<float>(change) * row.scale) / (row.margin + row.slope * difference);
      const float g = size * ((is_better ? e : 1.0f) * inverse);
      const float h = size * ((e * inverse) * inverse);
      const float other_count = counts[j], other_weight = weights[j];
      // The weight of a pair is that of the better document.
      better[j] += is_better ? 0.0 : static_cast<double>(g * count);
      worse[j] += is_better ? static_cast<double>(g * weight) : 0.0;
      better_hessian[j] += is_better ? 0.0 : static_cast<double>(h * count);
      worse_hessian[j] += is_better ? static_cast<double>(h * weight) : 0.0;
      sums[0][lane] += is_better ? static_cast<double>(g * other_count) : 0.0;
      sums[1][lane] += is_better ? 0.0 : static_cast<double>(g * other_weight);
      sums[2][lane] += is_better ? static_cast<double>(h * other_count) : 0.0;
      sums[3][lane] += is_better ? 0.0 : static_cast<double>(h * other_weight);
      sums[4][lane] += static_cast<double>((g * count) * other_count);
    }
  }
  double totals[5] = {};
  for (int k = 0; k < 5; ++k)
    for (const double part : sums[k]) totals[k] += part;
  better[row.group] += totals[0];
  worse[row.group] += totals[1];
  better_hessian[row.group] += totals[2];
  worse_hessian[row.group] += totals[3];
  return totals[4];
}

}  // namespace

extern const QueryKernels query_kernels;
const QueryKernels query_kernels{exponentials, add_pairs};

}  // namespace polyleaf::POLYLEAF_ISA_NAMESPACE
