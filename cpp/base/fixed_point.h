// Sums of floats over rows that do not depend on who has which row: every term is rounded to an
// integer in units that the largest factors of all rows set, and integers are added.
//
// Terms have so few bits that 4,096 of them add up exactly in float64, in any order: kernels add
// floats, and whoever adds their sums up adds integers. A term is off by 2^-42 of the product of
// its factors' powers of two at most; of n > 2^21 rows by n * 2^-63.
//
// Must not know: what is summed.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace polyleaf {

constexpr int64_t kSumBlock = 4096;  // rows whose terms are added as floats
constexpr int kMaxTermBits = 41;     // 2^41 * 2^12 is 2^53
constexpr int kSumBits = 62;

// Bits of the terms of a sum over so many rows, which then fits int64.
inline int get_term_bits(int64_t n_rows) {
  return std::min<int>(
      kMaxTermBits,
      kSumBits - std::bit_width(static_cast<uint64_t>(std::max<int64_t>(n_rows, 1) - 1)));
}

// The power of two above a magnitude; 0 for 0.
inline int get_exponent_above(double largest) {
  int e = 0;
  std::frexp(largest, &e);  // largest = m * 2^e with 0.5 <= m < 1
  return e;
}

// The nearest integers, to even, of magnitudes below 2^51: adding 1.5 * 2^52 leaves no room for a
// fraction.
template <class T>
[[gnu::always_inline]] inline T to_integer(const T& x) {
  constexpr double kNoFraction = 0x1.8p52;
  return (x + kNoFraction) - kNoFraction;
}

}  // namespace polyleaf
