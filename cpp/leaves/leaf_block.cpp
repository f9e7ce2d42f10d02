#include "leaves/leaf_block.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>
#include <string>

#include "base/check.h"
#include "base/parallel.h"

namespace polyleaf {

namespace {

std::string describe_leaf(int64_t leaf, const std::string& what) {
  return "leaf " + std::to_string(leaf) + " " + what;
}

}  // namespace

void reject_leaves(const std::string& what) {
  throw std::invalid_argument("The leaves are not valid: " + what + ".");
}

void check_sizes(int64_t n_leaves, int64_t n_columns) {
  if (n_leaves < 1 || n_leaves > INT32_MAX)
    reject_leaves("there are " + std::to_string(n_leaves) + " of them");
  if (n_columns < 1 || n_columns > INT32_MAX)
    reject_leaves("they are for " + std::to_string(n_columns) + " outputs");
}

void check_finite(std::span<const float> values, const char* name) {
  for (float value : values)
    if (!std::isfinite(value))
      reject_leaves(std::string(name) + " holds a number that is not finite");
}

int32_t check_entries(std::span<const int64_t> begin, std::span<const int32_t> index, int64_t limit,
                      const char* what) {
  const auto n_leaves = static_cast<int64_t>(begin.size()) - 1,
             n_entries = static_cast<int64_t>(index.size());
  if (begin[0] != 0 || begin[n_leaves] != n_entries)
    reject_leaves("indptr must run from 0 to the number of entries, " + std::to_string(n_entries));
  for (int64_t leaf = 0; leaf < n_leaves; ++leaf)
    if (begin[leaf] > begin[leaf + 1])
      reject_leaves(describe_leaf(leaf, "ends before it begins: indptr must ascend"));
  int64_t most = 0;
  for (int64_t leaf = 0; leaf < n_leaves; ++leaf) {
    most = std::max(most, begin[leaf + 1] - begin[leaf]);
    for (int64_t e = begin[leaf]; e < begin[leaf + 1]; ++e) {
      if (index[e] < 0 || index[e] >= limit)
        reject_leaves(describe_leaf(leaf, std::string("has the ") + what + " " +
                                              std::to_string(index[e]) + ", outside 0 .. " +
                                              std::to_string(limit - 1)));
      if (e > begin[leaf] && index[e - 1] >= index[e])
        reject_leaves(
            describe_leaf(leaf, std::string("does not have its ") + what + "s in ascending order"));
    }
  }
  return static_cast<int32_t>(most);  // at most 2^32 distinct 32-bit numbers
}

void pad_vectors(MatrixView<const float> from, int64_t stride, float* to) {
  POLYLEAF_DCHECK(stride >= from.n_columns);
  for (int64_t i = 0; i < from.n_rows; ++i) {
    float* rest = std::copy_n(from.row(i), from.n_columns, to + i * stride);
    std::fill_n(rest, stride - from.n_columns, 0.0f);
  }
}

const float* keep_vectors(Buffer<float>& buffer, MatrixView<const float> from, int64_t stride) {
  buffer.reserve(static_cast<size_t>(from.n_rows * stride));
  pad_vectors(from, stride, buffer.data());
  return buffer.data();
}

int64_t padded_columns(int64_t n_columns) {
  for (int64_t width : {1, 2, 4, 8})
    if (n_columns <= width) return width;
  return (n_columns + 15) / 16 * 16;
}

namespace {

constexpr int64_t kBlock = 16384;
constexpr int64_t kListedRows = 64;  // rows whose vectors are added before they are scattered

}  // namespace

void check_leaf_ids(std::span<const int32_t> leaf_of_row, int32_t n_leaves,
                    const Context& context) {
  const auto n = static_cast<int64_t>(leaf_of_row.size());
  std::atomic<bool> bad{false};
  parallel_for(context, Block::count(n, kBlock), [&](int64_t task, int) {
    const Block rows(n, kBlock, task);
    int32_t signs = 0;  // negative if an id is, or exceeds the last
    for (int64_t i = rows.begin; i < rows.end; ++i)
      signs |= leaf_of_row[i] | (n_leaves - 1 - leaf_of_row[i]);
    if (signs < 0) bad = true;
  });
  if (bad) throw std::invalid_argument("A leaf id is out of range.");
}

void check_features(const FeatureMatrix& features, int32_t n_features, int64_t n_rows) {
  if (n_features == 0) return;
  if (features.data == nullptr)
    throw std::invalid_argument(
        "Linear leaves read the raw features; pass them as `features`, float32 (n_features, "
        "n_rows).");
  if (features.n_features < n_features || features.n_rows != n_rows)
    throw std::invalid_argument("`features` has shape (" + std::to_string(features.n_features) +
                                ", " + std::to_string(features.n_rows) +
                                "), but the linear leaves read " + std::to_string(n_features) +
                                " features of " + std::to_string(n_rows) + " rows.");
}

void check_outputs(const LeafView& leaves, int32_t n_leaves, const OutputList& outputs,
                   int32_t n_outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] < 0 || outputs[i] >= n_outputs)
      throw std::invalid_argument("The tree is for output " + std::to_string(outputs[i]) +
                                  ", but there are " + std::to_string(n_outputs) + " outputs.");
    if (i > 0 && outputs[i] <= outputs[i - 1])
      throw std::invalid_argument("The outputs of a tree must ascend, but " +
                                  std::to_string(outputs[i]) + " follows " +
                                  std::to_string(outputs[i - 1]) + ".");
  }
  const bool is_sparse = leaves.kind->lists_outputs;
  const auto needed =
      outputs.empty() || is_sparse ? n_outputs : static_cast<int32_t>(outputs.size());
  if (leaves.n_columns != needed)
    throw std::invalid_argument("The leaves are for " + std::to_string(leaves.n_columns) +
                                " outputs where " + std::to_string(needed) + " are needed.");
  if (!is_sparse || outputs.empty()) return;
  for (int64_t e = 0; e < leaves.begin[n_leaves]; ++e)
    if (!std::binary_search(outputs.begin(), outputs.end(), leaves.index[e]))
      throw std::invalid_argument("A leaf holds output " + std::to_string(leaves.index[e]) +
                                  ", which its tree is not for.");
}

void add_listed_outputs(const LeafTarget& tree, const uint32_t* leaf_of_row, int64_t n,
                        RowFeatures features, float* scores, int64_t row_step,
                        int64_t output_step) {
  const LeafView& view = *tree.leaves;
  const AddLeaves add = view.kind->adder();
  const int64_t m = view.n_columns;
  if (m == 1)
    return add(view, leaf_of_row, n, features, scores + tree.outputs[0] * output_step, row_step);
  // Columns that are not adjacent: vectors of some rows are added up, then scattered.
  std::vector<float> vectors(static_cast<size_t>(kListedRows * m));
  for (int64_t first = 0; first < n; first += kListedRows) {
    const int64_t n_rows = std::min(kListedRows, n - first);
    std::fill(vectors.begin(), vectors.end(), 0.0f);
    const float* data = features.data != nullptr ? features.data + first : nullptr;
    add(view, leaf_of_row + first, n_rows, {data, features.step}, vectors.data(), m);
    for (int64_t j = 0; j < m; ++j) {
      float* to = scores + first * row_step + tree.outputs[j] * output_step;
      for (int64_t r = 0; r < n_rows; ++r) to[r * row_step] += vectors[r * m + j];
    }
  }
}

void add_leaf_values(MatrixView<float> raw, const OutputList& outputs, const int32_t* leaf_of_row,
                     const LeafView& view, const FeatureMatrix& features, const Context& context) {
  const uint32_t* leaves = reinterpret_cast<const uint32_t*>(leaf_of_row);
  POLYLEAF_DCHECK(outputs.empty() || view.kind->lists_outputs ||
                  view.n_columns == static_cast<int32_t>(outputs.size()));
  POLYLEAF_DCHECK(!view.kind->reads_features || features.data == nullptr ||
                  features.n_rows == raw.n_rows);
  const AddLeaves add = view.kind->adder();
  parallel_for(context, Block::count(raw.n_rows, kBlock), [&](int64_t task, int) {
    const Block rows(raw.n_rows, kBlock, task);
    const int64_t n_rows = rows.end - rows.begin;
    const RowFeatures from = features.from_row(rows.begin);
    float* to = raw.row(rows.begin);
    if (outputs.empty() || view.kind->lists_outputs)
      add(view, leaves + rows.begin, n_rows, from, to, raw.n_columns);
    else
      add_listed_outputs({&view, outputs.data()}, leaves + rows.begin, n_rows, from, to,
                         raw.n_columns, 1);
  });
}

}  // namespace polyleaf
