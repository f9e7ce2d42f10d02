#include "data/sample.h"

namespace polyleaf {

std::vector<int64_t> group_rows_by_leaf(const RowSample& sample, const int32_t* leaf_of_row,
                                  int32_t n_leaves, uint32_t* out) {
  const int64_t n = sample.n_used();
  const auto leaf = [&](int64_t row) { return leaf_of_row != nullptr ? leaf_of_row[row] : 0; };
  // A leaf's rows are counted two places on; its own then moves from where it begins to where it
  // ends.
  std::vector<int64_t> begin(static_cast<size_t>(n_leaves) + 2, 0);
  for (int64_t i = 0; i < n; ++i)
    if (const int32_t l = leaf(sample.row(i)); l >= 0) ++begin[l + 2];
  for (int32_t l = 0; l < n_leaves; ++l) begin[l + 2] += begin[l + 1];
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = sample.row(i);
    if (const int32_t l = leaf(row); l >= 0) out[begin[l + 1]++] = static_cast<uint32_t>(row);
  }
  begin.pop_back();
  return begin;
}

}  // namespace polyleaf
