// Score of a side whose outputs are solved for together (TFBT, eq. 7; in blocks: AOSO-LogitBoost as
// described in TFBT, section IV), and the outputs that a node solves for. Float32 is enough:
// channels have 15 bits.
#pragma once
#include <cstdint>

#include "base/packed.h"

namespace polyleaf {

constexpr int kScorePivotBits = 13;

// Select the outputs of the `size` largest of k magnitudes, the first on ties, in ascending order;
// all outputs if size is 0. Return how many.
template <class Magnitude>
POLYLEAF_INLINE int select_solved_outputs(int k, int size, const Magnitude& magnitude,
                                          int32_t* outputs) {
  int m = 0;
  if (size <= 0 || size >= k) {
    for (; m < k; ++m) outputs[m] = m;
    return m;
  }
  for (; m < size; ++m) {  // insert into an ascending list
    int next = -1;
    for (int i = 0; i < k; ++i) {
      bool is_selected = false;
      for (int j = 0; j < m; ++j) is_selected |= outputs[j] == i;
      if (!is_selected && (next < 0 || magnitude(i) > magnitude(next))) next = i;
    }
    int at = m;
    for (; at > 0 && outputs[at - 1] > next; --at) outputs[at] = outputs[at - 1];
    outputs[at] = next;
  }
  return m;
}

// Return g' (H + lambda I)^-1 g of one side: gradient(i) and Hessian(i, j) of the i-th and j-th of
// m outputs.
template <class Gradient, class Hessian, class Matrix, class Vector>
POLYLEAF_INLINE auto compute_side_gain(int m, float lambda, const Gradient& gradient,
                                       const Hessian& hessian, Matrix A, Vector y, Vector inverse) {
  for (int i = 0; i < m; ++i) {
    y[i] = gradient(i);
    for (int j = 0; j <= i; ++j) A[packed(i, j)] = hessian(i, j);
    A[packed(i, i)] = A[packed(i, i)] + lambda;
  }
  eliminate<kScorePivotBits>(A, m, y, 1, inverse);
  return quadratic_form(m, y, inverse, decltype(y[0] * y[0]){});
}

}  // namespace polyleaf
