#include "explain/shapley_weights.h"

namespace polyleaf {

ShapleyWeights::ShapleyWeights(int32_t most)
    : size_(most + 1), weights_(static_cast<size_t>(size_) * size_, 0.0) {
  for (int32_t out = 0; out <= most; ++out) weights_[out] = 1.0 / (out + 1.0);
  for (int32_t in = 1; in <= most; ++in)
    for (int32_t out = 0; in + out <= most; ++out)
      weights_[static_cast<size_t>(in) * size_ + out] = (*this)(in - 1, out + 1) * in / (out + 1.0);
}

}  // namespace polyleaf
