// Histogram kernels by instruction set.
#pragma once
#include "search/packed_histogram.h"

namespace polyleaf::tests {

// isa: index in `available_isas()`.
inline const HistogramKernels& get_kernels(int isa) {
#ifdef POLYLEAF_X86
  if (isa == 2) return avx512::histogram_kernels;
  if (isa == 1) return avx2::histogram_kernels;
#endif
  (void)isa;
  return baseline::histogram_kernels;
}

}  // namespace polyleaf::tests
