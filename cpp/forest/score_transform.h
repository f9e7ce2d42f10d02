// Transform of the float32 sum of an output's leaf values to its score.
#pragma once
#include <cstdint>

namespace polyleaf {

// (base + sum) * scale + offset, in float64.
struct ScoreTransform {
  const double* base = nullptr;                      // null: 0
  const double *scale = nullptr, *offset = nullptr;  // null: 1 and 0

  double operator()(int32_t output, float sum) const {
    if (scale != nullptr) return (base[output] + double{sum}) * scale[output] + offset[output];
    return base != nullptr ? base[output] + double{sum} : double{sum};
  }
};

}  // namespace polyleaf
