// Sparse leaves: some outputs and their values; the other outputs get nothing.
#pragma once
#include <cstdint>

#include "base/aligned_buffer.h"
#include "leaves/leaf_block.h"

namespace polyleaf {

extern const LeafKind kTopk;

class TopkLeaves final : public LeafBlock {
 public:
  // Entries of leaf l: begin[l] .. begin[l + 1] - 1; outputs ascend within a leaf. A value -0
  // becomes +0. Copies; throws std::invalid_argument, in a sentence, for what does not fit
  // together.
  TopkLeaves(const int64_t* begin, int64_t n_leaves, const int32_t* outputs, const float* values,
             int64_t n_entries, int64_t n_outputs);

 private:
  Buffer<int64_t> begin_;
  Buffer<int32_t> outputs_;
  Buffer<float> values_;
};

}  // namespace polyleaf
