// Kernels of binning, compiled once per instruction set: the search for a value's bin, and the search for
// infinities.
//
// Owns: the layout of a feature's search table. Must not know: columns, blocks, threads.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/isa.h"

namespace polyleaf {

// Search table of one feature with m <= 254 ascending thresholds: rows of 16 lanes, unused lanes +infinity.
// Row 0 (coarse) holds thresholds 15, 31, 47, ...; row 1 + j (fine) holds thresholds 16 j .. 16 j + 14, and
// +infinity. The bin of x is 16 j + k, where j coarse and k fine thresholds of row j lie below x: two vector
// comparisons, no branches, and a table no longer than the feature needs.
constexpr int kSearchLanes = 16;
inline int search_rows(int n_thresholds) {
  return 2 + n_thresholds / kSearchLanes;
}

struct BinningKernels {
  // codes[i] = bin of x[i * stride] (stride in elements), 255 where it is NaN. `n_fine_rows` = search_rows()
  // - 1.
  void (*bin_float)(const float* x, ptrdiff_t stride, int64_t n, const float* table, int n_fine_rows,
                    uint8_t* codes);
  void (*bin_double)(const double* x, ptrdiff_t stride, int64_t n, const double* table, int n_fine_rows,
                     uint8_t* codes);
  bool (*has_infinite_float)(const float* x, int64_t n);
  bool (*has_infinite_double)(const double* x, int64_t n);
};

POLYLEAF_DECLARE_KERNELS(BinningKernels, binning_kernels)

}  // namespace polyleaf
