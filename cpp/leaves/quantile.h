// Quantile leaf values, which minimise absolute and pinball loss in a leaf, and quantiles of all
// rows for base scores.
//
// A single process selects or sorts; in distributed training the bits of a quantile are found from
// the most significant on, by sums of integer weights.
#pragma once
#include <cstdint>

#include "base/context.h"
#include "data/sample.h"

namespace polyleaf {

// Find for each leaf and column the smallest value v such that rows with value <= v hold at least
// `level` (n_columns) of the leaf's weight; 0 if a leaf has no weight. values (n_all, n_columns);
// weight (n_all, 1 or n_columns), nullptr: all 1; out (n_leaves, n_columns).
template <class T>
void fit_quantile_leaves(const T* values, int64_t n_columns, const float* weight,
                         int64_t weight_columns, const RowSample& sample,
                         const int32_t* leaf_of_row, int32_t n_leaves, const double* level,
                         const Context& context, T* out);

}  // namespace polyleaf
