// Kernel of fixed-point leaf sums (leaves/newton.h).
#include "base/kernels/lanes.h"
#include "leaves/newton.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

// One column: consecutive rows are often in the same leaf, so each addition waits for the one
// before. Four alternating tables hide that latency, for trees so small that the tables stay in the
// L1 cache.
constexpr int kTableLeaves = 512;

void sum_column(const float* values, int64_t begin, int64_t end, const int32_t* leaf_of_row,
                int32_t n_leaves, float scale, int64_t* sums) {
  int64_t tables[4][kTableLeaves];
  std::memset(tables, 0, sizeof(tables));
  int64_t i = begin;
  for (; i + 4 <= end; i += 4)
    for (int j = 0; j < 4; ++j)
      tables[j][leaf_of_row[i + j]] += static_cast<int32_t>(values[i + j] * scale);
  for (; i < end; ++i) tables[0][leaf_of_row[i]] += static_cast<int32_t>(values[i] * scale);
  for (int32_t leaf = 0; leaf < n_leaves; ++leaf)
    sums[leaf] += tables[0][leaf] + tables[1][leaf] + tables[2][leaf] + tables[3][leaf];
}

void sum(const float* values, int n_columns, const RowSample& sample, int64_t begin, int64_t end,
         const int32_t* leaf_of_row, int32_t n_leaves, const float* scale, int64_t* sums) {
  if (n_columns == 1 && !sample.rows && !sample.multiplier && n_leaves <= kTableLeaves) {
    sum_column(values, begin, end, leaf_of_row, n_leaves, scale[0], sums);
    return;
  }
  for (int64_t i = begin; i < end; ++i) {
    const int64_t row = sample.row(i);
    const float m = sample.factor(row);
    const float* v = values + row * n_columns;
    int64_t* out = sums + static_cast<int64_t>(leaf_of_row[row]) * n_columns;
    for (int j = 0; j < n_columns; ++j) out[j] += static_cast<int32_t>(v[j] * m * scale[j]);
  }
}

}  // namespace

const LeafKernels leaf_kernels = {sum};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
