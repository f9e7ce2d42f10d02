// Shapley weights of simple games.
//
// Consider a game that is won by the coalitions that contain all players of one set (those in) and
// no player of another (those out). A player in has Shapley value w(in - 1, out), a player out
// -w(in, out - 1), all others 0; pairs of players interact by w(in - 2, out), -w(in - 1, out - 1)
// and w(in, out - 2). Every game here is a sum of such games.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace polyleaf {

// Gauss-Legendre quadrature on [0, 1]: integrals of polynomials as sums over a few points.
//
// Points and weights use only +, -, * and /, so they are the same bits on every machine.

// sum over i of weight[i] * p(at[i]) is the integral of p over [0, 1], for polynomials p of degree
// < 2 * size.
struct Quadrature {
  std::vector<double> at, weight;
};

// Return rules of 0, 1, ..., max_points points.
std::vector<Quadrature> gauss_legendre(int max_points);

class ShapleyWeights {
 public:
  // For games of up to `max_players` players in and out.
  explicit ShapleyWeights(int32_t max_players);
  // Return in! out! / (in + out + 1)!; 0 if either is negative (no such player).
  double operator()(int32_t in, int32_t out) const {
    return in < 0 || out < 0 ? 0.0 : weights_[static_cast<size_t>(in) * size_ + out];
  }

 private:
  int32_t size_;
  std::vector<double> weights_;  // [in][out]
};

// Number of coefficients of a leaf: one per feature, and with pairs one for each pair i < j,
// ordered by i, then j.
inline int32_t n_terms(int32_t n_features, bool pairs) {
  return pairs ? n_features * (n_features + 1) / 2 : n_features;
}

}  // namespace polyleaf
