// Sums of sparse rows over several sets of rows (sparse_sums.h): integers, so any order gives the same bits.
#include "kernels/sparse_sums.h"

#include "lanes.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

typedef int64_t i64x8 __attribute__((vector_size(64)));

constexpr int kAhead = 12;  // entries whose lines are fetched before their turn

void add_row(const int32_t* outputs, const float* values, int64_t n, float multiplier, float scale,
             const int64_t* lanes, SetSums* sums) {
  const i64x8 sets = load<i64x8>(lanes), one = {0, 0, 0, 0, 0, 0, 0, 1};
  int64_t n_touched = sums->n_touched;
  for (int64_t e = 0; e < n; ++e) {
    if (e + kAhead < n) __builtin_prefetch(sums->lines + int64_t{outputs[e + kAhead]} * kSetLanes, 1);
    int64_t* line = sums->lines + int64_t{outputs[e]} * kSetLanes;
    const int64_t value = static_cast<int32_t>(values[e] * multiplier * scale);
    const i64x8 before = load<i64x8>(line);
    sums->touched[n_touched] = outputs[e];
    n_touched += line[kSetLanes - 1] == 0;
    store(line, before + ((value - i64x8{}) & sets) + one);
  }
  sums->n_touched = n_touched;
}

}  // namespace

const SparseSumKernels sparse_sum_kernels = {add_row};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
