// Sums of products over rows, float64 in one order: rows are cut into blocks of `kSumBlock`, which the caller
// adds in order; in a block eight lanes take the rows in turn and fold.
#pragma once
#include <cstdint>

#include "base/isa.h"

namespace polyleaf {

constexpr int64_t kSumBlock = 4096;

struct DotKernels {
  // Sum of a * b over n <= kSumBlock rows.
  double (*dot)(const double* a, const double* b, int64_t n);
};
POLYLEAF_DECLARE_KERNELS(DotKernels, dot_kernels)

}  // namespace polyleaf
