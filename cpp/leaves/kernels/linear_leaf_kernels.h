// Sums over rows for linear leaves. Terms are rounded to integers (fixed_point.h), so sums of up to
// kSumBlock rows are exact in float64 in any order. Factors are scaled so that terms stay below
// their bit limit.
#pragma once
#include <cstdint>

#include "base/fixed_point.h"
#include "base/isa.h"
#include "data/sample.h"
#include "leaves/leaf_kind.h"

namespace polyleaf {

struct LinearLeafKernels {
  // out[i] = values[ids[i]]; range[0] and range[1] are extended to the smallest and largest
  // value, ignoring NaN.
  void (*gather)(const float* values, const uint32_t* ids, int64_t n, float* out, float* range);
  // out[0], out[1]: sums of w and of w * (x * unit) over the rows where x is not missing.
  void (*mean_sums)(const float* x, const double* w, double unit, int64_t n, double* out);
  // out = ((x - centre) * inverse_scale) * unit; 0 where x is missing.
  void (*standardise)(const float* x, int64_t n, double centre, double inverse_scale, double unit,
                      double* out);
  // Return the sum of a * b.
  double (*dot)(const double* a, const double* b, int64_t n);
  // out (p, n_columns) = sum over rows of z[j * z_step + i] * (values_i * units), where values_i
  // (n_columns) is row ids[i] times its multiplier. The number of units is a multiple of 8.
  void (*outer)(const double* z, int64_t z_step, int p, const float* values, const double* units,
                int n_columns, const uint32_t* ids, const RowSample& sample, int64_t n,
                double* out);
  // Compute the scores of rows of a leaf with one output: the prediction kernel's bits, sixteen
  // rows at once. Regressor e of row i is x[view.index[e] * step + i]; x and scores are readable to
  // 15 more.
  void (*evaluate_column)(const LeafView& leaf, const float* x, int64_t step, int64_t n,
                          float* scores);
  // lower[k] = min(lower[k], scores[i][k]), upper likewise.
  void (*bound)(const float* scores, int n_columns, int64_t n, float* lower, float* upper);
};
POLYLEAF_DECLARE_KERNELS(LinearLeafKernels, linear_leaf_kernels)

}  // namespace polyleaf
