// Quantile leaf values, which minimise absolute and pinball loss in a leaf, and quantiles of all
// rows for base scores.
//
// A single process selects or sorts; in distributed training the bits of a quantile are found from
// the most significant on, by sums of integer weights.
#pragma once
#include <cstdint>
#include <span>

#include "base/context.h"
#include "base/matrix_view.h"
#include "data/sample.h"

namespace polyleaf {

// Find for each leaf and column the smallest value v such that rows with value <= v hold at least
// `level` (n_columns) of the leaf's weight; 0 if a leaf has no weight. weight: 1 column or that of
// values; none: all 1. leaf_of_row nullptr: one leaf. out (n_leaves, n_columns).
template <class T>
void fit_quantile_leaves(MatrixView<const T> values, MatrixView<const float> weight,
                         const RowSample& sample, const int32_t* leaf_of_row,
                         std::span<const double> level, const Context& context, MatrixView<T> out);

}  // namespace polyleaf
