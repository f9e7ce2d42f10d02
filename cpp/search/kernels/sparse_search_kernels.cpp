// Kernels of searches over sparse gradients and sparse features. Sums are integers, so any order
// gives the same bits.
#include "base/kernels/lanes.h"
#include "search/kernels/sparse_target_kernels.h"
#include "search/sparse_gain_bounds.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

typedef int64_t i64x4 __attribute__((vector_size(32)));
using i64x8 = VectorPair<i64x4>;

constexpr int kAhead = 12;  // entries between the prefetch of an output's line and its use; twice
                            // as many for its index

void add_row(const int32_t* outputs, const float* values, int64_t n, float multiplier, float scale,
             const int64_t* lanes, SetSums* sums) {
  const i64x8 sets = load<i64x8>(lanes);
  int32_t n_touched = static_cast<int32_t>(sums->n_touched);
  for (int64_t e = 0; e < n; ++e) {
    if (e + 2 * kAhead < n) __builtin_prefetch(sums->number + outputs[e + 2 * kAhead], 1);
    if (e + kAhead < n) {  // for new outputs, the first line: harmless
      const int64_t ahead = sums->number[outputs[e + kAhead]];
      __builtin_prefetch(sums->lines + (ahead - (ahead > 0)) * kSetLanes, 1);
    }
    int32_t& number = sums->number[outputs[e]];
    sums->touched[n_touched] = outputs[e];
    n_touched += number == 0;
    number = number == 0 ? n_touched : number;
    int64_t* line = sums->lines + (int64_t{number} - 1) * kSetLanes;
    const int64_t value = static_cast<int32_t>(values[e] * multiplier * scale);
    store(line, load<i64x8>(line) + ((value - i64x8{}) & sets));
  }
  sums->n_touched = n_touched;
}

// Select the features whose gain bound is high enough.
int64_t select_candidates(const SparseGainColumns& c, int64_t first, int64_t last,
                          const SparseGainLimit& limit, int32_t* out) {
  constexpr int kBlock = 64;
  int64_t n = 0;
  for (int64_t begin = first; begin < last; begin += kBlock) {
    const int m = last - begin < kBlock ? static_cast<int>(last - begin) : kBlock;
    alignas(64) uint8_t flags[kBlock] = {};
    for (int i = 0; i < m; ++i) {
      const float norm = limit.norm + c.norm[begin + i],
                  rest = limit.min_hessian - c.hessian[begin + i];
      const float most = (c.gain[begin + i] + norm * norm / rest) * limit.margin;
      flags[i] = static_cast<uint8_t>(!(most < limit.best_so_far) | !(rest >= limit.min_rest));
    }
    for (int i = 0; i < m; i += 8) {
      if (load<uint64_t>(flags + i) == 0) continue;
      for (int j = i; j < i + 8; ++j)
        if (flags[j] != 0) out[n++] = static_cast<int32_t>(begin + j);
    }
  }
  return n;
}

}  // namespace

const SparseTargetKernels sparse_target_kernels = {add_row};

const SparseGainKernels sparse_gain_kernels = {select_candidates};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
