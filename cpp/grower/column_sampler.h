// Sample the features of a node (colsample_bynode): keep those with the smallest hash of (seed,
// node, feature), so that the result does not depend on the order of work.
#pragma once
#include <cstdint>
#include <vector>

#include "base/isa.h"

namespace polyleaf {

struct ColumnSamplerKernels {
  void (*hashes)(uint64_t seed, uint64_t node, int64_t n, uint64_t* out);
  // Count allowed features whose hash is below the limit.
  int64_t (*count_below)(const uint64_t* hashes, const uint8_t* allowed, int64_t n, uint64_t limit);
  // Clear the flags of features whose hash is not below the limit.
  void (*keep_below)(const uint64_t* hashes, int64_t n, uint64_t limit, uint8_t* allowed);
};
POLYLEAF_DECLARE_KERNELS(ColumnSamplerKernels, column_sampler_kernels)

// Clear the flags of all but ceil(fraction * m) of the m allowed features.
void sample_columns(uint64_t seed, int32_t node, double fraction, std::vector<uint8_t>& allowed);

}  // namespace polyleaf
