// Dense leaves: a vector over all outputs per leaf, or one number for a single-output tree.
#pragma once
#include <cstdint>

#include "base/aligned_buffer.h"
#include "leaves/leaf_block.h"

namespace polyleaf {

extern const LeafKind kDense;

class DenseLeaves final : public LeafBlock {
 public:
  // values (n_leaves, n_columns) are copied.
  DenseLeaves(const float* values, int64_t n_leaves, int64_t n_columns);
  // Copy the values into caller-owned memory of `room` floats; one cache line behind it may be
  // read.
  DenseLeaves(const float* values, int64_t n_leaves, int64_t n_columns, float* memory);
  static int64_t room(int64_t n_leaves, int64_t n_columns);

  // Return a view of values that are not copied.
  static LeafView make_view(const float* values, int64_t n_columns);

 private:
  void keep(const float* values, int64_t n_leaves, int64_t n_columns, float* memory);
  Buffer<float> values_;
};

}  // namespace polyleaf
