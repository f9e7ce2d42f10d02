#include <cmath>

#include "leaves/kernels/leaf_block_kernels.h"
#include "leaves/leaf_block.h"
#include "leaves/leaf_kinds.h"
#include "leaves/sparse_accumulator.h"

namespace polyleaf {
namespace {

AddLeaves adder() {
  return POLYLEAF_SELECT(linear_block_kernels).add;
}

// Used for trees that list their outputs: sparse sums contain no other trees without entries.
void accumulate(const LeafTarget* trees, int32_t n_trees, const uint32_t* leaves, RowFeatures row,
                SparseAccumulator& sums) {
  const AddLeaves add = adder();
  std::vector<float> values;
  for (int32_t t = 0; t < n_trees; ++t) {
    const int32_t n = trees[t].leaves->n_columns;
    values.assign(n, 0.0f);
    add(*trees[t].leaves, leaves + t, 1, row, values.data(), n);
    for (int32_t j = 0; j < n; ++j) sums.add(trees[t].outputs[j], values[j]);
  }
}

LeafFunction function(const LeafView& leaves, int64_t leaf) {
  const int64_t at = leaf * leaves.stride, begin = leaves.begin[leaf];
  return {.values = leaves.values + at,
          .n_values = leaves.n_columns,
          .lists_outputs = false,
          .outputs = nullptr,
          .lower = leaves.lower + at,
          .upper = leaves.upper + at,
          .regressors = leaves.index + begin,
          .centre = leaves.centre + begin,
          .weights = leaves.weights + begin * leaves.stride,
          .n_regressors = leaves.begin[leaf + 1] - begin,
          .stride = leaves.stride};
}

}  // namespace

const LeafKind kLinear{.name = "linear",
                       .lists_outputs = false,
                       .reads_features = true,
                       .adder = adder,
                       .add_trees = nullptr,
                       .accumulate = accumulate,
                       .function = function};

LinearLeaves::LinearLeaves(const LinearArrays& a) {
  check_sizes(a.n_leaves, a.n_columns);
  max_entries_ = check_entries(a.begin, a.n_leaves, a.features, a.n_entries, INT32_MAX, "feature");
  check_finite(a.weights, a.n_entries * a.n_columns, "weights");
  check_finite(a.centre, a.n_entries, "centre");
  check_finite(a.intercept, a.n_leaves * a.n_columns, "intercept");
  for (int64_t i = 0; i < a.n_leaves * a.n_columns; ++i)
    if (!(a.lower[i] <= a.upper[i]) || a.lower[i] == INFINITY || a.upper[i] == -INFINITY)
      reject_leaves("lower must not be above upper, and only lower may be -inf, only upper +inf");
  regressors_.assign(a.features, a.features + a.n_entries);
  std::sort(regressors_.begin(), regressors_.end());
  regressors_.erase(std::unique(regressors_.begin(), regressors_.end()), regressors_.end());
  n_leaves_ = static_cast<int32_t>(a.n_leaves);
  view_.kind = &kLinear;
  view_.n_columns = static_cast<int32_t>(a.n_columns);
  view_.stride = padded_columns(a.n_columns);
  view_.begin = keep(begin_, a.begin, a.n_leaves + 1);
  view_.index = keep(index_, a.features, a.n_entries);
  view_.centre = keep(centre_, a.centre, a.n_entries);
  view_.weights = keep_vectors(weights_, a.weights, a.n_entries, a.n_columns, view_.stride);
  view_.values = keep_vectors(intercept_, a.intercept, a.n_leaves, a.n_columns, view_.stride);
  view_.lower = keep_vectors(lower_, a.lower, a.n_leaves, a.n_columns, view_.stride);
  view_.upper = keep_vectors(upper_, a.upper, a.n_leaves, a.n_columns, view_.stride);
}

}  // namespace polyleaf
