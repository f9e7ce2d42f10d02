// Which rows a tree sees. Must not know what is done with them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/isa.h"

namespace polyleaf {

// Where rows, or what there is for each, begin that are none: no rows at all are something else
// than all of them, and no weights than weights of 1.
template <class T>
const T* non_null_data(const T* values, size_t n) {
  static constexpr T kNone{};
  return n > 0 ? values : &kNone;
}

// All rows, or the ascending `rows`; `multiplier` (n_all) scales a row's derivatives.
struct RowSample {
  int64_t n_all = 0;
  const uint32_t* rows = nullptr;
  int64_t n_rows = 0;
  const float* multiplier = nullptr;
  bool operator==(const RowSample&) const = default;  // the same arrays

  POLYLEAF_INLINE_MEMBER int64_t n_used() const { return rows != nullptr ? n_rows : n_all; }
  // The i-th row of the sample.
  POLYLEAF_INLINE_MEMBER int64_t row(int64_t i) const { return rows != nullptr ? rows[i] : i; }
  POLYLEAF_INLINE_MEMBER float factor(int64_t row) const {
    return multiplier != nullptr ? multiplier[row] : 1.0f;
  }
};

// Writes the rows of the sample to `out` (n_used), leaf after leaf, in their order in each, without
// those of a negative leaf. Returns where each leaf begins, and the end (n_leaves + 1). leaf_of_row
// (n_all) nullptr: one leaf.
std::vector<int64_t> group_rows_by_leaf(const RowSample& sample, const int32_t* leaf_of_row,
                                  int32_t n_leaves, uint32_t* out);

}  // namespace polyleaf
