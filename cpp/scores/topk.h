// The k largest of terms that are offered one by one, and their sum from the largest on: what a leaf is worth
// that keeps k outputs (GBDT-MO, eq. 20 to 22). V is a float, or a vector of sixteen candidates.
#pragma once
#include "base/kernels/lanes.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

POLYLEAF_INLINE bool any_above(float a, float b) {
  return a > b;
}
POLYLEAF_INLINE bool any_above(f32x16 a, f32x16 b) {
#ifdef __AVX512F__
  return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ) != 0;
#elif defined(__AVX2__)
  const __m256 low = _mm256_cmp_ps((__m256)a.low, (__m256)b.low, _CMP_GT_OQ);
  const __m256 high = _mm256_cmp_ps((__m256)a.high, (__m256)b.high, _CMP_GT_OQ);
  return _mm256_movemask_ps(_mm256_or_ps(low, high)) != 0;
#else
  const i32x16 above = a > b;
  uint64_t words[8];
  std::memcpy(words, &above, sizeof(above));
  uint64_t any = 0;
  for (uint64_t word : words) any |= word;
  return any != 0;
#endif
}

template <class V>
struct LargestTerms {
  V* best;  // room for k, descending
  int k;
  int n = 0;

  POLYLEAF_METHOD void offer(V v) {
    if (n == k && !any_above(v, best[k - 1])) return;
    for (int i = 0; i < n; ++i) {
      const V there = best[i];
      best[i] = larger(there, v);
      v = select(there > v, v, there);
    }
    if (n < k) best[n++] = v;
  }
  POLYLEAF_METHOD V sum() const {
    V total = best[0];
    for (int i = 1; i < n; ++i) total = total + best[i];
    return total;
  }
};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
