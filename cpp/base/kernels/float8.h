// Eight doubles: one zmm register, or two vectors of four. With double in their place the same
// formulas do one candidate.
//
// Included by kernels only, inside the namespace of an instruction set.
#pragma once
#include "base/kernels/lanes.h"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

typedef double f64x4 __attribute__((vector_size(32)));
#if defined(__AVX512F__)
typedef double f64x8 __attribute__((vector_size(64)));
#else
using f64x8 = VectorPair<f64x4>;
#endif

POLYLEAF_INLINE f64x8 broadcast(double x) {
  return x - f64x8{};
}
POLYLEAF_INLINE f64x8 to_double(const i32x8& v) {
#if defined(__AVX512F__)  // GCC converts half by half
  return (f64x8)_mm512_cvtepi32_pd((__m256i)v);
#else
  return convert<f64x8>(v);
#endif
}
POLYLEAF_INLINE f64x8 to_double(const float* eight) {
#if defined(__AVX512F__)
  return (f64x8)_mm512_cvtps_pd(_mm256_loadu_ps(eight));
#else
  return convert<f64x8>(load<f32x8>(eight));
#endif
}
POLYLEAF_INLINE void store_floats(float* to, const f64x8& v) {
  store(to, convert<f32x8>(v));
}

POLYLEAF_INLINE f64x8 join(const f64x4& low, const f64x4& high) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
#else
  return {low, high};
#endif
}

// Sums of the lanes of eight vectors at once, each folded exactly as `fold` does.
POLYLEAF_INLINE f64x8 fold_eight(const f64x8* v) {
#if defined(__AVX512F__)
  f64x8 four[4], two[2];
  for (int i = 0; i < 4; ++i)
    four[i] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], 0, 1, 2, 3, 8, 9, 10, 11) +
              __builtin_shufflevector(v[2 * i], v[2 * i + 1], 4, 5, 6, 7, 12, 13, 14, 15);
  for (int i = 0; i < 2; ++i)
    two[i] = __builtin_shufflevector(four[2 * i], four[2 * i + 1], 0, 1, 4, 5, 8, 9, 12, 13) +
             __builtin_shufflevector(four[2 * i], four[2 * i + 1], 2, 3, 6, 7, 10, 11, 14, 15);
  return __builtin_shufflevector(two[0], two[1], 0, 2, 4, 6, 8, 10, 12, 14) +
         __builtin_shufflevector(two[0], two[1], 1, 3, 5, 7, 9, 11, 13, 15);
#else
  f64x4 two[4], one[2];
  for (int i = 0; i < 4; ++i) {
    const f64x4 a = v[2 * i].low + v[2 * i].high, b = v[2 * i + 1].low + v[2 * i + 1].high;
    two[i] = __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
  }
  for (int i = 0; i < 2; ++i)
    one[i] = __builtin_shufflevector(two[2 * i], two[2 * i + 1], 0, 2, 4, 6) +
             __builtin_shufflevector(two[2 * i], two[2 * i + 1], 1, 3, 5, 7);
  return {one[0], one[1]};
#endif
}

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
