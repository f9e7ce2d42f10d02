#include "explain/shapley_weights.h"

namespace polyleaf {

ShapleyWeights::ShapleyWeights(int32_t max_players)
    : size_(max_players + 1), weights_(static_cast<size_t>(size_) * size_, 0.0) {
  for (int32_t out = 0; out <= max_players; ++out) weights_[out] = 1.0 / (out + 1.0);
  for (int32_t in = 1; in <= max_players; ++in)
    for (int32_t out = 0; in + out <= max_players; ++out)
      weights_[static_cast<size_t>(in) * size_ + out] = (*this)(in - 1, out + 1) * in / (out + 1.0);
}

}  // namespace polyleaf
