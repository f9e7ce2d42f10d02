// Sums of floats over rows that do not depend on how rows are distributed: every term is rounded to
// an integer, in units set by the largest factors of all rows, and integers are added.
//
// Terms have so few bits that 4,096 of them add up exactly in float64, in any order: kernels add
// floats, and their sums are added as integers. A term is off by at most 2^-42 of the product of
// its factors' powers of two; for n > 2^21 rows by n * 2^-63.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace polyleaf {

constexpr int64_t kSumBlock = 4096;  // rows whose terms are added as floats
constexpr int kMaxTermBits = 41;     // 2^41 * 2^12 is 2^53
constexpr int kSumBits = 62;

// Return the bits of the terms of a sum over n rows, so that the sum fits int64.
inline int get_term_bits(int64_t n_rows) {
  return std::min<int>(
      kMaxTermBits,
      kSumBits - std::bit_width(static_cast<uint64_t>(std::max<int64_t>(n_rows, 1) - 1)));
}

// Return the power of two above a magnitude; 0 for 0.
inline int get_exponent_above(double largest) {
  int e = 0;
  std::frexp(largest, &e);  // largest = m * 2^e with 0.5 <= m < 1
  return e;
}

// Round magnitudes below 2^51 to the nearest integer, ties to even: adding 1.5 * 2^52 leaves no
// bits for a fraction.
template <class T>
[[gnu::always_inline]] inline T to_integer(const T& x) {
  constexpr double kNoFraction = 0x1.8p52;
  return (x + kNoFraction) - kNoFraction;
}

}  // namespace polyleaf
