// Gauss-Legendre quadrature on [0, 1]: integrals of polynomials as sums over a few points.
//
// Points and weights use only +, -, * and /, so they are the same bits on every machine.
#pragma once
#include <vector>

namespace polyleaf {

// sum over i of weight[i] * p(at[i]) is the integral of p over [0, 1], for polynomials p of degree
// < 2 * size.
struct Quadrature {
  std::vector<double> at, weight;
};

// Return rules of 0, 1, ..., max_points points.
std::vector<Quadrature> gauss_legendre(int max_points);

}  // namespace polyleaf
