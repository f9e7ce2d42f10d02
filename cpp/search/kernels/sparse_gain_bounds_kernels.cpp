// Which features have to be looked at (cell_bounds.h).
#include "base/kernels/lanes.h"
#include "search/sparse_gain_bounds.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

int64_t reach(const CellBoundColumns& c, int64_t first, int64_t last, const CellBoundLimit& limit,
              int32_t* out) {
  constexpr int kBlock = 64;
  int64_t n = 0;
  for (int64_t begin = first; begin < last; begin += kBlock) {
    const int m = last - begin < kBlock ? static_cast<int>(last - begin) : kBlock;
    alignas(64) uint8_t flags[kBlock] = {};
    for (int i = 0; i < m; ++i) {
      const float norm = limit.norm + c.norm[begin + i], rest = limit.least - c.weight[begin + i];
      const float most = (c.own[begin + i] + norm * norm / rest) * limit.margin;
      flags[i] = static_cast<uint8_t>(!(most < limit.floor) | !(rest >= limit.least_rest));
    }
    for (int i = 0; i < m; i += 8) {
      if (load<uint64_t>(flags + i) == 0) continue;
      for (int j = i; j < i + 8; ++j)
        if (flags[j] != 0) out[n++] = static_cast<int32_t>(begin + j);
    }
  }
  return n;
}

}  // namespace

const CellBoundKernels cell_bound_kernels = {reach};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
