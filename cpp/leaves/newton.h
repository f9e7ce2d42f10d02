// Newton leaves: w = -G / (H + lambda) per leaf and output (GBDT-MO eq. 15, C-GB eq. 13), from exact
// fixed-point sums of the unquantised derivatives. Also adding leaf values to raw scores.
//
// Owns: the leaf problem of dense leaves. Must not know: how the structure was found.
#pragma once
#include <cstdint>
#include <vector>

#include "../channels.h"
#include "../isa.h"

namespace polyleaf {

struct LeafConfig {
  double reg_lambda = 1.0, reg_alpha = 0.0, max_delta_step = 0.0, learning_rate = 1.0;
};

struct LeafKernels {
  // sums[leaf][j] += trunc(values_ij * multiplier_i * scale_j) over rows [begin, end) of the sample
  void (*sum)(const float* values, int n_columns, const RowSample& sample, int64_t begin, int64_t end,
              const int32_t* leaf_of_row, const float* scale, int64_t* sums);
  // raw[i] += values[leaf_of_row[i]]
  void (*add)(float* raw, int n_columns, int64_t begin, int64_t end, const int32_t* leaf_of_row,
              const float* values);
  // the same for one column of a wider raw matrix
  void (*add_column)(float* raw, int n_columns, int column, int64_t begin, int64_t end,
                     const int32_t* leaf_of_row, const float* values);
};
POLYLEAF_DECLARE_KERNELS(LeafKernels, leaf_kernels)

// Sums of (n_all, n_columns) values per leaf, float64 (n_leaves, n_columns): exact multiples of 2^-30 of a
// power of two above the column's largest magnitude.
std::vector<double> leaf_sums(const float* values, int n_columns, const RowSample& sample,
                              const int32_t* leaf_of_row, int32_t n_leaves, int n_threads);

// out: (n_leaves, n_outputs) float32. h: (n_all, h_columns) with h_columns 1 or n_outputs, or nullptr:
// curvature 1.
void newton_leaves(const float* g, const float* h, int n_outputs, int h_columns, const RowSample& sample,
                   const int32_t* leaf_of_row, int32_t n_leaves, const LeafConfig& config, int n_threads,
                   float* out);

// raw (n, n_columns) gets every row's leaf values; column >= 0: values (n_leaves,) go to that column only.
void add_leaf_values(float* raw, int64_t n, int n_columns, int column, const int32_t* leaf_of_row,
                     const float* values, int n_threads);

}  // namespace polyleaf
