// By what the best splits on different features compete, where features have factors: such a share
// of what they gain. Devices judge by the same lines.
#pragma once
#include "base/inline.h"

namespace polyleaf {

// sum: what the children are worth; of_node: what the node is worth by itself.
template <class T>
POLYLEAF_INLINE T penalised_gain(T factor, T sum, T of_node) {
  const T rise = sum - of_node;
  return rise > 0 ? rise * factor : rise;
}

}  // namespace polyleaf
