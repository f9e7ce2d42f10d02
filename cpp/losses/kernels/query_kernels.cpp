// Kernels of the losses of rankings: exponentials of scores, pairs of documents, ranks, and
// neighbours in random orders.
#include "base/kernels/lanes.h"
#include "losses/kernels/vector_math.h"
#include "losses/query_losses.h"

namespace polyleaf::POLYLEAF_ISA_NAMESPACE {
namespace {

static_assert(kLanes < kQueryPadding);

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

float softplus(float x) {
  return max(x, 0.0f) + log1p_positive(exp_saturating(-magnitude(x)));
}

// --- pairs ---

// Sums of the pairs of an upper group, by the lane of the lower one.
struct UpperSums {
  f32x16 gradient = {}, hessian = {};
};

POLYLEAF_INLINE i32x16 lane_numbers() {
  const int32_t numbers[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return load<i32x16>(numbers);
}

// Add the pairs of group `upper` with `n` groups from `first`; those of the other lanes are 0.
POLYLEAF_INLINE void add_block(const PairSettings& settings, const DocumentGroups& groups,
                               int64_t upper, const PairChange& change, int64_t first, int64_t n,
                               UpperSums& sums, f32x16& magnitudes) {
  const f32x16 gain = load<f32x16>(groups.gain + first);
  const auto is_better = groups.gain[upper] > gain;  // the upper group
  const f32x16 changed =
      select(is_better, broadcast(change.above_better), broadcast(change.above_worse)) -
      change.share * load<f32x16>(groups.below + first);
  const f32x16 difference = groups.score[upper] - load<f32x16>(groups.score + first);
  const float power = groups.power[upper];
  const f32x16 other_power = load<f32x16>(groups.power + first);
  const f32x16 inverse = 1.0f / (power + other_power);
  const f32x16 share = power * inverse, other_share = other_power * inverse;
  f32x16 gained = groups.gain[upper] - gain;
  gained = min(max(gained, -gained), broadcast(settings.largest_difference));
  f32x16 size =
      gained * (changed * settings.scale) / (settings.margin + settings.slope * difference);
  size = select(lane_numbers() < static_cast<int32_t>(n < kLanes ? n : kLanes), size, f32x16{});
  const f32x16 wrong = select(is_better, other_share, share);
  const float count = groups.count[upper];
  const f32x16 other_count = load<f32x16>(groups.count + first);
  magnitudes += (size * wrong) * (count * other_count);
  // The weight of a pair is that of the better document.
  size = size *
         select(is_better, broadcast(groups.weight[upper]), load<f32x16>(groups.weight + first));
  const f32x16 hessian = size * (share * other_share);
  f32x16 gradient = size * wrong;
  gradient = select(is_better, -gradient, gradient);
  sums.gradient += gradient * other_count;
  sums.hessian += hessian * other_count;
  store(groups.gradient + first, load<f32x16>(groups.gradient + first) - gradient * count);
  store(groups.hessian + first, load<f32x16>(groups.hessian + first) + hessian * count);
}

void add_pairs(const PairSettings& settings, const DocumentGroups& groups, const PairRun* runs,
               int64_t n_runs) {
  f32x16 magnitudes = {};
  int64_t upper = 0;
  for (int64_t r = 0; r < n_runs; ++r) {
    const PairRun run = runs[r];
    for (; upper < run.end; ++upper) {
      UpperSums sums;
      for (int64_t first = upper + 1; first < run.end; first += kLanes)
        add_block(settings, groups, upper, run.within, first, run.end - first, sums, magnitudes);
      for (int64_t first = run.end; first < groups.n; first += kLanes)
        add_block(settings, groups, upper, run.outside, first, groups.n - first, sums, magnitudes);
      groups.gradient[upper] += fold(sums.gradient);
      groups.hessian[upper] += fold(sums.hessian);
    }
  }
  const float sum = 2.0f * fold(magnitudes);
  if (!settings.normalise || !(sum > 0.0f)) return;
  constexpr float kLogOfTwo = 0.693147181f;
  const float factor = log1p_positive(sum) / (kLogOfTwo * sum);
  for (int64_t i = 0; i < groups.n; ++i) {
    groups.gradient[i] *= factor;
    groups.hessian[i] *= factor;
  }
}

// --- orders ---

void find_ranks(const float* score, int64_t n, int32_t* rank) {
  const i32x16 lanes = lane_numbers();
  for (int64_t first = 0; first < n; first += kLanes) {
    const int64_t end = n < first + kLanes ? n : first + kLanes;
    const f32x16 own = load<f32x16>(score + first);
    i32x16 ranks = {};
    int64_t j = 0;
    for (; j < first; ++j) ranks -= (i32x16)(score[j] >= own);
    for (; j < end; ++j) {
      const auto is_before = static_cast<int32_t>(j - first) < lanes;
      ranks -= select(is_before, (i32x16)(score[j] >= own), (i32x16)(score[j] > own));
    }
    for (; j < n; ++j) ranks -= (i32x16)(score[j] > own);
    store(rank + first, ranks);
  }
}

// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

void add_noise(const float* score, const float* noise, uint64_t state, float* out, int64_t n) {
  float* __restrict noisy = out;
  for (int64_t i = 0; i < n; ++i)
    noisy[i] = score[i] +
               noise[mix(state + static_cast<uint64_t>(i + 1) * kNoiseStep) >> (64 - kNoiseBits)];
}

void pair_neighbours(const float* score, const float* target, const float* weight,
                     const double* discount, double scale, double* g, double* h, int64_t n) {
  double* __restrict gradients = g;
  double* __restrict hessians = h;
  for (int64_t first = 0; first < n; first += kLanes) {
    float differences[kLanes], exponentials[kLanes];
    for (int j = 0; j < kLanes; ++j) {
      differences[j] = score[first + j] - score[first + j + 1];
      exponentials[j] = exp_saturating(-magnitude(differences[j]));
    }
    for (int j = 0; j < kLanes; ++j) {
      const int64_t i = first + j;
      const double gained = static_cast<double>(target[i]) - static_cast<double>(target[i + 1]);
      const bool is_better = gained > 0.0;  // the upper one
      const double upper_weight = weight[i], lower_weight = weight[i + 1];
      const double size = scale * (discount[i] * (is_better ? gained : -gained)) *
                          (is_better ? upper_weight : lower_weight);
      const double e = exponentials[j], inverse = 1.0 / (1.0 + e), difference = differences[j];
      const bool is_right = (is_better ? difference : -difference) > 0.0;
      const double gradient = size * (is_right ? e * inverse : inverse);
      gradients[i] = is_better ? -gradient : gradient;
      hessians[i] = size * (e * inverse * inverse);
    }
  }
}

}  // namespace

extern const QueryKernels query_kernels;
const QueryKernels query_kernels{exponentials, softplus,  add_pairs,
                                 find_ranks,   add_noise, pair_neighbours};

}  // namespace polyleaf::POLYLEAF_ISA_NAMESPACE
