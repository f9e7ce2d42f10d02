// Kernels that add leaf values to raw scores.
#pragma once
#include <cstdint>

#include "base/isa.h"
#include "leaves/leaf_kind.h"

namespace polyleaf {

struct DenseBlockKernels {
  AddLeaves add;
  // scores (n_rows, width) += leaf vector of tree 0, then of tree 1, ...; leaf_of_row[t * leaf_step
  // + r]. width: floats of a padded leaf vector (2, 4, 8 or a multiple of 16). n_rows is a multiple
  // of kPadRows.
  void (*add_trees)(const LeafTarget* trees, int n_trees, const uint32_t* leaf_of_row,
                    int64_t leaf_step, int n_rows, int width, float* scores);
};

POLYLEAF_DECLARE_KERNELS(DenseBlockKernels, dense_block_kernels)

struct LinearBlockKernels {
  AddLeaves add;
};

POLYLEAF_DECLARE_KERNELS(LinearBlockKernels, linear_block_kernels)

}  // namespace polyleaf
