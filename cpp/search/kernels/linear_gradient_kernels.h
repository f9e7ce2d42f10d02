// Quantised gradients of nodes with linear leaves: columns of a node's rows, then products of
// columns as integers.
#pragma once
#include <cstdint>

#include "base/isa.h"

namespace polyleaf {

// A lane is the product of up to three columns, from left to right; -1: none.
struct LaneProduct {
  int a, b, c;
};

// A number of each row by its code in one feature: number[code]. A code is the byte of the row's
// word that begins at bit `shift`.
struct CodeTable {
  const uint64_t* words;
  int shift;
  const float* number;

  static constexpr int kSize = 256;
  int code(int64_t row) const { return static_cast<int>((words[row] >> shift) & (kSize - 1)); }
};

// Gradient update after many outputs have fitted the slope of one feature x: g_k += (h_k * (x -
// middle_k)) * slope_k, unless the code of x is `missing`. middle and slope are readable to the
// next sixteen.
struct FittedStep {
  CodeTable x;
  int missing;
  const float *middle, *slope;
};

// Update after one output has fitted slopes: fitted = factor * fitted + what the feature adds.
struct FittedUpdate {
  CodeTable added;
  float factor;
};

struct LinearGradientKernels {
  // Copy columns: column c of row i <- rows[ids[i] * stride + c] for the first n_columns columns
  // (ids nullptr: first + i), column after column, `step` floats apart. largest[c] =
  // max(largest[c], |value|).
  void (*gather)(const float* rows, int stride, const uint32_t* ids, int64_t first, int64_t n,
                 int n_columns, int64_t step, float* out, float* largest);
  // One output, half-additive: rows of four floats (g, h, fitted, 1). Copy rows ids[i] (nullptr:
  // first + i) to `out`; if `update` is set, first apply it. least[c] = min(least[c], value) and
  // most[c] = max(most[c], value) for the four columns.
  void (*read_narrow)(float* rows, const uint32_t* ids, int64_t first, int64_t n,
                      const FittedUpdate* update, float* out, float* least, float* most);
  // Quantise such rows with z = fitted - middle: 0 or 1 regressors, a Hessian of 1 or h, in the
  // order of ChannelLayout; inverse: per lane, 1 in the count lane. totals[j] += their sums.
  void (*quantise_narrow)(const float* rows, int64_t n, int regressors, bool unit, float middle,
                          const float* inverse, int16_t* channels, int64_t* totals);
  // Many outputs, half-additive: rows of `stride` floats, g of n_outputs, then n_hessian Hessians.
  // Copy rows ids[i] (nullptr: first + i) to `out`; if `step` is set, first apply it. largest[c] =
  // max(largest[c], |value|) for all columns.
  void (*read_many)(float* rows, int stride, int n_outputs, int n_hessian, const uint32_t* ids,
                    int64_t first, int64_t n, const FittedStep* step, float* out, float* largest);
  // Quantise such rows: rint(value * inverse), 0 for NaN; 1 in the count lane, 0 after it.
  // totals[j] += their sums.
  void (*quantise_many)(const float* rows, int64_t n, int stride, const float* inverse,
                        int count_lane, int lanes, int16_t* channels, int64_t* totals);
  // out[i] = number of row i
  void (*look_up)(const CodeTable& table, int64_t n, float* out);
  // range[0] = min(range[0], values), range[1] = max(range[1], values), without NaN.
  void (*range)(const float* values, int64_t n, float* range);
  // values -= middle, 0 for NaN.
  void (*centre)(float* values, int64_t n, float middle);
  // Many columns: channels[i * lanes + j] = rint(product_j * inverse[j]) of n rows for n_products
  // lanes, 1 in the count lane, 0 after it; totals[j] += their sums. columns[c]: a column, or
  // nullptr: ones.
  void (*quantise)(const float* const* columns, int64_t n, const LaneProduct* products,
                   int n_products, const float* inverse, int count_lane, int lanes,
                   int16_t* channels, int64_t* totals);
};
POLYLEAF_DECLARE_KERNELS(LinearGradientKernels, linear_gradient_kernels)

}  // namespace polyleaf
