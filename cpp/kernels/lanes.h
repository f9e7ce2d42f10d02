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

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
