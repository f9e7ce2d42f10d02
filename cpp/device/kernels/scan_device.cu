// Best numeric split of each feature and node, then of each node, with candidates and sums in the
// specified order. A block scans one feature of one node; a thread evaluates one candidate bin,
// with 16 virtual lanes in registers, or solves its equations. The formulas are those of
// split_gain/.
#include "base/penalised_gain.h"
#include "device/kernels/block.h"
#include "split_gain/full.h"
#include "split_gain/monotone_score.h"
#include "split_gain/separable_score.h"
#include "split_gain/topk.h"

namespace polyleaf::on_device {

constexpr int kLanes = 16;           // virtual lanes of a sum over outputs
constexpr int kPadded = kLanes + 1;  // padded row of a bin, to avoid bank conflicts
constexpr int kMaxBins = kScanThreads;
constexpr float kNone = __builtin_bit_cast(float, 0xff800000u);  // -inf

// Shared memory of a scan block.
struct ScanMemory {
  int32_t counts[kMaxBins], hessians[kMaxBins];                     // prefix sums over bins
  int32_t gradient[kMaxBins][kPadded], hessian[kMaxBins][kPadded];  // prefix sums of 16 lanes
  int32_t segments[kScanThreads / kLanes][kLanes];
};

// Sum the lanes pairwise by halves.
__device__ inline float fold(float* v) {
#pragma unroll
  for (int half = kLanes / 2; half > 0; half /= 2)
#pragma unroll
    for (int j = 0; j < half; ++j) v[j] = v[j] + v[j + half];
  return v[0];
}

// A feature's histogram in one node.
struct FeatureSums {
  const int32_t* sums;    // sums of its first bin
  const int32_t* counts;  // nullptr: a lane counts
  int32_t lanes, count_lane;

  __device__ int32_t lane(int bin, int j) const {
    return sums[static_cast<int64_t>(bin) * lanes + j];
  }
  __device__ int32_t count(int bin) const {
    return counts != nullptr ? counts[bin] : lane(bin, count_lane);
  }
};

__device__ inline FeatureSums get_feature_sums(const Histograms& histograms, int32_t count_lane,
                                               int32_t histogram, int32_t first_bin) {
  const int32_t* const data = histograms.data + histogram * histograms.size;
  const int32_t* const counts =
      histograms.counts_at >= 0 ? data + histograms.counts_at + first_bin : nullptr;
  return {data + static_cast<int64_t>(first_bin) * histograms.lanes, counts, histograms.lanes,
          count_lane};
}

// to[bin][j] = sum over bins 0 .. bin of get_lane(j), for the value bins; all threads must call it.
template <class GetLane>
__device__ void sum_up(const FeatureSums& feature, int n_bins, const GetLane& get_lane, int n_lanes,
                       int32_t (*to)[kPadded], int32_t (*totals)[kLanes]) {
  constexpr int kSegments = kScanThreads / kLanes, kBins = kMaxBins / kSegments;
  const int j = threadIdx.x % kLanes, segment = threadIdx.x / kLanes;
  const int lane = j < n_lanes ? get_lane(j) : 0;
  int32_t sum = 0;
  __syncthreads();
  for (int b = segment * kBins; b < (segment + 1) * kBins; ++b) {
    if (b < n_bins && j < n_lanes) sum += feature.lane(b, lane);
    to[b][j] = sum;
  }
  totals[segment][j] = sum;
  __syncthreads();
  int32_t before = 0;
  for (int s = 0; s < segment; ++s) before += totals[s][j];
  for (int b = segment * kBins; b < (segment + 1) * kBins; ++b) to[b][j] += before;
  __syncthreads();
}

// A candidate is better if its sum is larger, or if it comes first among equals.
__device__ inline bool better(float sum, int order, float other_sum, int other_order) {
  return sum > other_sum || (sum == other_sum && order < other_order);
}

// Broadcast the best candidate of the block to all threads; `order` -1: the thread has none.
__device__ inline void best_of_block(float& sum, int& order) {
  __shared__ float sums[kScanThreads];
  __shared__ int32_t orders[kScanThreads];
  const int t = threadIdx.x;
  sums[t] = sum;
  orders[t] = order;
  for (int half = kScanThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (t >= half || orders[t + half] < 0) continue;
    if (orders[t] < 0 || better(sums[t + half], orders[t + half], sums[t], orders[t])) {
      sums[t] = sums[t + half];
      orders[t] = orders[t + half];
    }
  }
  __syncthreads();
  sum = sums[0];
  order = orders[0];
  __syncthreads();
}

// Return whether all rows with a value are in the bins up to this one, so that the split only
// separates missing values.
__device__ inline bool contains_all_values(const ScanMemory& memory, int b,
                                           const FeatureSums& feature, const DeviceFeature& at,
                                           int32_t count) {
  return memory.counts[b] + feature.count(at.missing) == count;
}

// Leaves of all outputs: the sum of all terms.
struct KeepAll {
  template <class S>
  __device__ void offer(int, const S&, float, float, float, float, float) {}
  __device__ float sum(int, float sum_of_terms) const { return sum_of_terms; }
};

// Per-thread array, interleaved over the threads of a block.
template <class T>
struct ThreadArray {
  T* first;
  __device__ T& operator[](int i) const { return first[i * kScanThreads]; }
  __device__ ThreadArray operator+(int i) const { return {first + i * kScanThreads}; }
};

// Offer a term and return how many are kept. Not inlined: it is called in unrolled loops.
__attribute__((noinline)) __device__ inline int offer_term(
    LargestTerms<float, ThreadArray<float>> to, float term) {
  to.offer(term);
  return to.n;
}

// Leaves of some outputs: each child keeps its own, or both share them. Non-finite sums are
// rejected.
template <bool SHARED>
struct KeepTopk {
  LargestTerms<float, ThreadArray<float>> largest[2][2];  // [way][right]

  __device__ KeepTopk(float* scratch, int kept) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      largest[i / 2][i % 2] = {{scratch + i * kept * kScanThreads + threadIdx.x}, kept};
  }
  template <class S>
  __device__ void offer(int way, const S& score, float gl, float gr, float cl, float cr,
                        float term) {
    const auto take = [](LargestTerms<float, ThreadArray<float>>& to, float t) {
      to.n = offer_term(to, t);
    };
    if (SHARED) return take(largest[way][0], term);
    take(largest[way][0], score.single(gl, cl));
    take(largest[way][1], score.single(gr, cr));
  }
  __device__ float sum(int way, float sum_of_terms) const {
    if (!(sum_of_terms - sum_of_terms == 0.0f)) return kNone;
    return SHARED ? largest[way][0].sum() : largest[way][0].sum() + largest[way][1].sum();
  }
};

// Score under monotone constraints for a feature in a node. A split that only separates missing
// values is unconstrained.
template <bool PER_OUTPUT>
struct FeatureMonotoneScore {
  static constexpr bool kPerOutput = PER_OUTPUT;
  Regularisation r;
  const float *direction, *low, *high;  // per output

  __device__ float coefficient(float h) const { return h + r.lambda; }
};

// Return the score for one output.
template <class S>
__device__ inline const S& get_output_score(const S& score, int, bool) {
  return score;
}
template <bool P>
__device__ inline MonotoneBlock get_output_score(const FeatureMonotoneScore<P>& score, int k,
                                                 bool is_free) {
  return {score.r, is_free ? 0.0f : score.direction[k], score.low[k], score.high[k]};
}

// Compute the score sums of a thread's candidate for missing values right and left: -inf if a child
// is too light.
template <class S, class Keep>
__device__ void candidate_sums(const ScanNumeric& a, const S& score, const FeatureSums& feature,
                               const DeviceFeature& at, const int32_t* totals, int32_t count,
                               int n_ways, Keep keep, ScanMemory& memory, float* sums) {
  const int b = threadIdx.x;
  const bool separates_missing = contains_all_values(memory, b, feature, at, count);
  float coefficient[2][2];  // [way][right]
  bool is_heavy_enough[2] = {true, true};
  if constexpr (!S::kPerOutput) {
    const float step = a.hessian == 0 ? 1.0f : a.hessian_step[0];
    const int32_t total = a.hessian == 0 ? count : totals[a.hessian_offset];
    for (int way = 0; way < n_ways; ++way) {
      const int32_t missing_sum =
          a.hessian == 0 ? feature.count(at.missing) : feature.lane(at.missing, a.hessian_offset);
      const int32_t left =
          (a.hessian == 0 ? memory.counts[b] : memory.hessians[b]) + (way == 1 ? missing_sum : 0);
      const float hl = static_cast<float>(left) * step,
                  hr = static_cast<float>(total - left) * step;
      coefficient[way][0] = score.coefficient(hl);
      coefficient[way][1] = score.coefficient(hr);
      is_heavy_enough[way] =
          hl >= a.penalties.min_child_weight && hr >= a.penalties.min_child_weight;
    }
  }
  float v[2][kLanes] = {};
  float weight[2][2][S::kPerOutput ? kLanes : 1] = {};  // [way][right]
  for (int first = 0; first < a.n_outputs; first += kLanes) {
    const int width = a.n_outputs - first < kLanes ? a.n_outputs - first : kLanes;
    sum_up(
        feature, at.n_bins, [&](int j) { return first + j; }, width, memory.gradient,
        memory.segments);
    if constexpr (S::kPerOutput)
      sum_up(
          feature, at.n_bins, [&](int j) { return a.hessian_offset + first + j; }, width,
          memory.hessian, memory.segments);
#pragma unroll
    for (int j = 0; j < kLanes; ++j) {
      if (j >= width) continue;
      const int k = first + j;
      const float step = a.gradient_step[k];
#pragma unroll
      for (int way = 0; way < 2; ++way) {
        if (way >= n_ways) continue;
        const int32_t left = memory.gradient[b][j] + (way == 1 ? feature.lane(at.missing, k) : 0);
        const float gl = static_cast<float>(left) * step;
        const float gr = static_cast<float>(totals[k] - left) * step;
        float cl, cr;
        if constexpr (S::kPerOutput) {
          const int lane = a.hessian_offset + k;
          const int32_t h = memory.hessian[b][j] + (way == 1 ? feature.lane(at.missing, lane) : 0);
          const float hl = static_cast<float>(h) * a.hessian_step[k];
          const float hr = static_cast<float>(totals[lane] - h) * a.hessian_step[k];
          weight[way][0][j] = first == 0 ? hl : weight[way][0][j] + hl;
          weight[way][1][j] = first == 0 ? hr : weight[way][1][j] + hr;
          cl = score.coefficient(hl);
          cr = score.coefficient(hr);
        } else {
          cl = coefficient[way][0];
          cr = coefficient[way][1];
        }
        const auto& output_score = get_output_score(score, k, way == 0 && separates_missing);
        const float term = output_score.pair(gl, gr, cl, cr);
        v[way][j] = first == 0 ? term : v[way][j] + term;
        keep.offer(way, output_score, gl, gr, cl, cr, term);
      }
    }
  }
  for (int way = 0; way < n_ways; ++way) {
    if constexpr (S::kPerOutput) {
      const float min_value = a.penalties.min_child_weight, k = static_cast<float>(a.n_outputs);
      is_heavy_enough[way] = min_value <= 0 || (fold(weight[way][0]) / k >= min_value &&
                                                fold(weight[way][1]) / k >= min_value);
    }
    sums[way] = is_heavy_enough[way] ? keep.sum(way, fold(v[way])) : kNone;
  }
}

// Call f with the score for the Hessian kind and penalties.
template <class F>
__device__ void dispatch_score(const ScanNumeric& a, const F& f) {
  const Penalties& p = a.penalties;
  const Regularisation r{p.lambda, p.alpha, p.limit};
  const bool is_plain = p.alpha == 0.0f && p.limit == 0.0f;
  if (a.hessian == 2)
    is_plain ? f(Diagonal{r}) : f(Regularised<true>{r});
  else
    is_plain ? f(Shared{r}) : f(Regularised<false>{r});
}

template <class Keep>
struct Separable {
  static constexpr bool kUnconstrainedMissing = false;
  const ScanNumeric& a;
  ScanMemory& memory;
  Keep keep;

  __device__ void operator()(const FeatureSums& feature, const DeviceFeature& at,
                             const int32_t* totals, int32_t count, int n_ways, float* sums) const {
    dispatch_score(a, [&](const auto& score) {
      candidate_sums(a, score, feature, at, totals, count, n_ways, keep, memory, sums);
    });
  }
};

// Scores under monotone constraints for feature f in a node.
struct MonotoneScan {
  static constexpr bool kUnconstrainedMissing = true;
  const ScanMonotone& a;
  ScanMemory& memory;
  const float *direction, *low, *high;

  __device__ MonotoneScan(const ScanMonotone& a, ScanMemory& memory, int f, int64_t node)
      : a(a),
        memory(memory),
        direction(a.directions + static_cast<int64_t>(f) * a.stride),
        low(a.low + node * a.stride),
        high(a.high + node * a.stride) {}

  __device__ void operator()(const FeatureSums& feature, const DeviceFeature& at,
                             const int32_t* totals, int32_t count, int n_ways, float* sums) const {
    const Penalties& p = a.scan.penalties;
    const Regularisation r{p.lambda, p.alpha, p.limit};
    const auto score = [&](const auto& s) {
      candidate_sums(a.scan, s, feature, at, totals, count, n_ways, KeepAll{}, memory, sums);
    };
    a.scan.hessian == 2 ? score(FeatureMonotoneScore<true>{r, direction, low, high})
                        : score(FeatureMonotoneScore<false>{r, direction, low, high});
  }
};

// Scores of outputs that are solved jointly.
struct Solved {
  static constexpr bool kUnconstrainedMissing = false;
  const ScanSolved& a;
  ScanMemory& memory;
  const int32_t* lanes;
  ThreadArray<int32_t> left;  // lane sums of the candidate's left child
  ThreadArray<float> A, y, inverse;

  __device__ Solved(const ScanSolved& a, ScanMemory& memory, int64_t node, float* scratch)
      : a(a), memory(memory), lanes(a.lanes + node * a.lanes_stride) {
    const auto n_lanes = static_cast<int>(lanes_solved(a.m));
    left = {reinterpret_cast<int32_t*>(scratch) + threadIdx.x};
    y = ThreadArray<float>{scratch + threadIdx.x} + n_lanes;
    A = y + a.m;
    inverse = y + n_lanes;
  }

  __device__ void operator()(const FeatureSums& feature, const DeviceFeature& at,
                             const int32_t* totals, int32_t, int n_ways, float* sums) const {
    for (int way = 0; way < n_ways; ++way) {
      read(feature, at, way == 1);
      const bool is_bin = static_cast<int>(threadIdx.x) < at.n_bins;
      const float sum = is_bin ? side(totals, false) + side(totals, true) : kNone;
      sums[way] = is_heavy(feature, at, totals, way == 1) ? sum : kNone;
    }
  }

  __device__ void read(const FeatureSums& feature, const DeviceFeature& at,
                       bool missing_left) const {
    const auto n_lanes = static_cast<int>(lanes_solved(a.m));
    for (int first = 0; first < n_lanes; first += kLanes) {
      const int width = n_lanes - first < kLanes ? n_lanes - first : kLanes;
      sum_up(
          feature, at.n_bins, [&](int j) { return lanes[first + j]; }, width, memory.gradient,
          memory.segments);
      for (int j = 0; j < width; ++j)
        left[first + j] = memory.gradient[threadIdx.x][j] +
                          (missing_left ? feature.lane(at.missing, lanes[first + j]) : 0);
    }
  }

  // Sum of the i-th lane of one side.
  __device__ float sum(int i, const int32_t* totals, bool right) const {
    return static_cast<float>(right ? totals[lanes[i]] - left[i] : left[i]);
  }
  __device__ float side(const int32_t* totals, bool right) const {
    const ScanNumeric& scan = a.scan;
    return compute_side_gain(
        a.m, scan.penalties.lambda,
        [&](int i) { return sum(i, totals, right) * scan.gradient_step[lanes[i]]; },
        [&](int i, int j) {
          const int at = a.m + packed(i, j);
          return sum(at, totals, right) * scan.hessian_step[lanes[at] - scan.hessian_offset];
        },
        A, y, inverse);
  }

  // Return whether the mean Hessian of both sides reaches min_child_weight.
  __device__ bool is_heavy(const FeatureSums& feature, const DeviceFeature& at,
                           const int32_t* totals, bool missing_left) const {
    const ScanNumeric& scan = a.scan;
    const float min_value = scan.penalties.min_child_weight, n = static_cast<float>(scan.n_outputs);
    if (!(min_value > 0)) return true;
    float weight[2][kLanes] = {};  // [right]
    for (int first = 0; first < scan.n_outputs; first += kLanes) {
      const int width = scan.n_outputs - first < kLanes ? scan.n_outputs - first : kLanes;
      const auto get_lane = [&](int j) {
        return scan.hessian_offset + packed(first + j, first + j);
      };
      sum_up(feature, at.n_bins, get_lane, width, memory.gradient, memory.segments);
#pragma unroll
      for (int j = 0; j < kLanes; ++j) {
        if (j >= width) continue;
        const int lane = get_lane(j);
        const int32_t l =
            memory.gradient[threadIdx.x][j] + (missing_left ? feature.lane(at.missing, lane) : 0);
        const float step = scan.hessian_step[lane - scan.hessian_offset];
        const float hl = static_cast<float>(l) * step,
                    hr = static_cast<float>(totals[lane] - l) * step;
        weight[0][j] = first == 0 ? hl : weight[0][j] + hl;
        weight[1][j] = first == 0 ? hr : weight[1][j] + hr;
      }
    }
    return fold(weight[0]) / n >= min_value && fold(weight[1]) / n >= min_value;
  }
};

// Find the best candidate of feature f in a node; all threads must call it. score(feature, at,
// totals, count, n_ways, sums) computes the sums of the thread's candidate.
template <class Score>
__device__ void scan_feature(const ScanNumeric& a, int f, int64_t node_index, ScanMemory& memory,
                             const Score& score) {
  const int b = threadIdx.x;
  const DeviceFeature at = a.features[f];
  const DeviceNode node = a.nodes[node_index];
  FeatureBest& best = a.best[node_index * a.n_features + f];
  if (!at.is_numeric || !a.allowed[node_index * a.allowed_stride + f]) {
    if (b == 0) best = {kNone, -1, 0};
    return;
  }
  const FeatureSums feature =
      get_feature_sums(a.histograms, a.count_lane, node.histogram, at.first_bin);
  const int32_t* const totals = a.totals + node_index * a.histograms.lanes;
  const int32_t own = b < at.n_bins ? feature.count(b) : 0;
  memory.counts[b] = own;
  memory.hessians[b] = b < at.n_bins && a.hessian == 1 ? feature.lane(b, a.hessian_offset) : 0;
  running_sums(memory.counts);
  if (a.hessian == 1) running_sums(memory.hessians);

  const int32_t n_missing = feature.count(at.missing);
  const int n_ways = n_missing != 0 ? 2 : 1;
  float sums[2];
  score(feature, at, totals, node.count, n_ways, sums);

  // Empty bins repeat the candidate before them; bin 0 is kept for a split with only missing
  // values on the left.
  float sum = kNone;
  int order = -1;
  const int32_t min_value = a.penalties.min_child_samples;
  for (int way = 0; way < n_ways && b < at.n_bins && (own != 0 || b == 0); ++way) {
    const int32_t left = memory.counts[b] + (way == 1 ? n_missing : 0);
    if (left < min_value || node.count - left < min_value || !(sums[way] > sum)) continue;
    sum = sums[way];
    const bool separates_missing = Score::kUnconstrainedMissing && way == 0 &&
                                   contains_all_values(memory, b, feature, at, node.count);
    order = 2 * (separates_missing ? at.n_bins - 1 : b) + way;
  }
  best_of_block(sum, order);
  if (b == 0) best = order < 0 ? FeatureBest{kNone, -1, 0} : FeatureBest{sum, order / 2, order % 2};
}

// Call f(feature, node) for this block's (feature, node) pairs; all threads must call it.
template <class F>
__device__ void scan_features(const ScanNumeric& scan, int64_t n_scanned, const F& f) {
  for (int64_t i = blockIdx.x; i < n_scanned; i += gridDim.x) {
    f(static_cast<int>(i % scan.n_features), i / scan.n_features);
    __syncthreads();
  }
}

}  // namespace polyleaf::on_device

using namespace polyleaf::on_device;

extern "C" __global__ void scan_numeric(const ScanNumeric a) {
  __shared__ ScanMemory memory;
  scan_feature(a, blockIdx.x, blockIdx.y, memory, Separable<KeepAll>{a, memory, {}});
}

extern "C" __global__ void scan_monotone(const ScanMonotone a) {
  __shared__ ScanMemory memory;
  const int f = blockIdx.x;
  scan_feature(a.scan, f, blockIdx.y, memory, MonotoneScan(a, memory, f, blockIdx.y));
}

extern "C" __global__ void scan_topk(const ScanTopk a) {
  __shared__ ScanMemory memory;
  float* const scratch = a.scratch + blockIdx.x * topk_scratch_size(a.kept);
  scan_features(a.scan, a.n_scanned, [&](int f, int64_t node) {
    if (a.is_shared)
      scan_feature(a.scan, f, node, memory,
                   Separable<KeepTopk<true>>{a.scan, memory, {scratch, a.kept}});
    else
      scan_feature(a.scan, f, node, memory,
                   Separable<KeepTopk<false>>{a.scan, memory, {scratch, a.kept}});
  });
}

extern "C" __global__ void scan_solved(const ScanSolved a) {
  __shared__ ScanMemory memory;
  float* const scratch = a.scratch + blockIdx.x * solved_scratch_size(a.m);
  scan_features(a.scan, a.n_scanned, [&](int f, int64_t node) {
    scan_feature(a.scan, f, node, memory, Solved(a, memory, node, scratch));
  });
}

extern "C" __global__ void best_of_nodes(const BestOfNodes a) {
  const int t = threadIdx.x;
  const FeatureBest* const feature_best = a.best + static_cast<int64_t>(blockIdx.x) * a.n_features;
  float best_gain = kNone;
  int feature = -1;
  for (int f = t; f < a.n_features; f += blockDim.x) {
    if (feature_best[f].bin < 0) continue;
    const float sum = feature_best[f].sum;
    const float gain = a.factors == nullptr
                           ? sum
                           : polyleaf::penalised_gain(a.factors[f], sum, a.own_sums[blockIdx.x]);
    if (!(gain > best_gain)) continue;
    best_gain = gain;
    feature = f;
  }
  best_of_block(best_gain, feature);
  const int lanes = a.histograms.lanes;
  constexpr int kHead = sizeof(NodeBest) / sizeof(int32_t);
  int32_t* const out = a.found + static_cast<int64_t>(blockIdx.x) * (kHead + lanes);
  NodeBest& head = *reinterpret_cast<NodeBest*>(out);
  if (feature < 0) {
    if (t == 0) head = {kNone, -1, -1, 0, 0, 0};
    return;
  }
  const FeatureBest best = feature_best[feature];
  const DeviceFeature at = a.features[feature];
  const FeatureSums sums =
      get_feature_sums(a.histograms, a.count_lane, a.nodes[blockIdx.x].histogram, at.first_bin);
  for (int j = t; j < lanes; j += blockDim.x) {
    int32_t left = best.missing_left ? sums.lane(at.missing, j) : 0;
    for (int b = 0; b <= best.bin; ++b) left += sums.lane(b, j);
    out[kHead + j] = left;
  }
  if (t != 0) return;
  const int32_t n_missing = sums.count(at.missing);
  int32_t left = best.missing_left ? n_missing : 0;
  for (int b = 0; b <= best.bin; ++b) left += sums.count(b);
  head = {best.sum, feature, best.bin, best.missing_left, left, n_missing};
}
