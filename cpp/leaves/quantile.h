// Quantile leaves: what minimises absolute and pinball losses in a leaf, which no Newton step does;
// and the same of all rows, for base scores.
//
// One machine selects or sorts; where other ranks have further rows, the bits of a quantile are
// found from the first on, by sums of integer weights.
//
// Owns: lower weighted quantiles. Must not know: losses, how the structure was found.
#pragma once
#include <cstdint>

#include "base/context.h"
#include "data/sample.h"

namespace polyleaf {

// For each leaf and column the smallest value v such that the rows of the leaf with value <= v hold
// at least `level` (n_columns) of its weight; 0 where a leaf has no weight. values (n_all,
// n_columns); weight (n_all, 1 or n_columns), nullptr: all 1; leaf_of_row as in `rows_by_leaf`.
// out: (n_leaves, n_columns).
template <class T>
void fit_quantile_leaves(const T* values, int64_t n_columns, const float* weight,
                         int64_t weight_columns, const RowSample& sample,
                         const int32_t* leaf_of_row, int32_t n_leaves, const double* level,
                         const Workers& workers, T* out);

}  // namespace polyleaf
