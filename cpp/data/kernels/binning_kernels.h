// Binning kernels: the search for a value's bin, and for infinities.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/isa.h"
#include "data/kernels/search_layout.h"

namespace polyleaf {

struct BinningKernels {
  // codes[i] = bin of x[i * stride] (stride in elements), 255 for NaN. n_fine_rows = search_rows()
  // - 1.
  void (*bin_float)(const float* x, ptrdiff_t stride, int64_t n, const float* table,
                    int n_fine_rows, uint8_t* codes);
  void (*bin_double)(const double* x, ptrdiff_t stride, int64_t n, const double* table,
                     int n_fine_rows, uint8_t* codes);
  bool (*has_infinite_float)(const float* x, int64_t n);
  bool (*has_infinite_double)(const double* x, int64_t n);
};

POLYLEAF_DECLARE_KERNELS(BinningKernels, binning_kernels)

}  // namespace polyleaf
