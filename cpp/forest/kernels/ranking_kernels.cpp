// Ranking kernels: most outputs are rejected 16 at a time. The k-th largest of the maxima of 16
// lanes is a threshold that k outputs reach and few others do.
#include "forest/kernels/ranking_kernels.h"

#include "base/kernels/lanes.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

// Doubles per register: GCC splits wider vectors into scalars.
#if defined(__AVX512F__)
constexpr int kDoubles = 8;
#elif defined(__AVX2__)
constexpr int kDoubles = 4;
#else
constexpr int kDoubles = 2;
#endif
typedef double Doubles __attribute__((vector_size(kDoubles * 8)));
typedef int64_t Masks __attribute__((vector_size(kDoubles * 8)));
typedef float Floats __attribute__((vector_size(kDoubles * 4)));
typedef int32_t Ints __attribute__((vector_size(kDoubles * 4)));

constexpr int kMaxima = 16;  // number of lanes, independent of the register width
constexpr int kVectors = kMaxima / kDoubles;

constexpr double kInfinity = __builtin_inf();
constexpr double kMinFinite = -1.7976931348623157e308;

POLYLEAF_INLINE double score(const RankInput& input, int32_t i) {
  const float sum = input.sums[i];
  uint32_t bits;
  std::memcpy(&bits, &sum, 4);
  if (input.skip_none && bits == 0x80000000u) return -kInfinity;
  const int32_t at = input.outputs != nullptr ? input.outputs[i] : i;
  double score = sum + 0.0f;  // not -0
  if (input.base != nullptr) score = input.base[at] + score;
  if (input.scale != nullptr) score = score * input.scale[at] + input.offset[at];
  return score;
}

// Score contiguous outputs; a remainder of less than a vector is left.
int32_t score_in_lanes(const RankInput& input, double* scores) {
  int32_t i = 0;
  for (; i + kDoubles <= input.n; i += kDoubles) {
    const Floats sums = load<Floats>(input.sums + i);
    Doubles score = __builtin_convertvector(sums + Floats{}, Doubles);  // not -0
    if (input.base != nullptr) score = load<Doubles>(input.base + i) + score;
    if (input.scale != nullptr)
      score = score * load<Doubles>(input.scale + i) + load<Doubles>(input.offset + i);
    if (input.skip_none) {
      const Masks is_none = __builtin_convertvector(load<Ints>(input.sums + i) == INT32_MIN, Masks);
      score = is_none ? Doubles{} - kInfinity : score;
    }
    store(scores + i, score);
  }
  return i;
}

POLYLEAF_INLINE bool any(Masks mask) {
  int64_t parts[kDoubles], all = 0;
  store(parts, mask);
  for (int lane = 0; lane < kDoubles; ++lane) all |= parts[lane];
  return all != 0;
}

// Return the k-th largest of the maxima of 16 lanes: at least k scores reach it.
double threshold(const double* scores, int32_t n, int32_t k) {
  Doubles lane_maxima[kVectors];
  for (int v = 0; v < kVectors; ++v) lane_maxima[v] = Doubles{} - kInfinity;
  for (int32_t i = 0; i < n; i += kMaxima)
    for (int v = 0; v < kVectors; ++v) {
      const Doubles here = load<Doubles>(scores + i + v * kDoubles);
      lane_maxima[v] = here > lane_maxima[v] ? here : lane_maxima[v];
    }
  double maxima[kMaxima];
  for (int v = 0; v < kVectors; ++v) store(maxima + v * kDoubles, lane_maxima[v]);
  double lower_bound = kInfinity;
  for (int i = 0; i < kMaxima; ++i) {
    int32_t n_above = 0;
    for (int other = 0; other < kMaxima; ++other) n_above += maxima[other] > maxima[i];
    const double number = n_above < k ? maxima[i] : kInfinity;
    lower_bound = number < lower_bound ? number : lower_bound;
  }
  return lower_bound;
}

int32_t candidates(const RankInput& input, int32_t k, double lower_bound, double* scores,
                   int32_t* positions) {
  int32_t n = input.outputs == nullptr ? score_in_lanes(input, scores) : 0;
  for (; n < input.n; ++n) scores[n] = score(input, n);
  for (; n % kMaxima != 0; ++n) scores[n] = -kInfinity;
  if (k <= kMaxThresholdK) {
    const double reached = threshold(scores, n, k);
    lower_bound = reached > lower_bound ? reached : lower_bound;
  }
  lower_bound = lower_bound > kMinFinite ? lower_bound : kMinFinite;
  int32_t found = 0;
  for (int32_t i = 0; i < n; i += kDoubles) {
    const Masks passes = load<Doubles>(scores + i) >= Doubles{} + lower_bound;
    if (!any(passes)) continue;
    for (int lane = 0; lane < kDoubles; ++lane) {
      positions[found] = i + lane;
      found += passes[lane] != 0;
    }
  }
  return found;
}

// Rows are transposed, so that a lane is a row.
void decided(const float* sums, const ScoreBounds& bounds, float* scratch, int32_t* found) {
  const int32_t width = bounds.width;
  for (int32_t k = 0; k + kLanes <= width; k += kLanes) {
    i32x16 square[kLanes];
    transpose(reinterpret_cast<const int32_t*>(sums + k), width, square);
    for (int c = 0; c < kLanes; ++c) store(scratch + (k + c) * kLanes, square[c]);
  }
  if (width < kLanes)
    for (int32_t k = 0; k < width; ++k)
      for (int j = 0; j < kLanes; ++j) scratch[k * kLanes + j] = sums[j * width + k];
  f32x16 largest = load<f32x16>(scratch) + bounds.lower[0];
  for (int32_t k = 1; k < bounds.n_outputs; ++k)
    largest = max(load<f32x16>(scratch + k * kLanes) + bounds.lower[k], largest);
  largest = largest - bounds.slack;
  i32x16 n_beaten{}, best{};
  for (int32_t k = 0; k < bounds.n_outputs; ++k) {
    // -1 or 0; NaN is not beaten
    const i32x16 beaten = load<f32x16>(scratch + k * kLanes) + bounds.upper[k] < largest;
    n_beaten -= beaten;
    best += (beaten + 1) * k;
  }
  int32_t counts[kLanes];
  store(counts, n_beaten);
  store(found, best);
  for (int j = 0; j < kLanes; ++j) found[j] = counts[j] == bounds.n_outputs - 1 ? found[j] : -1;
}

}  // namespace

extern const RankingKernels ranking_kernels;
const RankingKernels ranking_kernels = {candidates, decided};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
