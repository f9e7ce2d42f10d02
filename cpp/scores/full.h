// The full Hessian: g' (H + lambda I)^-1 g by elimination, sixteen candidates at a time (TFBT, eq. 7). For
// all outputs, or for a block of them (AOSO-LogitBoost as TFBT, section IV, describes it).
//
// A pivot that has all but vanished, relative to its diagonal entry, stands for a direction without curvature
// (for softmax without ridge: all scores raised alike); it adds nothing. Float32 is enough: channels have 15
// bits.
#pragma once
#include "../kernels/lanes.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

constexpr float kLeastPivot = 1.0f / (1 << 13);

// A (lower triangle, row after row, lambda on the diagonal) and y are overwritten; inverse gets 1 / pivot.
// Returns y' A^-1 y.
static inline f32x16 eliminate(f32x16* A, f32x16* y, f32x16* inverse, int m) {
  for (int j = 0; j < m; ++j) inverse[j] = A[j * (j + 1) / 2 + j] * kLeastPivot;
  f32x16 total = {};
  for (int j = 0; j < m; ++j) {
    const f32x16 pivot = A[j * (j + 1) / 2 + j], one = broadcast(1.0f);
    inverse[j] = select(pivot > inverse[j], one / pivot, f32x16{});
    total = total + (y[j] * y[j]) * inverse[j];
    for (int i = j + 1; i < m; ++i) {
      f32x16* row = A + i * (i + 1) / 2;
      const f32x16 factor = row[j] * inverse[j];
      y[i] = y[i] - factor * y[j];
      for (int p = j + 1; p <= i; ++p) row[p] = row[p] - factor * A[p * (p + 1) / 2 + j];
    }
  }
  return total;
}

// The solution, in place of y, of a system that `eliminate` has gone through.
static inline void substitute(const f32x16* A, f32x16* y, const f32x16* inverse, int m) {
  for (int j = m - 1; j >= 0; --j) {
    f32x16 rest = y[j];
    for (int i = j + 1; i < m; ++i) rest = rest - A[i * (i + 1) / 2 + j] * y[i];
    y[j] = rest * inverse[j];
  }
}

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
