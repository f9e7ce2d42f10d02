// Shapley's weights: what the coalitions without a player count.
//
// In a product that is won by a coalition which has all of some players (those *in*) and none of
// others (those *out*), a player who is in is worth w(in - 1, out), one who is out -w(in, out - 1),
// all others nothing; pairs of players interact by w(in - 2, out), -w(in - 1, out - 1) and w(in,
// out - 2). Every product here is a sum of such shap_coefficients.
//
// Owns: the weights. Must not know: what players are.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace polyleaf {

class ShapleyWeights {
 public:
  // For shap_coefficients of up to `max_players` players in and out.
  explicit ShapleyWeights(int32_t max_players);
  // in! out! / (in + out + 1)!; 0 where one of them is negative: no such player.
  double operator()(int32_t in, int32_t out) const {
    return in < 0 || out < 0 ? 0.0 : weights_[static_cast<size_t>(in) * size_ + out];
  }

 private:
  int32_t size_;
  std::vector<double> weights_;  // [in][out]
};

// Coefficients of a leaf: one for each of its n features, then, with pairs, one for each pair i <
// j, by i, then by j.
inline int32_t n_terms(int32_t n_features, bool pairs) {
  return pairs ? n_features * (n_features + 1) / 2 : n_features;
}

}  // namespace polyleaf
