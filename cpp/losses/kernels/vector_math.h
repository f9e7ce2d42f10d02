// exp and log in float32, written so that a plain loop vectorises and gives the same bits on every
// instruction set: only +, -, *, comparisons and bit operations; no table, no fused multiply-add,
// no libm.
//
// The polynomials are weighted minimax fits on the reduced interval;
// tests/objectives/test_objectives.py checks their errors against float64.
#pragma once
#include <cstdint>

namespace polyleaf::POLYLEAF_ISA_NAMESPACE {

inline int32_t float_bits(float x) {
  return __builtin_bit_cast(int32_t, x);
}
inline float bits_float(int32_t x) {
  return __builtin_bit_cast(float, x);
}
inline float magnitude(float x) {
  return bits_float(float_bits(x) & 0x7fffffff);
}

// Both return x if it is NaN, since the comparison is false.
inline float min(float x, float limit) {
  return limit < x ? limit : x;
}
inline float max(float x, float limit) {
  return limit > x ? limit : x;
}

// (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2.
template <class T>
inline T exp_series(const T& r) {
  T p = r * 0.00138144672f + 0.00836878084f;
  p = p * r + 0.0416683927f;
  p = p * r + 0.166665196f;
  return p * r + 0.49999994f;
}

// (ln(1 + t) - t + t^2 / 2) / t^3 for 1 + t in [sqrt 1/2, sqrt 2).
inline float log_series(float t) {
  float p = -0.0763449743f;
  p = p * t + 0.127615824f;
  p = p * t + -0.13160184f;
  p = p * t + 0.142017573f;
  p = p * t + -0.166233569f;
  p = p * t + 0.200012267f;
  p = p * t + -0.250008196f;
  return p * t + 0.333333313f;
}

constexpr float kLeastExponent = -87.0f, kLargestExponent = 88.0f;

// e^x within 1 ulp, for x between these limits: always a normal number. T: float or a vector of
// floats; Integer: integers of as many bits.
template <class Integer, class T>
inline T exp_within_limits(const T& x) {
  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits.
  constexpr float kRound = 12582912.0f;
  const T shifted = x * 1.44269504f + kRound;
  const T n = shifted - kRound;
  // ln 2 in two parts: the first has so few bits that n times it is exact.
  const T r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  const T mantissa = 1.0f + (r + (r * r) * exp_series(r));
  // 2^n is added to the exponent; the bits of kRound above the integer are shifted out.
  const Integer exponent = __builtin_bit_cast(Integer, shifted) << 23;
  return __builtin_bit_cast(T, __builtin_bit_cast(Integer, mantissa) + exponent);
}

// e^x, saturating: x is clipped first. This avoids division by zero, infinities that become NaN,
// and slow denormals.
inline float exp_saturating(float x) {
  return exp_within_limits<uint32_t>(max(min(x, kLargestExponent), kLeastExponent));
}

// ln x within 1 ulp, for normal x > 0.
inline float log_normal(float x) {
  constexpr int32_t kSqrtHalf = 0x3f3504f3;
  const int32_t bits = float_bits(x) - kSqrtHalf;
  const float n = static_cast<float>(bits >> 23);
  const float t = bits_float((bits & 0x007fffff) + kSqrtHalf) -
                  1.0f;  // x = 2^n (1 + t), 1 + t in [sqrt 1/2, sqrt 2)
  const float t2 = t * t;
  const float low = n * -2.12194440e-4f + (t2 * t) * log_series(t);
  return n * 0.693359375f + (t + (low - 0.5f * t2));
}

// ln(1 + x) for x >= 0. The rounding error of 1 + x is corrected to first order, so that small
// x keep their digits: confident predictions have losses of 1e-10, which must not become zero.
inline float log1p_positive(float x) {
  const float sum = 1.0f + x;
  return log_normal(sum) + (x - (sum - 1.0f)) / sum;
}

}  // namespace polyleaf::POLYLEAF_ISA_NAMESPACE
