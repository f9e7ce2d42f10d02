// The best numeric split of each feature of each node, and of them that of each node: candidates and sums in
// the order of docs/design.md, section 4. A block scans one feature of one node; a thread is one candidate
// bin, and sums its sixteen virtual lanes in registers. Formulas are those of scores/.
#include "device/kernels/block.h"
#include "scores/diagonal.h"
#include "scores/shared.h"
#include "scores/topk.h"

namespace polyleaf::on_device {

constexpr int kLanes = 16;           // virtual lanes of a sum over outputs
constexpr int kPadded = kLanes + 1;  // of a bin in the memory of a block: spreads its banks
constexpr int kMostBins = kScanThreads;
constexpr float kNone = __builtin_bit_cast(float, 0xff800000u);  // -inf

// What the threads of a block share while they scan.
struct ScanMemory {
  int32_t counts[kMostBins], curvatures[kMostBins];                     // running sums over bins
  int32_t gradient[kMostBins][kPadded], curvature[kMostBins][kPadded];  // the same of sixteen lanes
  int32_t segments[kScanThreads / kLanes][kLanes];
};

// What the lanes sum to in the order of halves.
__device__ inline float fold(float* v) {
#pragma unroll
  for (int half = kLanes / 2; half > 0; half /= 2)
#pragma unroll
    for (int j = 0; j < half; ++j) v[j] = v[j] + v[j + half];
  return v[0];
}

// A feature's histogram in one node.
struct FeatureSums {
  const int32_t* sums;    // of its first bin
  const int32_t* counts;  // nullptr: a lane counts
  int32_t lanes, count_lane;

  __device__ int32_t lane(int bin, int j) const { return sums[static_cast<int64_t>(bin) * lanes + j]; }
  __device__ int32_t count(int bin) const { return counts != nullptr ? counts[bin] : lane(bin, count_lane); }
};

__device__ inline FeatureSums sums_of(const Histograms& histograms, int32_t count_lane, int32_t histogram,
                                      int32_t first_bin) {
  const int32_t* const data = histograms.data + histogram * histograms.size;
  const int32_t* const counts = histograms.counts_at >= 0 ? data + histograms.counts_at + first_bin : nullptr;
  return {data + static_cast<int64_t>(first_bin) * histograms.lanes, counts, histograms.lanes, count_lane};
}

// to[bin][j]: sums over bins 0 .. bin of lane first + j, for the value bins; all threads call this.
__device__ inline void sum_up(const FeatureSums& feature, int n_bins, int first, int n_lanes,
                              int32_t (*to)[kPadded], int32_t (*totals)[kLanes]) {
  constexpr int kSegments = kScanThreads / kLanes, kBins = kMostBins / kSegments;
  const int j = threadIdx.x % kLanes, segment = threadIdx.x / kLanes;
  int32_t sum = 0;
  __syncthreads();
  for (int b = segment * kBins; b < (segment + 1) * kBins; ++b) {
    if (b < n_bins && j < n_lanes) sum += feature.lane(b, first + j);
    to[b][j] = sum;
  }
  totals[segment][j] = sum;
  __syncthreads();
  int32_t before = 0;
  for (int s = 0; s < segment; ++s) before += totals[s][j];
  for (int b = segment * kBins; b < (segment + 1) * kBins; ++b) to[b][j] += before;
  __syncthreads();
}

// A candidate is better where its sum is larger, and among equals where it comes first.
__device__ inline bool better(float sum, int order, float than, int order_of_that) {
  return sum > than || (sum == than && order < order_of_that);
}

// The best of all threads, in all threads; `order` -1: the thread has none.
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

// Leaves of all outputs: a candidate's sum is that of its terms.
struct KeepAll {
  template <class S>
  __device__ void offer(int, const S&, float, float, float, float, float) {}
  __device__ float sum(int, float of_terms) const { return of_terms; }
};

// Numbers of the threads of a block, those of one apart by the number of threads.
struct OfThread {
  float* first;
  __device__ float& operator[](int i) const { return first[i * kScanThreads]; }
};

// Leaves of some outputs: each child keeps its own, or both the same. There is no sum where that of all terms
// is not finite.
template <bool SHARED>
struct KeepFew {
  LargestTerms<float, OfThread> largest[2][2];  // [way][right]

  __device__ KeepFew(float* room, int kept) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      largest[i / 2][i % 2] = {{room + i * kept * kScanThreads + threadIdx.x}, kept};
  }
  template <class S>
  __device__ void offer(int way, const S& score, float gl, float gr, float cl, float cr, float term) {
    if (SHARED) return largest[way][0].offer(term);
    largest[way][0].offer(score.single(gl, cl));
    largest[way][1].offer(score.single(gr, cr));
  }
  __device__ float sum(int way, float of_terms) const {
    if (!(of_terms - of_terms == 0.0f)) return kNone;
    return SHARED ? largest[way][0].sum() : largest[way][0].sum() + largest[way][1].sum();
  }
};

// Score sums of a thread's candidate, for missing values right and left: -inf where a child is too light.
template <class S, class Keep>
__device__ void candidate_sums(const ScanNumeric& a, const S& score, const FeatureSums& feature,
                               const FeatureAt& at, const int32_t* totals, int32_t count, int n_ways,
                               Keep keep, ScanMemory& memory, float* sums) {
  const int b = threadIdx.x;
  float coefficient[2][2];  // [way][right]
  bool heavy[2] = {true, true};
  if constexpr (!S::kPerOutput) {
    const float step = a.curvature == 0 ? 1.0f : a.curvature_step[0];
    const int32_t total = a.curvature == 0 ? count : totals[a.curvature_offset];
    for (int way = 0; way < n_ways; ++way) {
      const int32_t of_missing =
          a.curvature == 0 ? feature.count(at.missing) : feature.lane(at.missing, a.curvature_offset);
      const int32_t left =
          (a.curvature == 0 ? memory.counts[b] : memory.curvatures[b]) + (way == 1 ? of_missing : 0);
      const float hl = static_cast<float>(left) * step, hr = static_cast<float>(total - left) * step;
      coefficient[way][0] = score.coefficient(hl);
      coefficient[way][1] = score.coefficient(hr);
      heavy[way] = hl >= a.penalties.min_child_weight && hr >= a.penalties.min_child_weight;
    }
  }
  float v[2][kLanes] = {};
  float weight[2][2][S::kPerOutput ? kLanes : 1] = {};  // [way][right]
  for (int first = 0; first < a.n_outputs; first += kLanes) {
    const int width = a.n_outputs - first < kLanes ? a.n_outputs - first : kLanes;
    sum_up(feature, at.n_bins, first, width, memory.gradient, memory.segments);
    if constexpr (S::kPerOutput)
      sum_up(feature, at.n_bins, a.curvature_offset + first, width, memory.curvature, memory.segments);
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
          const int lane = a.curvature_offset + k;
          const int32_t h = memory.curvature[b][j] + (way == 1 ? feature.lane(at.missing, lane) : 0);
          const float hl = static_cast<float>(h) * a.curvature_step[k];
          const float hr = static_cast<float>(totals[lane] - h) * a.curvature_step[k];
          weight[way][0][j] = first == 0 ? hl : weight[way][0][j] + hl;
          weight[way][1][j] = first == 0 ? hr : weight[way][1][j] + hr;
          cl = score.coefficient(hl);
          cr = score.coefficient(hr);
        } else {
          cl = coefficient[way][0];
          cr = coefficient[way][1];
        }
        const float term = score.pair(gl, gr, cl, cr);
        v[way][j] = first == 0 ? term : v[way][j] + term;
        keep.offer(way, score, gl, gr, cl, cr, term);
      }
    }
  }
  for (int way = 0; way < n_ways; ++way) {
    if constexpr (S::kPerOutput) {
      const float least = a.penalties.min_child_weight, k = static_cast<float>(a.n_outputs);
      heavy[way] = least <= 0 || (fold(weight[way][0]) / k >= least && fold(weight[way][1]) / k >= least);
    }
    sums[way] = heavy[way] ? keep.sum(way, fold(v[way])) : kNone;
  }
}

template <class Keep>
__device__ void score_candidates(const ScanNumeric& a, const FeatureSums& feature, const FeatureAt& at,
                                 const int32_t* totals, int32_t count, int n_ways, const Keep& keep,
                                 ScanMemory& memory, float* sums) {
  const Penalties& p = a.penalties;
  const Regularisation r{p.lambda, p.alpha, p.limit};
  const auto score = [&](const auto& s) {
    candidate_sums(a, s, feature, at, totals, count, n_ways, keep, memory, sums);
  };
  const bool is_plain = p.alpha == 0.0f && p.limit == 0.0f;
  if (a.curvature == 2)
    is_plain ? score(Diagonal{r}) : score(Regularised<true>{r});
  else
    is_plain ? score(Shared{r}) : score(Regularised<false>{r});
}

// The best candidate of feature f in a node; all threads of a block call this.
template <class Keep>
__device__ void scan_feature(const ScanNumeric& a, int f, int64_t of_node, const Keep& keep,
                             ScanMemory& memory) {
  const int b = threadIdx.x;
  const FeatureAt at = a.features[f];
  const NodeAt node = a.nodes[of_node];
  FeatureBest& best = a.best[of_node * a.n_features + f];
  if (!at.is_numeric || !a.allowed[of_node * a.allowed_stride + f]) {
    if (b == 0) best = {kNone, -1, 0};
    return;
  }
  const FeatureSums feature = sums_of(a.histograms, a.count_lane, node.histogram, at.first_bin);
  const int32_t* const totals = a.totals + of_node * a.histograms.lanes;
  const int32_t own = b < at.n_bins ? feature.count(b) : 0;
  memory.counts[b] = own;
  memory.curvatures[b] = b < at.n_bins && a.curvature == 1 ? feature.lane(b, a.curvature_offset) : 0;
  running_sums(memory.counts);
  if (a.curvature == 1) running_sums(memory.curvatures);

  const int32_t n_missing = feature.count(at.missing);
  const int n_ways = n_missing != 0 ? 2 : 1;
  float sums[2];
  score_candidates(a, feature, at, totals, node.count, n_ways, keep, memory, sums);

  // Empty bins repeat the candidate before them; bin 0 stays, for missing values alone on the left.
  float sum = kNone;
  int order = -1;
  const int32_t least = a.penalties.min_child_samples;
  for (int way = 0; way < n_ways && b < at.n_bins && (own != 0 || b == 0); ++way) {
    const int32_t left = memory.counts[b] + (way == 1 ? n_missing : 0);
    if (left < least || node.count - left < least || !(sums[way] > sum)) continue;
    sum = sums[way];
    order = 2 * b + way;
  }
  best_of_block(sum, order);
  if (b == 0) best = order < 0 ? FeatureBest{kNone, -1, 0} : FeatureBest{sum, order / 2, order % 2};
}

}  // namespace polyleaf::on_device

using namespace polyleaf::on_device;

extern "C" __global__ void scan_numeric(const ScanNumeric a) {
  __shared__ ScanMemory memory;
  scan_feature(a, blockIdx.x, blockIdx.y, KeepAll(), memory);
}

extern "C" __global__ void scan_few(const ScanFew a) {
  __shared__ ScanMemory memory;
  float* const room = a.room + blockIdx.x * room_of_few(a.kept);
  for (int64_t i = blockIdx.x; i < a.n_scanned; i += gridDim.x) {
    const auto f = static_cast<int>(i % a.scan.n_features);
    const int64_t node = i / a.scan.n_features;
    if (a.is_shared)
      scan_feature(a.scan, f, node, KeepFew<true>(room, a.kept), memory);
    else
      scan_feature(a.scan, f, node, KeepFew<false>(room, a.kept), memory);
    __syncthreads();
  }
}

extern "C" __global__ void best_of_nodes(const BestOfNodes a) {
  const int t = threadIdx.x;
  const FeatureBest* const of_features = a.best + static_cast<int64_t>(blockIdx.x) * a.n_features;
  float sum = kNone;
  int feature = -1;
  for (int f = t; f < a.n_features; f += blockDim.x)
    if (of_features[f].bin >= 0 && (feature < 0 || of_features[f].sum > sum)) {
      sum = of_features[f].sum;
      feature = f;
    }
  best_of_block(sum, feature);
  const int lanes = a.histograms.lanes;
  constexpr int kHead = sizeof(NodeBest) / sizeof(int32_t);
  int32_t* const out = a.found + static_cast<int64_t>(blockIdx.x) * (kHead + lanes);
  NodeBest& head = *reinterpret_cast<NodeBest*>(out);
  if (feature < 0) {
    if (t == 0) head = {sum, -1, -1, 0, 0, 0};
    return;
  }
  const FeatureBest best = of_features[feature];
  const FeatureAt at = a.features[feature];
  const FeatureSums sums = sums_of(a.histograms, a.count_lane, a.nodes[blockIdx.x].histogram, at.first_bin);
  for (int j = t; j < lanes; j += blockDim.x) {
    int32_t left = best.missing_left ? sums.lane(at.missing, j) : 0;
    for (int b = 0; b <= best.bin; ++b) left += sums.lane(b, j);
    out[kHead + j] = left;
  }
  if (t != 0) return;
  const int32_t n_missing = sums.count(at.missing);
  int32_t left = best.missing_left ? n_missing : 0;
  for (int b = 0; b <= best.bin; ++b) left += sums.count(b);
  head = {sum, feature, best.bin, best.missing_left, left, n_missing};
}
