// The scales that columns of derivatives are quantised by (docs/development/arithmetic.md: 32767 / max,
// halved until no sum over any rows can leave int32.
//
// Must not know: where derivatives lie, how they are quantised.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

namespace polyleaf {

constexpr float kMinDerivative =
    1e-28f;  // a column whose largest magnitude is below counts as zero

struct Scales {
  std::vector<float> inverse, step;  // of the columns, and zeros behind them

  // largest: magnitude of each column over the rows in use, readable as far as the scales are to
  // be.
  Scales(const std::vector<float>& largest, int n_columns)
      : inverse(largest.size(), 0.0f), step(largest.size(), 0.0f) {
    for (int j = 0; j < n_columns; ++j) {
      if (largest[j] < kMinDerivative) continue;
      inverse[j] = 32767.0f / largest[j];
      step[j] = largest[j] / 32767.0f;
    }
  }

  // size: summed magnitudes of the columns quantised by these scales. False where some had to be
  // made coarser, so that all is to be quantised again.
  bool fit(const int64_t* size, int n_columns, int64_t n_used) {
    const int64_t limit = int64_t{INT32_MAX};
    bool fits = true;
    for (int j = 0; j < n_columns; ++j) {
      if (size[j] + n_used <= limit) continue;
      int shift = 1;
      while ((size[j] >> shift) + n_used > limit) ++shift;
      inverse[j] = std::ldexp(inverse[j], -shift);
      step[j] = std::ldexp(step[j], shift);
      fits = false;
    }
    return fits;
  }
};

}  // namespace polyleaf
