// The payloads of one tree's leaves: what a leaf adds to the raw scores of its rows.
//
// dense   a vector over outputs
// sparse  some outputs and their values; the other outputs get nothing
// linear  a linear function of a few raw features for each output, held within bounds
//
// A block never changes once it is made, so forests, copies and Python share it. Its arrays have passed all
// checks: kernels use them without any.
//
// Owns: the kinds, their arrays and the checks of these. Must not know: structure, how leaves are fitted.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "../buffer.h"
#include "../kernels/leaf_block.h"

namespace polyleaf {

// Raw features, feature-major: feature f of row r is data[f * n_rows + r]. NaN is missing. Null: none given.
struct FeatureMatrix {
  const float* data = nullptr;
  int64_t n_features = 0, n_rows = 0;
  const float* from_row(int64_t row) const { return data != nullptr ? data + row : nullptr; }
};

// Floats from one padded vector to the next: what the kernels take.
int64_t padded_columns(int64_t n_columns);

class LeafBlock {
 public:
  virtual ~LeafBlock() = default;
  LeafBlock(const LeafBlock&) = delete;
  LeafBlock& operator=(const LeafBlock&) = delete;

  LeafKind kind() const { return view_.kind; }
  int32_t n_leaves() const { return n_leaves_; }
  int32_t n_columns() const { return view_.n_columns; }  // outputs that a leaf is for
  int64_t n_entries() const { return view_.begin != nullptr ? view_.begin[n_leaves_] : 0; }
  int32_t most_entries() const { return most_entries_; }  // of one leaf
  int32_t n_features() const { return n_features_; }      // read by linear leaves: 1 + the largest
  const LeafView& view() const { return view_; }

 protected:
  LeafBlock() = default;
  LeafView view_{};
  int32_t n_leaves_ = 0, n_features_ = 0, most_entries_ = 0;
};

// The constructors copy, and throw std::invalid_argument, in a sentence, for what does not fit together.
class DenseLeaves final : public LeafBlock {
 public:
  // values (n_leaves, n_columns)
  DenseLeaves(const float* values, int64_t n_leaves, int64_t n_columns);

 private:
  Buffer<float> values_;
};

class SparseLeaves final : public LeafBlock {
 public:
  // Entries of leaf l: begin[l] .. begin[l + 1] - 1; outputs ascend within a leaf. A value -0 becomes +0.
  SparseLeaves(const int64_t* begin, int64_t n_leaves, const int32_t* outputs, const float* values,
               int64_t n_entries, int64_t n_outputs);

 private:
  Buffer<int64_t> begin_;
  Buffer<int32_t> outputs_;
  Buffer<float> values_;
};

// Arrays of linear leaves: of a row in leaf l, column k gets
// clip(intercept[l][k] + sum over the leaf's entries e of weights[e][k] * (x[features[e]] - centre[e]),
// lower[l][k], upper[l][k]), where a missing x adds nothing.
struct LinearArrays {
  const int64_t* begin;
  const int32_t* features;  // ascending within a leaf
  const float* weights;     // (n_entries, n_columns)
  const float* centre;
  const float *intercept, *lower, *upper;  // (n_leaves, n_columns)
  int64_t n_leaves, n_entries, n_columns;
};

class LinearLeaves final : public LeafBlock {
 public:
  explicit LinearLeaves(const LinearArrays& arrays);
  const std::vector<int32_t>& regressors() const { return regressors_; }  // features read, ascending

 private:
  std::vector<int32_t> regressors_;
  Buffer<int64_t> begin_;
  Buffer<int32_t> index_;
  Buffer<float> centre_, weights_, intercept_, lower_, upper_;
};

// Throws unless 0 <= leaf_of_row[i] < n_leaves for all n rows.
void check_leaf_ids(const int32_t* leaf_of_row, int64_t n, int32_t n_leaves, int n_threads);

// Throws unless linear leaves that read n_features features find them, of n_rows rows.
void check_features(const FeatureMatrix& features, int32_t n_features, int64_t n_rows);

// raw (n, n_outputs) gets the payloads of its rows; output >= 0: one-column payloads go to that column. View
// and leaf ids must fit.
void add_leaf_values(float* raw, int64_t n, int64_t n_outputs, int32_t output, const int32_t* leaf_of_row,
                     const LeafView& view, const FeatureMatrix& features, int n_threads);

}  // namespace polyleaf
