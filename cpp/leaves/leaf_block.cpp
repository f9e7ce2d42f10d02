#include "leaf_block.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>
#include <string>

#include "../parallel.h"

namespace polyleaf {
namespace {

constexpr int64_t kBlock = 16384;

[[noreturn]] void reject(const std::string& what) {
  throw std::invalid_argument("The leaves are not valid: " + what + ".");
}

std::string of_leaf(int64_t leaf, const std::string& what) {
  return "leaf " + std::to_string(leaf) + " " + what;
}

void check_sizes(int64_t n_leaves, int64_t n_columns) {
  if (n_leaves < 1 || n_leaves > INT32_MAX) reject("there are " + std::to_string(n_leaves) + " of them");
  if (n_columns < 1 || n_columns > INT32_MAX)
    reject("they are for " + std::to_string(n_columns) + " outputs");
}

void check_finite(const float* values, int64_t n, const char* name) {
  for (int64_t i = 0; i < n; ++i)
    if (!std::isfinite(values[i])) reject(std::string(name) + " holds a number that is not finite");
}

// Entries of all leaves: numbers in 0 .. limit - 1, ascending within a leaf. Returns how many the largest
// has.
int32_t check_entries(const int64_t* begin, int64_t n_leaves, const int32_t* index, int64_t n_entries,
                      int64_t limit, const char* what) {
  if (begin[0] != 0 || begin[n_leaves] != n_entries)
    reject("indptr must run from 0 to the number of entries, " + std::to_string(n_entries));
  for (int64_t leaf = 0; leaf < n_leaves; ++leaf)
    if (begin[leaf] > begin[leaf + 1]) reject(of_leaf(leaf, "ends before it begins: indptr must ascend"));
  int64_t most = 0;
  for (int64_t leaf = 0; leaf < n_leaves; ++leaf) {
    most = std::max(most, begin[leaf + 1] - begin[leaf]);
    for (int64_t e = begin[leaf]; e < begin[leaf + 1]; ++e) {
      if (index[e] < 0 || index[e] >= limit)
        reject(of_leaf(leaf, std::string("has the ") + what + " " + std::to_string(index[e]) +
                                 ", outside 0 .. " + std::to_string(limit - 1)));
      if (e > begin[leaf] && index[e - 1] >= index[e])
        reject(of_leaf(leaf, std::string("does not have its ") + what + "s in ascending order"));
    }
  }
  return static_cast<int32_t>(most);  // distinct 32-bit numbers
}

template <class T>
const T* keep(Buffer<T>& buffer, const T* from, int64_t n) {
  buffer.reserve(static_cast<size_t>(n));
  std::copy_n(from, n, buffer.data());
  return buffer.data();
}

// n vectors of n_columns numbers, padded with 0.
const float* keep_vectors(Buffer<float>& buffer, const float* from, int64_t n, int64_t n_columns,
                          int64_t stride) {
  buffer.reserve(static_cast<size_t>(n * stride));
  for (int64_t i = 0; i < n; ++i) {
    float* to = std::copy_n(from + i * n_columns, n_columns, buffer.data() + i * stride);
    std::fill_n(to, stride - n_columns, 0.0f);
  }
  return buffer.data();
}

}  // namespace

int64_t padded_columns(int64_t n_columns) {
  for (int64_t width : {1, 2, 4, 8})
    if (n_columns <= width) return width;
  return (n_columns + 15) / 16 * 16;
}

DenseLeaves::DenseLeaves(const float* values, int64_t n_leaves, int64_t n_columns) {
  check_sizes(n_leaves, n_columns);
  n_leaves_ = static_cast<int32_t>(n_leaves);
  view_.kind = LeafKind::dense;
  view_.n_columns = static_cast<int32_t>(n_columns);
  view_.stride = padded_columns(n_columns);
  view_.values = keep_vectors(values_, values, n_leaves, n_columns, view_.stride);
}

SparseLeaves::SparseLeaves(const int64_t* begin, int64_t n_leaves, const int32_t* outputs,
                           const float* values, int64_t n_entries, int64_t n_outputs) {
  check_sizes(n_leaves, n_outputs);
  most_entries_ = check_entries(begin, n_leaves, outputs, n_entries, n_outputs, "output");
  check_finite(values, n_entries, "values");
  n_leaves_ = static_cast<int32_t>(n_leaves);
  view_.kind = LeafKind::sparse;
  view_.n_columns = static_cast<int32_t>(n_outputs);
  view_.begin = keep(begin_, begin, n_leaves + 1);
  view_.index = keep(outputs_, outputs, n_entries);
  view_.values = keep(values_, values, n_entries);
  for (int64_t e = 0; e < n_entries; ++e) values_[e] += 0.0f;
}

LinearLeaves::LinearLeaves(const LinearArrays& a) {
  check_sizes(a.n_leaves, a.n_columns);
  most_entries_ = check_entries(a.begin, a.n_leaves, a.features, a.n_entries, INT32_MAX, "feature");
  check_finite(a.weights, a.n_entries * a.n_columns, "weights");
  check_finite(a.centre, a.n_entries, "centre");
  check_finite(a.intercept, a.n_leaves * a.n_columns, "intercept");
  for (int64_t i = 0; i < a.n_leaves * a.n_columns; ++i)
    if (!(a.lower[i] <= a.upper[i]) || a.lower[i] == INFINITY || a.upper[i] == -INFINITY)
      reject("lower must not be above upper, and only lower may be -inf, only upper +inf");
  regressors_.assign(a.features, a.features + a.n_entries);
  std::sort(regressors_.begin(), regressors_.end());
  regressors_.erase(std::unique(regressors_.begin(), regressors_.end()), regressors_.end());
  n_features_ = regressors_.empty() ? 0 : regressors_.back() + 1;
  n_leaves_ = static_cast<int32_t>(a.n_leaves);
  view_.kind = LeafKind::linear;
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

void check_leaf_ids(const int32_t* leaf_of_row, int64_t n, int32_t n_leaves, int n_threads) {
  std::atomic<bool> bad{false};
  parallel_for(n_threads, Block::count(n, kBlock), [&](int64_t task, int) {
    const Block rows(n, kBlock, task);
    uint32_t largest = 0;  // a negative id is a large unsigned one
    for (int64_t i = rows.begin; i < rows.end; ++i)
      largest = std::max(largest, static_cast<uint32_t>(leaf_of_row[i]));
    if (largest >= static_cast<uint32_t>(n_leaves)) bad = true;
  });
  if (bad) throw std::invalid_argument("A leaf id is out of range.");
}

void check_features(const FeatureMatrix& features, int32_t n_features, int64_t n_rows) {
  if (n_features == 0) return;
  if (features.data == nullptr)
    throw std::invalid_argument(
        "Linear leaves read the raw features; pass them as `features`, float32 (n_features, n_rows).");
  if (features.n_features < n_features || features.n_rows != n_rows)
    throw std::invalid_argument("`features` has shape (" + std::to_string(features.n_features) + ", " +
                                std::to_string(features.n_rows) + "), but the linear leaves read " +
                                std::to_string(n_features) + " features of " + std::to_string(n_rows) +
                                " rows.");
}

void add_leaf_values(float* raw, int64_t n, int64_t n_outputs, int32_t output, const int32_t* leaf_of_row,
                     const LeafView& view, const FeatureMatrix& features, int n_threads) {
  const LeafBlockKernels& kernels = POLYLEAF_SELECT(leaf_block_kernels);
  const uint32_t* leaves = reinterpret_cast<const uint32_t*>(leaf_of_row);
  raw += std::max(output, 0);
  parallel_for(n_threads, Block::count(n, kBlock), [&](int64_t task, int) {
    const Block rows(n, kBlock, task);
    const int64_t n_rows = rows.end - rows.begin;
    float* scores = raw + rows.begin * n_outputs;
    if (view.kind == LeafKind::dense)
      kernels.add_dense(view, leaves + rows.begin, n_rows, scores, n_outputs);
    else if (view.kind == LeafKind::sparse)
      kernels.add_sparse(view, leaves + rows.begin, n_rows, scores, n_outputs);
    else
      kernels.add_linear(view, leaves + rows.begin, n_rows, features.from_row(rows.begin), features.n_rows,
                         scores, n_outputs);
  });
}

}  // namespace polyleaf
