// Eight doubles as two vectors of four, which AVX2 has in hardware: GCC takes comparisons and conversions of
// wider vectors apart element by element. With double in its place the same formulas do one candidate.
//
// Included by kernels only, inside the namespace of an instruction set.
#pragma once
#include "lanes.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

typedef double f64x4 __attribute__((vector_size(32)));
typedef int64_t i64x4 __attribute__((vector_size(32)));
typedef float f32x4 __attribute__((vector_size(16)));

struct Mask8 {
  i64x4 low, high;
};

struct f64x8 {
  f64x4 low, high;

  POLYLEAF_METHOD double operator[](int i) const { return i < 4 ? low[i] : high[i - 4]; }
  POLYLEAF_METHOD f64x8& operator+=(const f64x8& other) {
    low += other.low;
    high += other.high;
    return *this;
  }
  POLYLEAF_METHOD f64x8& operator-=(const f64x8& other) {
    low -= other.low;
    high -= other.high;
    return *this;
  }
};

POLYLEAF_INLINE f64x8 broadcast(double x) {
  return {x - f64x4{}, x - f64x4{}};
}
#define POLYLEAF_EIGHT(op)                                            \
  POLYLEAF_INLINE f64x8 operator op(const f64x8& a, const f64x8& b) { \
    return {a.low op b.low, a.high op b.high};                        \
  }                                                                   \
  POLYLEAF_INLINE f64x8 operator op(const f64x8& a, double b) {       \
    return a op broadcast(b);                                         \
  }                                                                   \
  POLYLEAF_INLINE f64x8 operator op(double a, const f64x8& b) {       \
    return broadcast(a) op b;                                         \
  }
POLYLEAF_EIGHT(+)
POLYLEAF_EIGHT(-)
POLYLEAF_EIGHT(*)
POLYLEAF_EIGHT(/)
#undef POLYLEAF_EIGHT
POLYLEAF_INLINE f64x8 operator-(const f64x8& a) {
  return {-a.low, -a.high};
}
POLYLEAF_INLINE Mask8 operator>(const f64x8& a, const f64x8& b) {
  return {a.low > b.low, a.high > b.high};
}
POLYLEAF_INLINE Mask8 operator>(const f64x8& a, double b) {
  return a > broadcast(b);
}
POLYLEAF_INLINE Mask8 operator>=(const f64x8& a, double b) {
  const f64x4 least = b - f64x4{};
  return {a.low >= least, a.high >= least};
}

POLYLEAF_INLINE f64x8 select(const Mask8& mask, const f64x8& yes, const f64x8& no) {
  return {mask.low ? yes.low : no.low, mask.high ? yes.high : no.high};
}
POLYLEAF_INLINE double select(bool mask, double yes, double no) {
  return mask ? yes : no;
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

// Sum of the lanes: 8 -> 4 -> 2 -> 1, lane i with lane i + half.
POLYLEAF_INLINE double fold(const f64x8& v) {
  const f64x4 four = v.low + v.high;
  return (four[0] + four[2]) + (four[1] + four[3]);
}

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
