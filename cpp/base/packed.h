// Symmetric matrices as lower triangles, row after row, and Gaussian elimination without pivoting.
// V is a double, or sixteen candidates in float lanes.
//
// A pivot that nearly vanishes relative to its diagonal entry belongs to a direction without
// Hessian (for softmax without ridge: all scores raised alike); there is no step along it. The
// caller sets the threshold: float32 sums of 16-bit channels need a larger one than float64 sums.
#pragma once
#include "base/inline.h"

namespace polyleaf {

// Return the number of entries of a matrix of n rows.
template <class Int>
POLYLEAF_INLINE constexpr Int packed_size(Int n) {
  return n * (n + 1) / 2;
}
// Return the index of entry (i, j), j <= i.
POLYLEAF_INLINE constexpr int packed(int i, int j) {
  return packed_size(i) + j;
}

// Eliminate A (m rows) and the right-hand sides y (m, columns), in place. inverse (m) holds the
// smallest accepted pivots and gets 1 / pivot, or 0 if the pivot is not above its limit. Entries
// below the diagonal keep their values from when their column was eliminated.
template <class Matrix, class Vector>
POLYLEAF_INLINE void eliminate_above(Matrix A, int m, Vector y, int columns, Vector inverse) {
  for (int j = 0; j < m; ++j) {
    const auto pivot = A[packed(j, j)];
    const auto reciprocal = 1.0f / pivot;
    inverse[j] = select(pivot > inverse[j], reciprocal, decltype(1.0f / pivot){});
    for (int i = j + 1; i < m; ++i) {
      const auto row = A + packed(i, 0);
      const auto factor = row[j] * inverse[j];
      for (int k = 0; k < columns; ++k)
        y[i * columns + k] = y[i * columns + k] - factor * y[j * columns + k];
      for (int p = j + 1; p <= i; ++p) row[p] = row[p] - factor * A[packed(p, j)];
    }
  }
}
// Eliminate; the smallest accepted pivots are 2^-kPivotBits of the diagonal entries.
template <int kPivotBits, class Matrix, class Vector>
POLYLEAF_INLINE void eliminate(Matrix A, int m, Vector y, int columns, Vector inverse) {
  for (int j = 0; j < m; ++j) inverse[j] = A[packed(j, j)] * (1.0f / (1 << kPivotBits));
  eliminate_above(A, m, y, columns, inverse);
}

// Apply an elimination to one more right-hand side.
template <class V>
POLYLEAF_INLINE void eliminate_right_hand_side(const V* A, int m, V* y, const V* inverse) {
  for (int j = 0; j < m; ++j)
    for (int i = j + 1; i < m; ++i) y[i] = y[i] - (A[packed(i, j)] * inverse[j]) * y[j];
}

// Return total + y' A^-1 y, y as elimination leaves it.
template <class Vector, class Inverse, class V>
POLYLEAF_INLINE V quadratic_form(int m, Vector y, Inverse inverse, V total) {
  for (int j = 0; j < m; ++j) total = total + (y[j] * y[j]) * inverse[j];
  return total;
}

// Solve an eliminated system, in place of y.
template <class V>
POLYLEAF_INLINE void substitute(const V* A, int m, V* y, int columns, const V* inverse) {
  for (int j = m - 1; j >= 0; --j)
    for (int k = 0; k < columns; ++k) {
      V rest = y[j * columns + k];
      for (int i = j + 1; i < m; ++i) rest = rest - A[packed(i, j)] * y[i * columns + k];
      y[j * columns + k] = rest * inverse[j];
    }
}

}  // namespace polyleaf
