// Kernel that adds linear leaves to raw scores.
#pragma once
#include <cstdint>

#include "base/isa.h"
#include "leaves/leaf_kind.h"

namespace polyleaf {

struct LinearBlockKernels {
  AddLeaves add;
};

POLYLEAF_DECLARE_KERNELS(LinearBlockKernels, linear_block_kernels)

}  // namespace polyleaf
