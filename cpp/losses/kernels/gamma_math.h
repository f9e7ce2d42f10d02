// Derivatives of the log-gamma function, exponentials and logarithms minus their leading terms, so
// that differences keep their digits. Written in the style of vector_math.h.
//
// Asymptotic series of digamma and trigamma: Abramowitz and Stegun, 6.3.18 and 6.4.12, from
// `kShift` upwards; below, their recurrences 6.3.5 and 6.4.6.
#pragma once
#include "losses/kernels/vector_math.h"

namespace polyleaf::POLYLEAF_ISA_NAMESPACE {

constexpr int kShift = 6;

// digamma(x) - ln x for x >= kShift.
inline float digamma_tail(float x) {
  const float i = 1.0f / x, i2 = i * i;
  return -i * (0.5f + i * (0.083333333f - i2 * (0.0083333333f - i2 * 0.0039682540f)));
}

// x (x trigamma(x) - 1) for x >= kShift.
inline float trigamma_tail(float x) {
  const float i = 1.0f / x, i2 = i * i;
  return 0.5f + i * (0.16666667f - i2 * (0.033333333f - i2 * (0.023809524f - i2 * 0.033333333f)));
}

// digamma(x) - ln x for x > 0, given ln x.
inline float digamma_excess(float x, float log_x) {
  float sum = 0.0f;
  for (int i = 0; i < kShift; ++i) sum += 1.0f / (x + static_cast<float>(i));
  const float far = x + static_cast<float>(kShift);
  const float shifted = (log_normal(far) + digamma_tail(far)) - sum - log_x;
  return x < static_cast<float>(kShift) ? shifted : digamma_tail(x);
}

// x (x trigamma(x) - 1) for x > 0: from 1 at 0 down to 1/2.
inline float trigamma_excess(float x) {
  float sum = 0.0f;
  for (int i = 1; i < kShift; ++i) {
    const float at = x + static_cast<float>(i);
    sum += 1.0f / (at * at);
  }
  const float far = x + static_cast<float>(kShift), inverse = 1.0f / far;
  const float rest = inverse + (inverse * inverse) * trigamma_tail(far);  // trigamma(far)
  const float shifted = (1.0f - x) + (x * x) * (sum + rest);
  return x < static_cast<float>(kShift) ? shifted : trigamma_tail(x);
}

// e^v - 1, and e^v - 1 - v.
inline float exp_minus_one(float v) {
  return magnitude(v) < 0.34f ? v + (v * v) * exp_series(v) : exp_saturating(v) - 1.0f;
}
inline float exp_excess(float v) {
  return magnitude(v) < 0.34f ? (v * v) * exp_series(v) : (exp_saturating(v) - 1.0f) - v;
}

// t - ln(1 + t) for t > -1.
inline float log_excess(float t) {
  const float far = t - log_normal(max(1.0f + t, 1.17549435e-38f));
  return t > -0.29f && t < 0.41f ? (t * t) * (0.5f - t * log_series(t)) : far;
}

}  // namespace polyleaf::POLYLEAF_ISA_NAMESPACE
