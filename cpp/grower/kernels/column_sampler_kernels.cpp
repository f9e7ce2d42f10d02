// Kernels of the column sampler (column_sampler.h).
#include "base/rng.h"
#include "grower/column_sampler.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

void hashes(uint64_t seed, uint64_t node, int64_t n, uint64_t* out) {
  for (int64_t f = 0; f < n; ++f) out[f] = hash(seed, node, static_cast<uint64_t>(f));
}

int64_t count_below(const uint64_t* hashes, const uint8_t* allowed, int64_t n, uint64_t limit) {
  int64_t below = 0;
  for (int64_t f = 0; f < n; ++f) below += (hashes[f] < limit) & (allowed[f] != 0);
  return below;
}

void keep_below(const uint64_t* hashes, int64_t n, uint64_t limit, uint8_t* allowed) {
  for (int64_t f = 0; f < n; ++f) allowed[f] &= static_cast<uint8_t>(hashes[f] < limit);
}

}  // namespace

const ColumnSamplerKernels column_sampler_kernels = {hashes, count_below, keep_below};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
