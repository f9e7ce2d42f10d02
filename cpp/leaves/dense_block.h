// Dense leaves: a vector over all outputs in each leaf, or one number where a tree is for one
// output.
#pragma once
#include <cstdint>

#include "base/aligned_buffer.h"
#include "leaves/leaf_block.h"

namespace polyleaf {

extern const LeafKind kDense;

class DenseLeaves final : public LeafBlock {
 public:
  // values (n_leaves, n_columns), copied.
  DenseLeaves(const float* values, int64_t n_leaves, int64_t n_columns);
  // The same in `room` floats of memory that whoever has the block keeps; a line behind it may be
  // read.
  DenseLeaves(const float* values, int64_t n_leaves, int64_t n_columns, float* memory);
  static int64_t room(int64_t n_leaves, int64_t n_columns);

  // Values that are read where they lie.
  static LeafView make_view(const float* values, int64_t n_columns);

 private:
  void keep(const float* values, int64_t n_leaves, int64_t n_columns, float* memory);
  Buffer<float> values_;
};

}  // namespace polyleaf
