#include "explain/shapley_weights.h"

namespace polyleaf {

namespace {

// Legendre polynomials of degree n and n - 1 on [-1, 1], for n >= 1.
struct Legendre {
  double last, before;
};

Legendre legendre(int n, double x) {
  double before = 1.0, last = x;
  for (int k = 2; k <= n; ++k) {
    const double next = ((2 * k - 1) * x * last - (k - 1) * before) / k;
    before = last;
    last = next;
  }
  return {last, before};
}

// Find the root of degree n between low and high by bisection until no double lies in between.
double root_between(int n, double low, double high) {
  const bool rises = legendre(n, low).last < 0.0;
  for (;;) {
    const double middle = low + (high - low) / 2.0;
    if (!(low < middle && middle < high)) return middle;
    (legendre(n, middle).last < 0.0) == rises ? low = middle : high = middle;
  }
}

}  // namespace

std::vector<Quadrature> gauss_legendre(int max_points) {
  std::vector<Quadrature> config(1);
  std::vector<double> roots;  // roots of the previous degree; they interlace with the next
  for (int n = 1; n <= max_points; ++n) {
    Quadrature rule;
    std::vector<double> next;
    for (int i = 0; i < n; ++i) {
      const double low = i == 0 ? -1.0 : roots[i - 1], high = i == n - 1 ? 1.0 : roots[i];
      const double x = root_between(n, low, high), before = legendre(n, x).before;
      next.push_back(x);
      rule.at.push_back((1.0 + x) / 2.0);
      rule.weight.push_back((1.0 - x * x) / (static_cast<double>(n) * n * before * before));
    }
    roots.swap(next);
    config.push_back(rule);
  }
  return config;
}

ShapleyWeights::ShapleyWeights(int32_t max_players)
    : size_(max_players + 1), weights_(static_cast<size_t>(size_) * size_, 0.0) {
  for (int32_t out = 0; out <= max_players; ++out) weights_[out] = 1.0 / (out + 1.0);
  for (int32_t in = 1; in <= max_players; ++in)
    for (int32_t out = 0; in + out <= max_players; ++out)
      weights_[static_cast<size_t>(in) * size_ + out] = (*this)(in - 1, out + 1) * in / (out + 1.0);
}

}  // namespace polyleaf
