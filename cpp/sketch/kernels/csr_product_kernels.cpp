// Kernel of sparse rows times a dense matrix (sketch.h).
#include "base/kernels/lanes.h"
#include "sketch/sketch.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

#if defined(__AVX512F__)
typedef float Vector __attribute__((vector_size(64)));
#elif defined(__AVX2__)
typedef float Vector __attribute__((vector_size(32)));
#else
typedef float Vector __attribute__((vector_size(16)));
#endif
constexpr int kWidth = sizeof(Vector) / sizeof(float);
constexpr int64_t kRun = 256;             // terms summed before they join the total
constexpr int64_t kPrefetchDistance = 8;  // entries whose matrix rows are prefetched

// Compute kN vectors of columns, starting at c.
template <int kN>
POLYLEAF_INLINE void columns(const int32_t* indices, const float* values, int64_t n,
                             const float* matrix, int64_t d, int64_t c, float* out) {
  Vector total[kN] = {};
  for (int64_t start = 0; start < n; start += kRun) {
    const int64_t stop = start + kRun < n ? start + kRun : n;
    Vector sums[kN] = {};
    for (int64_t i = start; i < stop; ++i) {
      if (i + kPrefetchDistance < n)
        __builtin_prefetch(matrix + indices[i + kPrefetchDistance] * d + c);
      const float* row = matrix + indices[i] * d + c;
      for (int v = 0; v < kN; ++v) sums[v] += values[i] * load<Vector>(row + v * kWidth);
    }
    for (int v = 0; v < kN; ++v) total[v] += sums[v];
  }
  for (int v = 0; v < kN; ++v) store(out + c + v * kWidth, total[v]);
}

// Compute one column.
POLYLEAF_INLINE void column(const int32_t* indices, const float* values, int64_t n,
                            const float* matrix, int64_t d, int64_t c, float* out) {
  float total = 0.0f;
  for (int64_t start = 0; start < n; start += kRun) {
    const int64_t stop = start + kRun < n ? start + kRun : n;
    float sum = 0.0f;
    for (int64_t i = start; i < stop; ++i) sum += values[i] * matrix[indices[i] * d + c];
    total += sum;
  }
  out[c] = total;
}

void product(const CsrMatrix& rows, int64_t begin, int64_t end, const float* matrix, int32_t d,
             float* out) {
  for (int64_t r = begin; r < end; ++r) {
    const int64_t first = rows.indptr[r], n = rows.indptr[r + 1] - first;
    const int32_t* indices = rows.indices + first;
    const float* values = rows.values + first;
    float* to = out + r * d;
    int64_t c = 0;
    for (; c + 8 * kWidth <= d; c += 8 * kWidth) columns<8>(indices, values, n, matrix, d, c, to);
    for (; c + 2 * kWidth <= d; c += 2 * kWidth) columns<2>(indices, values, n, matrix, d, c, to);
    for (; c + kWidth <= d; c += kWidth) columns<1>(indices, values, n, matrix, d, c, to);
    for (; c < d; ++c) column(indices, values, n, matrix, d, c, to);
  }
}

}  // namespace

const CsrProductKernels csr_product_kernels = {product};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
