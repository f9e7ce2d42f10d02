#include "base/kernels/dot.h"

#include "base/kernels/eight.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

double dot(const double* a, const double* b, int64_t n) {
  f64x8 sum = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) sum += load<f64x8>(a + i) * load<f64x8>(b + i);
  double rest[8] = {};
  for (int j = 0; i + j < n; ++j) rest[j] = a[i + j] * b[i + j];
  return fold(sum + load<f64x8>(rest));
}

}  // namespace

const DotKernels dot_kernels = {dot};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
