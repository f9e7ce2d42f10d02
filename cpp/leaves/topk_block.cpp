#include "leaves/leaf_block.h"
#include "leaves/leaf_kinds.h"
#include "leaves/sparse_accumulator.h"

namespace polyleaf {
namespace {

// number of trees whose leaves are prefetched ahead
constexpr int32_t kPrefetchTrees = 6;

void add(const LeafView& leaves, const uint32_t* leaf_of_row, int64_t n, RowFeatures, float* scores,
         int64_t row_step) {
  for (int64_t r = 0; r < n; ++r) {
    float* out = scores + r * row_step;
    for (int64_t e = leaves.begin[leaf_of_row[r]], end = leaves.begin[leaf_of_row[r] + 1]; e < end;
         ++e)
      out[leaves.index[e]] += leaves.values[e];
  }
}

void prefetch(const LeafView& view, uint32_t leaf) {
  const int64_t begin = view.begin[leaf], end = view.begin[leaf + 1];
  for (int64_t e = begin; e < end; e += 16) {
    __builtin_prefetch(view.index + e);
    __builtin_prefetch(view.values + e);
  }
}

void accumulate(const LeafTarget* trees, int32_t n_trees, const uint32_t* leaves, RowFeatures,
                SparseAccumulator& sums) {
  for (int32_t t = 0; t < n_trees; ++t) {
    if (t + kPrefetchTrees < n_trees)
      prefetch(*trees[t + kPrefetchTrees].leaves, leaves[t + kPrefetchTrees]);
    const LeafView& view = *trees[t].leaves;
    const int64_t begin = view.begin[leaves[t]], end = view.begin[leaves[t] + 1];
    sums.add(view.index + begin, view.values + begin, end - begin);
  }
}

AddLeaves adder() {
  return add;
}

LeafFunction function(const LeafView& leaves, int64_t leaf) {
  const int64_t begin = leaves.begin[leaf];
  return {leaves.values + begin, leaves.begin[leaf + 1] - begin, true, leaves.index + begin};
}

}  // namespace

const LeafKind kTopk{.name = "sparse",
                     .lists_outputs = true,
                     .reads_features = false,
                     .adder = adder,
                     .add_trees = nullptr,
                     .accumulate = accumulate,
                     .function = function};

TopkLeaves::TopkLeaves(std::span<const int64_t> begin, std::span<const int32_t> outputs,
                       std::span<const float> values, int64_t n_outputs) {
  POLYLEAF_DCHECK(!begin.empty() && outputs.size() == values.size());
  check_sizes(static_cast<int64_t>(begin.size()) - 1, n_outputs);
  max_entries_ = check_entries(begin, outputs, n_outputs, "output");
  check_finite(values, "values");
  n_leaves_ = static_cast<int32_t>(begin.size()) - 1;
  view_.kind = &kTopk;
  view_.n_columns = static_cast<int32_t>(n_outputs);
  view_.begin = keep(begin_, begin);
  view_.index = keep(outputs_, outputs);
  view_.values = keep(values_, values);
  for (size_t e = 0; e < values.size(); ++e) values_[e] += 0.0f;
}

}  // namespace polyleaf
