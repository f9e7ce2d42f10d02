// Gauss-Legendre quadrature on [0, 1]: integrals of polynomials as sums over a few points.
//
// Points and weights are made of +, -, * and / alone, so that they are the same bits on every
// machine. Owns: points and weights. Must not know: what is integrated.
#pragma once
#include <vector>

namespace polyleaf {

// sum over i of weight[i] * p(at[i]) is the integral of p over [0, 1], for polynomials p of degree
// < 2 * size.
struct Quadrature {
  std::vector<double> at, weight;
};

// Rules of 0, 1, ..., most points.
std::vector<Quadrature> gauss_legendre(int max_points);

}  // namespace polyleaf
