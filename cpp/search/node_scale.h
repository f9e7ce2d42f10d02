// Quantisation of the derivatives of one node, for searches that quantise anew in every node.
#pragma once
#include <cmath>
#include <cstdint>

#include "quantised_gradients/quantised_gradients.h"

namespace polyleaf {

// Return by how many bits channels of this many rows are coarser, so that no sum overflows int32.
inline int count_shift(int64_t count) {
  int shift = 0;
  while (count * (32768 >> shift) > int64_t{INT32_MAX}) ++shift;
  return shift;
}

// Set the scale of a column of this magnitude; 0 for a smaller one, or one that is not finite.
inline void set_scale(float largest, int shift, float& inverse, float& step) {
  if (!(largest >= kMinDerivative) || !std::isfinite(largest)) return;
  inverse = std::ldexp(32767.0f / largest, -shift);
  step = std::ldexp(largest / 32767.0f, shift);
}

// Round a scaled value below 2^22 to the nearest integer, ties to even.
inline int32_t quantise_value(float value) {
  constexpr float kNoFraction = 0x1.8p23f;
  return static_cast<int32_t>((value + kNoFraction) - kNoFraction);
}

}  // namespace polyleaf
