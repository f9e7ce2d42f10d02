// Sums over rows for linear leaves, float64 in one order: rows are cut into blocks of `kSumBlock`; in a block
// eight lanes take the rows in turn and fold, or rows follow each other where lanes are outputs. The caller
// adds blocks in order.
#pragma once
#include <cstdint>

#include "base/isa.h"
#include "base/kernels/dot.h"
#include "data/sample.h"

namespace polyleaf {

struct LinearLeafKernels {
  // out[i] = values[ids[i]]
  void (*gather)(const float* values, const uint32_t* ids, int64_t n, float* out);
  // Sums of w and of w * x over the rows where x is not missing: out[0], out[1].
  void (*mean_sums)(const float* x, const double* w, int64_t n, double* out);
  // out = (x - centre) * inverse_scale, 0 where x is missing.
  void (*standardise)(const float* x, int64_t n, double centre, double inverse_scale, double* out);
  // out (p, n_columns) = sum over rows of z[j * z_step + i] * values_i, where values_i (n_columns) is that of
  // row ids[i] times its multiplier.
  void (*outer)(const double* z, int64_t z_step, int p, const float* values, int n_columns,
                const uint32_t* ids, const RowSample& sample, int64_t n, double* out);
  // lower[k] = min(lower[k], scores[i][k]), upper likewise.
  void (*bound)(const float* scores, int n_columns, int64_t n, float* lower, float* upper);
};
POLYLEAF_DECLARE_KERNELS(LinearLeafKernels, linear_leaf_kernels)

}  // namespace polyleaf
