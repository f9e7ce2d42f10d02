// Rows that a tree is grown on.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/isa.h"

namespace polyleaf {

// Return a pointer to the values, never nullptr: an empty array differs from nullptr, which means
// all rows, or weights of 1.
template <class T>
const T* non_null_data(const T* values, size_t n) {
  static constexpr T kNone{};
  return n > 0 ? values : &kNone;
}

// All rows, or the ascending `rows`; `multiplier` (n_all) scales a row's gradient and Hessian.
struct RowSample {
  int64_t n_all = 0;
  const uint32_t* rows = nullptr;
  int64_t n_rows = 0;
  const float* multiplier = nullptr;
  bool operator==(const RowSample&) const = default;  // the same arrays

  POLYLEAF_INLINE_MEMBER int64_t n_used() const { return rows != nullptr ? n_rows : n_all; }
  // Return the i-th row of the sample.
  POLYLEAF_INLINE_MEMBER int64_t row(int64_t i) const { return rows != nullptr ? rows[i] : i; }
  POLYLEAF_INLINE_MEMBER float factor(int64_t row) const {
    return multiplier != nullptr ? multiplier[row] : 1.0f;
  }
};

// Write the rows of the sample to `out` (n_used), grouped by leaf, in order within each leaf,
// without rows of a negative leaf. Return where each leaf begins, and the end (n_leaves + 1).
// leaf_of_row (n_all) nullptr: one leaf.
inline std::vector<int64_t> group_rows_by_leaf(const RowSample& sample, const int32_t* leaf_of_row,
                                               int32_t n_leaves, uint32_t* out) {
  const int64_t n = sample.n_used();
  const auto leaf = [&](int64_t row) { return leaf_of_row != nullptr ? leaf_of_row[row] : 0; };
  // Rows are counted two entries ahead; the entry between then moves from the begin to the end of
  // its leaf.
  std::vector<int64_t> begin(static_cast<size_t>(n_leaves) + 2, 0);
  for (int64_t i = 0; i < n; ++i)
    if (const int32_t l = leaf(sample.row(i)); l >= 0) {
      POLYLEAF_DCHECK(l < n_leaves);
      ++begin[l + 2];
    }
  for (int32_t l = 0; l < n_leaves; ++l) begin[l + 2] += begin[l + 1];
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = sample.row(i);
    if (const int32_t l = leaf(row); l >= 0) out[begin[l + 1]++] = static_cast<uint32_t>(row);
  }
  begin.pop_back();
  return begin;
}

}  // namespace polyleaf
