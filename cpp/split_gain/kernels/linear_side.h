// Least squares problem of one side of a split with linear leaves (GBDT-PL eq. 7): an intercept,
// the slope of the candidate's feature x, and slopes of the node's p regressors z. Everything is
// centred on the side, so the intercept's part is that of a constant leaf. Float64; V is a double,
// or a vector of candidates.
//
// A regressor that is almost a linear combination of those before it (x first) is left out.
//
// Candidates of one output and at most one regressor use a closed form, with two divisions instead
// of five (OneOutput).
#pragma once
#include "base/kernels/lanes.h"
#include "base/packed.h"
#include "quantised_gradients/quantised_gradients.h"
#include "split_gain/kernels/candidates.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

// Spread of x relative to its second moment, below which x is a constant.
constexpr double kMinSpread = 1.0 / (1 << 30);
constexpr int kAnyRegressors = -1;
constexpr double kMinMomentPivot = 1.0 / (1 << 10);  // of z, whose moments are rounded

template <class V>
POLYLEAF_INLINE V invert_positive(V x) {  // 0 if x is not positive
  const auto positive = x > 0.0;
  return select(positive, 1.0 / select(positive, x, V{} + 1.0), V{});
}

// One output, at most one regressor z: twice the loss removed. `there`: sums over the rows where x
// is present. Each part has one denominator: with centred moments a / h_there, b / h, c / h_there
// of x and z, and right-hand sides v / h_there, w / h, eliminating x leaves (h v^2 d + e^2) / (h a
// h_there d).
template <class V, int P>
struct OneOutput {
  V count, h, g, hz, hzz, gz;
  V h_there, g_there, hz_there;
  V gx, hx, hxx, hzx;

  POLYLEAF_INLINE_MEMBER V score(double reg_lambda, double slope_ridge, double ridge,
                                 double noise) const {
    const V constant = (g * g) * invert_positive(h + reg_lambda);
    const V spread = h_there * hxx - hx * hx;
    const auto joins = spread > kMinSpread * (hxx * h_there);
    const V one = V{} + 1.0;
    const V v = select(joins, h_there * gx - hx * g_there, V{});
    const V a = select(joins, (spread + h_there * slope_ridge) * h_there, one);
    if constexpr (P == 0) return constant + (v * v) * invert_positive(a);
    const V c = select(joins, h_there * hzx - hx * hz_there, V{});
    const V b = (h * hzz - hz * hz) + h * (ridge + noise * count);
    const V w = h * gz - g * hz, ch = c * h, q = a * h;
    V d = a * b - ch * c, e = a * w - ch * v;
    const auto kept = d > (kMinMomentPivot * hzz) * q;
    d = select(kept, d, one);
    e = select(kept, e, V{});
    return constant + (((v * v) * h) * d + e * e) * invert_positive(q * d);
  }
};

// Sums of a side, in units of the derivatives. Over all its rows: count, h, hz, hzz, and g, gz of
// one output at a time; over the rows where x is present: `h_there`, `hz_there`, `g_there`;
// products with x: hx, hxx, hzx, gx.
//
// P: number of regressors z, or kAnyRegressors: then `p` is their number.
template <class V, int P>
struct LinearSide {
  static constexpr int kMaxRegressorsHere = P < 0 ? kMaxRegressors : P;
  int p = P;
  V A[packed_size(kMaxRegressorsHere + 1)];  // x, then z
  V kept[kMaxRegressorsHere + 1];            // smallest accepted pivots, then 1 / pivot or 0
  V inverse, inverse_penalised, middle;
  V hz[kMaxRegressorsHere > 0 ? kMaxRegressorsHere : 1];

  POLYLEAF_INLINE_MEMBER int n() const { return P < 0 ? p : P; }

  // Compute the Gram matrix. HZZ(i, j), j <= i.
  template <class HZ, class HZZ>
  POLYLEAF_INLINE_MEMBER void moments(V count, V h, const HZ& get_hz, const HZZ& get_hzz,
                                      double reg_lambda, const double* ridge, const double* noise) {
    inverse = invert_positive(h);
    inverse_penalised = invert_positive(h + reg_lambda);
    middle = V{};
    for (int i = 0; i < n(); ++i) {
      hz[i] = get_hz(i);
      V* row = A + packed(i + 1, 0);
      row[0] = V{};
      for (int j = 0; j <= i; ++j) {
        const V second = get_hzz(i, j);
        row[j + 1] = second - (hz[i] * hz[j]) * inverse;
        if (j == i) kept[i + 1] = kMinMomentPivot * second;
      }
      row[i + 1] = (row[i + 1] + ridge[i]) + noise[i] * count;
    }
    A[0] = V{};
    kept[0] = V{};
  }
  template <class HZThere, class HZX>
  POLYLEAF_INLINE_MEMBER void regressor(V h_there, V hx, V hxx, const HZThere& hz_there,
                                        const HZX& hzx, double slope_ridge) {
    middle = hx * invert_positive(h_there);
    const V spread = hxx - hx * middle;
    A[0] = select(spread > kMinSpread * hxx, spread + slope_ridge, V{});
    for (int i = 0; i < n(); ++i) A[packed(i + 1, 0)] = hzx(i) - middle * hz_there(i);
  }
  POLYLEAF_INLINE_MEMBER void eliminate() {
    eliminate_above(A, n() + 1, static_cast<V*>(nullptr), 0, kept);
  }

  // Compute the right-hand side of one output; gx: product of its gradient with x, if x is used.
  template <class GZ>
  POLYLEAF_INLINE_MEMBER void right_hand_side(V g, V gx, V g_there, const GZ& gz, V* y) const {
    y[0] = gx - middle * g_there;
    for (int i = 0; i < n(); ++i) y[i + 1] = gz(i) - g * (hz[i] * inverse);
    eliminate_right_hand_side(A, n() + 1, y, kept);
  }
  // Return what one output adds to twice the loss removed.
  POLYLEAF_INLINE_MEMBER V score(V g, const V* y) const {
    return quadratic_form(n() + 1, y, kept, (g * g) * inverse_penalised);
  }
  // Turn y into the negated slopes.
  POLYLEAF_INLINE_MEMBER void solve(V* y) const { substitute(A, n() + 1, y, 1, kept); }
};

constexpr int kRow = 272;  // numbers per row: candidates of a feature, padded

// Sums of one side in units of the derivatives. all(j), there(j): the integer sum of lane j over
// all rows, or over those where x is present; product(q): product q with x. As doubles, or as eight
// candidates each. P: see LinearSide.
template <class V, int P, class All, class There, class Product>
struct SideSums {
  const ScanNode& node;
  const ChannelLayout& layout;
  const All& all;
  const There& there;
  const Product& product;
  bool with_x;

  POLYLEAF_INLINE_MEMBER double step(int lane) const {
    return static_cast<double>(node.linear->step[lane]);
  }
  POLYLEAF_INLINE_MEMBER int h_lane() const { return layout.hessian_offset; }
  // Return the Hessian of the rows, or their number for a unit Hessian.
  template <class Sums>
  POLYLEAF_INLINE_MEMBER V hessian(const Sums& sums, V count) const {
    return h_lane() < 0 ? count : sums(h_lane()) * step(h_lane());
  }
  POLYLEAF_INLINE_MEMBER double h_step() const { return h_lane() < 0 ? 1.0 : step(h_lane()); }

  // Score all outputs; `slopes` (p + 1, K), if not nullptr: of x, then of the node's regressors.
  POLYLEAF_INLINE_MEMBER V score(V count, V count_there, V* weight, V* middle, double* slopes,
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
      V y[side.kMaxRegressorsHere + 1];
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

// Write score sums as floats, -inf if a child is too light.
POLYLEAF_INLINE void store_scores(const f64x8& sum, const f64x8& weight_left,
                                  const f64x8& weight_right, double min_weight, float* out) {
  const f64x8 none = broadcast(static_cast<double>(kNone));
  store_floats(
      out, select(weight_right >= min_weight, select(weight_left >= min_weight, sum, none), none));
}

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
