// Linear leaves: a clipped linear function of a few raw features per output.
#pragma once
#include <cstdint>

#include "base/aligned_buffer.h"
#include "leaves/leaf_block.h"

namespace polyleaf {

extern const LeafKind kLinear;

// Value of column k for a row in leaf l: clip(intercept[l][k] + sum over the leaf's entries e of
// weights[e][k] * (x[features[e]] - centre[e]), lower[l][k], upper[l][k]), where a missing x adds
// nothing.
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
  // Copies the arrays; throws std::invalid_argument if they are inconsistent.
  explicit LinearLeaves(const LinearArrays& arrays);

 private:
  Buffer<int64_t> begin_;
  Buffer<int32_t> index_;
  Buffer<float> centre_, weights_, intercept_, lower_, upper_;
};

}  // namespace polyleaf
