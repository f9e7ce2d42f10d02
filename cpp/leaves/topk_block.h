// Sparse leaves: values for some outputs; the others get nothing.
#pragma once
#include <cstdint>

#include "base/aligned_buffer.h"
#include "leaves/leaf_block.h"

namespace polyleaf {

extern const LeafKind kTopk;

class TopkLeaves final : public LeafBlock {
 public:
  // Entries of leaf l are begin[l] .. begin[l + 1] - 1; outputs ascend within a leaf; -0 becomes
  // +0. Copies the arrays; throws std::invalid_argument if they are inconsistent.
  TopkLeaves(const int64_t* begin, int64_t n_leaves, const int32_t* outputs, const float* values,
             int64_t n_entries, int64_t n_outputs);

 private:
  Buffer<int64_t> begin_;
  Buffer<int32_t> outputs_;
  Buffer<float> values_;
};

}  // namespace polyleaf
