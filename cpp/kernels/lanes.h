// Vectors of sixteen lanes, whatever the instruction set: one zmm, two ymm or four xmm registers. Sums over
// outputs use these virtual lanes and one fixed fold, so every instruction set computes the same bits.
#pragma once
#include <cstdint>
#include <cstring>

#define POLYLEAF_INLINE static inline __attribute__((always_inline))
#define POLYLEAF_METHOD inline __attribute__((always_inline))

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

constexpr int kLanes = 16;

typedef float f32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef int16_t i16x16 __attribute__((vector_size(32)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef int16_t i16x8 __attribute__((vector_size(16)));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef int16_t i16x4 __attribute__((vector_size(8)));

template <class V, class T>
POLYLEAF_INLINE V load(const T* from) {
  V v;
  std::memcpy(&v, from, sizeof(V));
  return v;
}

template <class V, class T>
POLYLEAF_INLINE void store(T* to, V v) {
  std::memcpy(to, &v, sizeof(V));
}

POLYLEAF_INLINE f32x16 broadcast(float x) {
  return x - f32x16{};
}
POLYLEAF_INLINE f32x16 to_float(i32x16 v) {
  return __builtin_convertvector(v, f32x16);
}

// Sum of the lanes: 16 -> 8 -> 4 -> 2 -> 1, lane i with lane i + half.
POLYLEAF_INLINE float fold(f32x16 v) {
  typedef float f32x8 __attribute__((vector_size(32)));
  typedef float f32x4 __attribute__((vector_size(16)));
  f32x8 halves[2];
  std::memcpy(halves, &v, sizeof(v));
  const f32x8 eight = halves[0] + halves[1];
  f32x4 quarters[2];
  std::memcpy(quarters, &eight, sizeof(eight));
  const f32x4 four = quarters[0] + quarters[1];
  return (four[0] + four[2]) + (four[1] + four[3]);
}

#if defined(__AVX2__) && !defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
// Eight rows of eight.
POLYLEAF_INLINE void transpose_eight(const int32_t* from, int stride, int32_t* to) {
  const i32x8 low1 = {0, 8, 1, 9, 4, 12, 5, 13}, low2 = {0, 1, 8, 9, 4, 5, 12, 13};
  const i32x8 low4 = {0, 1, 2, 3, 8, 9, 10, 11};
  i32x8 r[8], s[8];
  for (int i = 0; i < 8; ++i) r[i] = load<i32x8>(from + static_cast<int64_t>(i) * stride);
  for (int i = 0; i < 8; i += 2) {  // s: rows i, i + 1, in pairs of columns
    s[i] = __builtin_shuffle(r[i], r[i + 1], low1);
    s[i + 1] = __builtin_shuffle(r[i], r[i + 1], low1 + 2);
  }
  for (int i = 0; i < 8; i += 4)  // r: four rows of one column, in either half
    for (int j = 0; j < 2; ++j) {
      r[i + 2 * j] = __builtin_shuffle(s[i + j], s[i + j + 2], low2);
      r[i + 2 * j + 1] = __builtin_shuffle(s[i + j], s[i + j + 2], low2 + 2);
    }
  for (int i = 0; i < 4; ++i) {
    store(to + 16 * i, __builtin_shuffle(r[i], r[i + 4], low4));
    store(to + 16 * (i + 4), __builtin_shuffle(r[i], r[i + 4], low4 + 4));
  }
}
#endif

// Sixteen rows of sixteen integers: rows become columns.
POLYLEAF_INLINE void transpose(const int32_t* from, int stride, i32x16* to) {
#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
  i32x16 r[16];
  for (int i = 0; i < 16; ++i) r[i] = load<i32x16>(from + static_cast<int64_t>(i) * stride);
  const i32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  for (int half = 8; half > 0; half /= 2) {
    const i32x16 upper = (lane & half) != 0;
    const i32x16 low = upper ? lane + (16 - half) : lane, high = upper ? lane + 16 : lane + half;
    for (int i = 0; i < 16; ++i) {
      if (i & half) continue;
      const i32x16 a = r[i], b = r[i + half];
      r[i] = __builtin_shuffle(a, b, low);
      r[i + half] = __builtin_shuffle(a, b, high);
    }
  }
  for (int i = 0; i < 16; ++i) to[i] = r[i];
#elif defined(__AVX2__) && defined(__GNUC__) && !defined(__clang__)
  for (int i = 0; i < 16; i += 8)
    for (int j = 0; j < 16; j += 8)
      transpose_eight(from + static_cast<int64_t>(i) * stride + j, stride,
                      reinterpret_cast<int32_t*>(to + j) + i);
#else
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) to[j][i] = from[static_cast<int64_t>(i) * stride + j];
#endif
}

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
