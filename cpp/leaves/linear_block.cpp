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
  const auto n_leaves = static_cast<int64_t>(a.begin.size()) - 1;
  for ([[maybe_unused]] const auto& matrix : {a.intercept, a.lower, a.upper})
    POLYLEAF_DCHECK(matrix.n_rows == n_leaves && matrix.n_columns == a.weights.n_columns);
  POLYLEAF_DCHECK(a.centre.size() == a.features.size());
  POLYLEAF_DCHECK(a.weights.n_rows == static_cast<int64_t>(a.features.size()));
  check_sizes(n_leaves, a.intercept.n_columns);
  max_entries_ = check_entries(a.begin, a.features, INT32_MAX, "feature");
  check_finite({a.weights.data, static_cast<size_t>(a.weights.size())}, "weights");
  check_finite(a.centre, "centre");
  check_finite({a.intercept.data, static_cast<size_t>(a.intercept.size())}, "intercept");
  for (int64_t i = 0; i < a.lower.size(); ++i) {
    const float lower = a.lower.data[i], upper = a.upper.data[i];
    if (!(lower <= upper) || lower == INFINITY || upper == -INFINITY)
      reject_leaves("lower must not be above upper, and only lower may be -inf, only upper +inf");
  }
  regressors_.assign(a.features.begin(), a.features.end());
  std::sort(regressors_.begin(), regressors_.end());
  regressors_.erase(std::unique(regressors_.begin(), regressors_.end()), regressors_.end());
  n_leaves_ = static_cast<int32_t>(n_leaves);
  view_.kind = &kLinear;
  view_.n_columns = static_cast<int32_t>(a.intercept.n_columns);
  view_.stride = padded_columns(a.intercept.n_columns);
  view_.begin = keep(begin_, a.begin);
  view_.index = keep(index_, a.features);
  view_.centre = keep(centre_, a.centre);
  view_.weights = keep_vectors(weights_, a.weights, view_.stride);
  view_.values = keep_vectors(intercept_, a.intercept, view_.stride);
  view_.lower = keep_vectors(lower_, a.lower, view_.stride);
  view_.upper = keep_vectors(upper_, a.upper, view_.stride);
}

}  // namespace polyleaf
