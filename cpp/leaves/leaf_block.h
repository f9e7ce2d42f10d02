// The leaf values of one tree: what a leaf adds to the raw scores of its rows. The kinds are dense
// (a vector over outputs), topk (some outputs and their values) and linear (a clipped linear
// function of a few raw features per output).
//
// dense_block.h   a vector over outputs
// topk_block.h  some outputs and their values; the other outputs get nothing
// linear_block.h  a linear function of a few raw features for each output, held within bounds
//
// A block is immutable, so forests, copies and Python share it. Its arrays have been validated;
// kernels use them unchecked.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/context.h"
#include "base/matrix_view.h"
#include "leaves/leaf_kind.h"

namespace polyleaf {

// Helpers that check and copy the arrays of leaf blocks. Errors are std::invalid_argument.

[[noreturn]] void reject_leaves(const std::string& what);

void check_sizes(int64_t n_leaves, int64_t n_columns);
void check_finite(std::span<const float> values, const char* name);

// Check the entries of all leaves, begin[l] .. begin[l + 1] - 1 of leaf l: indices in
// 0 .. limit - 1, ascending within a leaf. Returns the size of the largest leaf. `what`: a noun for
// the indices.
int32_t check_entries(std::span<const int64_t> begin, std::span<const int32_t> index, int64_t limit,
                      const char* what);

template <class T>
const T* keep(Buffer<T>& buffer, std::span<const T> from) {
  buffer.reserve(from.size());
  std::copy(from.begin(), from.end(), buffer.data());
  return buffer.data();
}

// Copy vectors, one per row, and pad them with 0.
void pad_vectors(MatrixView<const float> from, int64_t stride, float* to);
const float* keep_vectors(Buffer<float>& buffer, MatrixView<const float> from, int64_t stride);

// Return the stride of padded vectors that the kernels expect.
int64_t padded_columns(int64_t n_columns);

class LeafBlock {
 public:
  virtual ~LeafBlock() = default;
  LeafBlock(const LeafBlock&) = delete;
  LeafBlock& operator=(const LeafBlock&) = delete;

  const LeafKind& kind() const { return *view_.kind; }
  int32_t n_leaves() const { return n_leaves_; }
  int32_t n_columns() const { return view_.n_columns; }  // number of outputs of a leaf
  int64_t n_entries() const { return view_.begin != nullptr ? view_.begin[n_leaves_] : 0; }
  int32_t max_entries() const { return max_entries_; }  // largest number of entries of a leaf
  const std::vector<int32_t>& regressors() const {
    return regressors_;
  }  // raw features that leaves read, ascending
  int32_t n_features() const { return regressors_.empty() ? 0 : regressors_.back() + 1; }
  const LeafView& view() const { return view_; }

 protected:
  LeafBlock() = default;
  LeafView view_{};
  int32_t n_leaves_ = 0, max_entries_ = 0;
  std::vector<int32_t> regressors_;
};

// Throw unless 0 <= leaf_of_row[i] < n_leaves for all rows.
void check_leaf_ids(std::span<const int32_t> leaf_of_row, int32_t n_leaves, const Context& context);

// Throw unless `features` has at least n_features rows and n_rows columns.
void check_features(const FeatureMatrix& features, int32_t n_features, int64_t n_rows);

// The outputs of a tree, ascending; empty: all.
using OutputList = std::vector<int32_t>;

// Throw unless the outputs ascend below n_outputs and the leaves are for them. Sparse leaves number
// their entries as all outputs.
void check_outputs(const LeafView& leaves, int32_t n_leaves, const OutputList& outputs,
                   int32_t n_outputs);

// Add the leaves of a tree with listed outputs: output k of row r is scores[r * row_step + k *
// output_step].
void add_listed_outputs(const LeafTarget& tree, const uint32_t* leaf_of_row, int64_t n,
                        RowFeatures features, float* scores, int64_t row_step, int64_t output_step);

// Add leaf values to raw scores. View, outputs and leaf ids must have been checked.
void add_leaf_values(MatrixView<float> raw, const OutputList& outputs, const int32_t* leaf_of_row,
                     const LeafView& view, const FeatureMatrix& features, const Context& context);

}  // namespace polyleaf
