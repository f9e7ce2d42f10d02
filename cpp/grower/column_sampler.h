// Which of its features a node sees, where it sees a fraction of them: those of smallest hash of
// (seed, node, feature), so that no order of work can change a draw.
//
// Owns: that draw. Must not know: features' codes, which of them the tree may use.
#pragma once
#include <cstdint>
#include <vector>

#include "base/isa.h"

namespace polyleaf {

struct ColumnSamplerKernels {
  void (*hashes)(uint64_t seed, uint64_t node, int64_t n, uint64_t* out);
  // How many hashes of features that are allowed are below the limit.
  int64_t (*count_below)(const uint64_t* hashes, const uint8_t* allowed, int64_t n, uint64_t limit);
  // Clears the flags of the others.
  void (*keep_below)(const uint64_t* hashes, int64_t n, uint64_t limit, uint8_t* allowed);
};
POLYLEAF_DECLARE_KERNELS(ColumnSamplerKernels, column_sampler_kernels)

// Clears the flags of all but ceil(fraction * m) of the m features that are allowed.
void sample_columns(uint64_t seed, int32_t node, double fraction, std::vector<uint8_t>& allowed);

}  // namespace polyleaf
