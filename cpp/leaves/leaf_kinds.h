// The kinds of leaf blocks: dense (a value for every output), sparse (values for some outputs) and
// linear (a clipped linear function of a few raw features per output).
#pragma once
#include <cstdint>

#include "base/aligned_buffer.h"
#include "leaves/leaf_block.h"

namespace polyleaf {

extern const LeafKind kDense;

// A vector over all outputs per leaf, or one number for a single-output tree.
class DenseLeaves final : public LeafBlock {
 public:
  // values (n_leaves, n_columns) are copied.
  explicit DenseLeaves(MatrixView<const float> values);
  // Copy the values into caller-owned memory of `room` floats; one cache line behind it may be
  // read.
  DenseLeaves(MatrixView<const float> values, float* memory);
  static int64_t room(int64_t n_leaves, int64_t n_columns);

  // Return a view of values that are not copied.
  static LeafView make_view(MatrixView<const float> values);

 private:
  void keep(MatrixView<const float> values, float* memory);
  Buffer<float> values_;
};

extern const LeafKind kTopk;

// Values for some outputs; the others get nothing.
class TopkLeaves final : public LeafBlock {
 public:
  // Entries of leaf l are begin[l] .. begin[l + 1] - 1; outputs ascend within a leaf; -0 becomes
  // +0. Copies the arrays; throws std::invalid_argument if they are inconsistent.
  TopkLeaves(std::span<const int64_t> begin, std::span<const int32_t> outputs,
             std::span<const float> values, int64_t n_outputs);

 private:
  Buffer<int64_t> begin_;
  Buffer<int32_t> outputs_;
  Buffer<float> values_;
};

extern const LeafKind kLinear;

// Value of column k for a row in leaf l: clip(intercept[l][k] + sum over the leaf's entries e of
// weights[e][k] * (x[features[e]] - centre[e]), lower[l][k], upper[l][k]), where a missing x adds
// nothing.
struct LinearArrays {
  std::span<const int64_t> begin;     // n_leaves + 1
  std::span<const int32_t> features;  // ascending within a leaf
  MatrixView<const float> weights;    // (n_entries, n_columns)
  std::span<const float> centre;
  MatrixView<const float> intercept, lower, upper;  // (n_leaves, n_columns)
};

class LinearLeaves final : public LeafBlock {
 public:
  // Copies the arrays; throws std::invalid_argument if they are inconsistent.
  explicit LinearLeaves(const LinearArrays& arrays);

 private:
  Buffer<int64_t> begin_;
  Buffer<int32_t> index_;
  Buffer<float> centre_, weights_, intercept_, lower_, upper_;
};

}  // namespace polyleaf
