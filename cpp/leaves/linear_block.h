// Linear leaves: a linear function of a few raw features for each output, held within bounds.
#pragma once
#include <cstdint>

#include "base/aligned_buffer.h"
#include "leaves/leaf_block.h"

namespace polyleaf {

extern const LeafKind kLinear;

// Of a row in leaf l, column k gets
// clip(intercept[l][k] + sum over the leaf's entries e of weights[e][k] * (x[features[e]] -
// centre[e]), lower[l][k], upper[l][k]), where a missing x adds nothing.
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
  // Copies; throws std::invalid_argument, in a sentence, for what does not fit together.
  explicit LinearLeaves(const LinearArrays& arrays);

 private:
  Buffer<int64_t> begin_;
  Buffer<int32_t> index_;
  Buffer<float> centre_, weights_, intercept_, lower_, upper_;
};

}  // namespace polyleaf
