// Eight doubles, as two vectors of four. With double in their place the same formulas do one candidate.
//
// Included by kernels only, inside the namespace of an instruction set.
#pragma once
#include "lanes.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

typedef double f64x4 __attribute__((vector_size(32)));
using f64x8 = Two<f64x4>;

POLYLEAF_INLINE f64x8 broadcast(double x) {
  return x - f64x8{};
}

POLYLEAF_INLINE f64x8 to_double(i32x8 v) {
  i32x4 halves[2];
  std::memcpy(halves, &v, sizeof(v));
  return {__builtin_convertvector(halves[0], f64x4), __builtin_convertvector(halves[1], f64x4)};
}
POLYLEAF_INLINE f64x8 to_double(const float* eight) {
  return {__builtin_convertvector(load<f32x4>(eight), f64x4),
          __builtin_convertvector(load<f32x4>(eight + 4), f64x4)};
}
POLYLEAF_INLINE void store_floats(float* to, const f64x8& v) {
  const f32x4 low = __builtin_convertvector(v.low, f32x4), high = __builtin_convertvector(v.high, f32x4);
  store(to, low);
  store(to + 4, high);
}

POLYLEAF_INLINE double fold(const f64x4& v) {
  return (v[0] + v[2]) + (v[1] + v[3]);
}
// Sum of the lanes: 8 -> 4 -> 2 -> 1, lane i with lane i + half.
POLYLEAF_INLINE double fold(const f64x8& v) {
  return fold(v.low + v.high);
}

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
