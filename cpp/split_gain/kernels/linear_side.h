// What a linear score reads of one side of a candidate, with any number of regressors of the node's
// own.
//
// Included by the scans for linear leaves only, inside the namespace of an instruction set.
#pragma once
#include "split_gain/kernels/candidates.h"
#include "split_gain/linear.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

constexpr int kRow = 272;  // numbers kept for the candidates of a feature

// Sums of one side in the unit of the derivatives. LANE(j): the integer sum of lane j over all rows
// or over those where x is there; PRODUCT(q): product number q with x. As doubles, or as eight
// candidates each. P: as LinearSide has it.
template <class V, int P, class All, class There, class Product>
struct SideSums {
  const ScanNode& node;
  const ChannelLayout& layout;
  const All& all;
  const There& there;
  const Product& product;
  bool with_x;

  POLYLEAF_METHOD double step(int lane) const {
    return static_cast<double>(node.linear->step[lane]);
  }
  POLYLEAF_METHOD int h_lane() const { return layout.hessian_offset; }
  // Hessian of the rows, or their number where it is 1.
  template <class Sums>
  POLYLEAF_METHOD V hessian(const Sums& sums, V count) const {
    return h_lane() < 0 ? count : sums(h_lane()) * step(h_lane());
  }
  POLYLEAF_METHOD double h_step() const { return h_lane() < 0 ? 1.0 : step(h_lane()); }

  // Of all outputs; `slopes` (p + 1, K), where wanted: of x, then of the node's own regressors.
  POLYLEAF_METHOD V score(V count, V count_there, V* weight, V* middle, double* slopes,
                          double* terms) const {
    const LinearScan& linear = *node.linear;
    const int K = layout.n_outputs, first = layout.first_product(),
              second = layout.second_moments();
    const int gz = layout.gradient_products();
    LinearSide<V, P> side;
    side.p = layout.regressors;
    *weight = hessian(all, count);
    side.moments(
        count, *weight,
        [&](int i) __attribute__((always_inline)) { return all(first + i) * step(first + i); },
        [&](int i, int j) __attribute__((always_inline)) {
          const int lane = second + packed(i, j);
          return all(lane) * step(lane);
        },
        node.config->reg_lambda, linear.ridge.data(), linear.noise.data());
    if (with_x)
      side.regressor(
          hessian(there, count_there), product(K) * h_step(), product(K + 1) * h_step(),
          [&](int i) __attribute__((always_inline)) { return there(first + i) * step(first + i); },
          [&](int i)
              __attribute__((always_inline)) { return product(K + 2 + i) * step(first + i); },
          linear.slope_ridge);
    side.eliminate();
    *middle = side.middle;
    V sums[8] = {};  // output k is added to number k mod 8
    for (int k = 0; k < K; ++k) {
      V y[side.kMost + 1];
      const V g = all(k) * step(k);
      side.right_hand_side(
          g, with_x ? product(k) * step(k) : V{}, with_x ? there(k) * step(k) : V{},
          [&](int i)
              __attribute__((always_inline)) { return all(gz + i * K + k) * step(gz + i * K + k); },
          y);
      const V term = side.score(g, y);
      sums[k & 7] += term;
      if constexpr (sizeof(V) == sizeof(double)) {
        if (terms != nullptr) terms[k] = term;
        if (slopes == nullptr) continue;
        side.solve(y);
        for (int j = 0; j <= side.n(); ++j) slopes[j * K + k] = -y[j];
      }
    }
    if (K == 1) return sums[0];
    for (int half = 4; half > 0; half /= 2)
      for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
    return sums[0];
  }
};

// Score sums as floats, -inf where a child is too light.
POLYLEAF_INLINE void store_scores(const f64x8& sum, const f64x8& weight_left,
                                  const f64x8& weight_right, double least, float* out) {
  const f64x8 none = broadcast(static_cast<double>(kNone));
  store_floats(out, select(weight_right >= least, select(weight_left >= least, sum, none), none));
}

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
