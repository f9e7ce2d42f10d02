// Histogram kernels by instruction set.
#pragma once
#include "search/packed_histogram.h"

namespace polyleaf::tests {

#define POLYLEAF_KERNELS_ADDRESS(isa) &isa::histogram_kernels,

// isa: index in `available_isas()`.
inline const HistogramKernels& get_kernels(int isa) {
  static const HistogramKernels* const kernels[] = {POLYLEAF_ISAS(POLYLEAF_KERNELS_ADDRESS)};
  return *kernels[isa];
}

}  // namespace polyleaf::tests
