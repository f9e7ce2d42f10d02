#include "leaves/kernels/leaf_block_kernels.h"
#include "leaves/leaf_block.h"
#include "leaves/leaf_kinds.h"
#include "leaves/sparse_accumulator.h"

namespace polyleaf {
namespace {

AddLeaves adder() {
  return POLYLEAF_SELECT(dense_block_kernels).add;
}

void add_trees(const LeafTarget* trees, int n_trees, const uint32_t* leaf_of_row, int64_t leaf_step,
               int n_padded_rows, int width, float* scores) {
  POLYLEAF_SELECT(dense_block_kernels)
      .add_trees(trees, n_trees, leaf_of_row, leaf_step, n_padded_rows, width, scores);
}

// Used for trees that list their outputs: sparse sums contain no other dense trees.
void accumulate(const LeafTarget* trees, int32_t n_trees, const uint32_t* leaves, RowFeatures,
                SparseAccumulator& sums) {
  for (int32_t t = 0; t < n_trees; ++t) {
    const LeafView& view = *trees[t].leaves;
    const float* values = view.values + leaves[t] * view.stride;
    for (int32_t j = 0; j < view.n_columns; ++j) sums.add(trees[t].outputs[j], values[j]);
  }
}

LeafFunction function(const LeafView& leaves, int64_t leaf) {
  return {leaves.values + leaf * leaves.stride, leaves.n_columns, false, nullptr};
}

}  // namespace

const LeafKind kDense{.name = "dense",
                      .lists_outputs = false,
                      .reads_features = false,
                      .adder = adder,
                      .add_trees = add_trees,
                      .accumulate = accumulate,
                      .function = function};

DenseLeaves::DenseLeaves(MatrixView<const float> values) {
  check_sizes(values.n_rows, values.n_columns);
  values_.reserve(static_cast<size_t>(room(values.n_rows, values.n_columns)));
  keep(values, values_.data());
}

DenseLeaves::DenseLeaves(MatrixView<const float> values, float* memory) {
  check_sizes(values.n_rows, values.n_columns);
  keep(values, memory);
}

int64_t DenseLeaves::room(int64_t n_leaves, int64_t n_columns) {
  return n_leaves * padded_columns(n_columns);
}

void DenseLeaves::keep(MatrixView<const float> values, float* memory) {
  n_leaves_ = static_cast<int32_t>(values.n_rows);
  view_ = make_view({memory, values.n_rows, values.n_columns});
  view_.stride = padded_columns(values.n_columns);
  pad_vectors(values, view_.stride, memory);
}

LeafView DenseLeaves::make_view(MatrixView<const float> values) {
  LeafView view{};
  view.kind = &kDense;
  view.n_columns = static_cast<int32_t>(values.n_columns);
  view.stride = values.n_columns;
  view.values = values.data;
  return view;
}

}  // namespace polyleaf
