// Fixed-point leaf sums and the addition of leaf values to raw scores (leaves/newton.h).
#include "../leaves/newton.h"
#include "lanes.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

void sum(const float* values, int n_columns, const RowSample& sample, int64_t begin, int64_t end,
         const int32_t* leaf_of_row, const float* scale, int64_t* sums) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t row = sample.rows ? sample.rows[i] : i;
    const float m = sample.multiplier ? sample.multiplier[row] : 1.0f;
    const float* v = values + row * n_columns;
    int64_t* out = sums + static_cast<int64_t>(leaf_of_row[row]) * n_columns;
    for (int j = 0; j < n_columns; ++j) out[j] += static_cast<int32_t>(v[j] * m * scale[j]);
  }
}

void add(float* raw, int n_columns, int64_t begin, int64_t end, const int32_t* leaf_of_row,
         const float* values) {
  for (int64_t i = begin; i < end; ++i) {
    const float* v = values + static_cast<int64_t>(leaf_of_row[i]) * n_columns;
    float* out = raw + i * n_columns;
    for (int j = 0; j < n_columns; ++j) out[j] += v[j];
  }
}

void add_column(float* raw, int n_columns, int column, int64_t begin, int64_t end, const int32_t* leaf_of_row,
                const float* values) {
  for (int64_t i = begin; i < end; ++i) raw[i * n_columns + column] += values[leaf_of_row[i]];
}

}  // namespace

const LeafKernels leaf_kernels = {sum, add, add_column};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
