// The leaf problem of one side of a split where leaves are linear (GBDT-PL eq. 7): an intercept,
// the slope of the candidate's feature x, and slopes of the p regressors z that the node has of its
// own. Everything is centred on the side, so the intercept's part is that of a constant leaf.
// Float64; V is a double, or a vector of candidates.
//
// One regressor that those before it (x first) all but determine is left out.
//
// Candidates of one output and at most one regressor have the same in closed form, with two
// divisions for five (OneOutput).
#pragma once
#include "base/kernels/lanes.h"
#include "base/packed.h"
#include "quantised_gradients/quantised_gradients.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

constexpr double kLeastSpread =
    1.0 / (1 << 30);  // of x, relative to its second moment: below, a constant
constexpr int kAnyRegressors = -1;
constexpr double kLeastMomentPivot = 1.0 / (1 << 10);  // of z, whose moments are rounded

template <class V>
POLYLEAF_INLINE V inverse_of(V x) {  // 0 where x is not above 0
  const auto positive = x > 0.0;
  return select(positive, 1.0 / select(positive, x, V{} + 1.0), V{});
}

// One output, at most one regressor z: twice the loss removed. `there`: sums over the rows where x
// is there. Each part is brought on one denominator: with centred moments a / h_there, b / h, c /
// h_there of x and z, and right-hand sides v / h_there, w / h, eliminating x leaves (h v^2 d + e^2)
// / (h a h_there d).
template <class V, int P>
struct OneOutput {
  V count, h, g, hz, hzz, gz;
  V h_there, g_there, hz_there;
  V gx, hx, hxx, hzx;

  POLYLEAF_INLINE_MEMBER V score(double reg_lambda, double slope_ridge, double ridge, double noise) const {
    const V constant = (g * g) * inverse_of(h + reg_lambda);
    const V spread = h_there * hxx - hx * hx;
    const auto joins = spread > kLeastSpread * (hxx * h_there);
    const V one = V{} + 1.0;
    const V v = select(joins, h_there * gx - hx * g_there, V{});
    const V a = select(joins, (spread + h_there * slope_ridge) * h_there, one);
    if constexpr (P == 0) return constant + (v * v) * inverse_of(a);
    const V c = select(joins, h_there * hzx - hx * hz_there, V{});
    const V b = (h * hzz - hz * hz) + h * (ridge + noise * count);
    const V w = h * gz - g * hz, ch = c * h, q = a * h;
    V d = a * b - ch * c, e = a * w - ch * v;
    const auto kept = d > (kLeastMomentPivot * hzz) * q;
    d = select(kept, d, one);
    e = select(kept, e, V{});
    return constant + (((v * v) * h) * d + e * e) * inverse_of(q * d);
  }
};

// Sums of a side, in the unit of the derivatives. Over all its rows: count, h, hz, hzz, and g, gz
// of one output at a time; over the rows where x is there: `h_there`, `hz_there`, `g_there`;
// products with x: hx, hxx, hzx, gx.
//
// P: how many z there are, or kAnyRegressors: then `p` says how many.
template <class V, int P>
struct LinearSide {
  static constexpr int kMost = P < 0 ? kMaxRegressors : P;
  int p = P;
  V A[packed_size(kMost + 1)];  // x, then z
  V kept[kMost + 1];            // the least pivots, then 1 / pivot, or 0
  V inverse, shrunk, middle;
  V hz[kMost > 0 ? kMost : 1];

  POLYLEAF_INLINE_MEMBER int n() const { return P < 0 ? p : P; }

  // The Gram matrix and its elimination. HZZ(i, j), j <= i; with_x: x takes part.
  template <class HZ, class HZZ>
  POLYLEAF_INLINE_MEMBER void moments(V count, V h, const HZ& hz_of, const HZZ& hzz_of, double reg_lambda,
                               const double* ridge, const double* noise) {
    inverse = inverse_of(h);
    shrunk = inverse_of(h + reg_lambda);
    middle = V{};
    for (int i = 0; i < n(); ++i) {
      hz[i] = hz_of(i);
      V* row = A + packed(i + 1, 0);
      row[0] = V{};
      for (int j = 0; j <= i; ++j) {
        const V second = hzz_of(i, j);
        row[j + 1] = second - (hz[i] * hz[j]) * inverse;
        if (j == i) kept[i + 1] = kLeastMomentPivot * second;
      }
      row[i + 1] = (row[i + 1] + ridge[i]) + noise[i] * count;
    }
    A[0] = V{};
    kept[0] = V{};
  }
  template <class HZThere, class HZX>
  POLYLEAF_INLINE_MEMBER void regressor(V h_there, V hx, V hxx, const HZThere& hz_there, const HZX& hzx,
                                 double slope_ridge) {
    middle = hx * inverse_of(h_there);
    const V spread = hxx - hx * middle;
    A[0] = select(spread > kLeastSpread * hxx, spread + slope_ridge, V{});
    for (int i = 0; i < n(); ++i) A[packed(i + 1, 0)] = hzx(i) - middle * hz_there(i);
  }
  POLYLEAF_INLINE_MEMBER void eliminate() {
    eliminate_above(A, n() + 1, static_cast<V*>(nullptr), 0, kept);
  }

  // The right-hand side of one output; gx: product of its gradient with x, where x takes part.
  template <class GZ>
  POLYLEAF_INLINE_MEMBER void right_hand_side(V g, V gx, V g_there, const GZ& gz, V* y) const {
    y[0] = gx - middle * g_there;
    for (int i = 0; i < n(); ++i) y[i + 1] = gz(i) - g * (hz[i] * inverse);
    eliminate_right_hand_side(A, n() + 1, y, kept);
  }
  // What one output adds to twice the loss removed.
  POLYLEAF_INLINE_MEMBER V score(V g, const V* y) const {
    return quadratic_form(n() + 1, y, kept, (g * g) * shrunk);
  }
  // y becomes minus the slopes.
  POLYLEAF_INLINE_MEMBER void solve(V* y) const { substitute(A, n() + 1, y, 1, kept); }
};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
