// Gain by which the best splits on different features are compared: a feature's factor times what
// the split gains. GPU kernels use the same code.
#pragma once
#include "base/inline.h"

namespace polyleaf {

// sum: score of the children; node_sum: score of the node itself.
template <class T>
POLYLEAF_INLINE T penalised_gain(T factor, T sum, T node_sum) {
  const T gain = sum - node_sum;
  return gain > 0 ? gain * factor : gain;
}

}  // namespace polyleaf
