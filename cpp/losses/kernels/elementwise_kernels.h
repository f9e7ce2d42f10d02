// The element-wise losses: one struct each, and a list of them at the end. CPU and GPU compile the
// same formulas.
//
// A struct says its name, the names of its params, where it has any, and the formulas, scalar
// functions that the loop around them vectorises: `gradient`, if its Hessian is 1, else
// `derivative`, which gives both; and `loss`. Their last argument is the number of the output (a
// level, the weight of positives).
#pragma once
#include "losses/kernels/vector_math.h"
#include "losses/loss_params.h"

namespace polyleaf::POLYLEAF_ISA_NAMESPACE {

// Parts of log-link gradients are clipped here, so that y * e^-z stays finite and can still be
// multiplied by a weight.
constexpr float kMaxGradientPart = 1e30f;

struct Derivative {
  float g, h;
};

// l = (z - y)^2 / 2
struct SquaredError {
  static constexpr const char* kName = "squared_error";
  float gradient(float z, float y, float) const { return z - y; }
  double loss(float z, float y, float) const {
    const double r = double(z) - double(y);
    return 0.5 * r * r;
  }
};

// l = |z - y|; the Hessian 1 is a scale for the split search; leaf values are updated to medians.
struct AbsoluteError {
  static constexpr const char* kName = "absolute_error";
  float gradient(float z, float y, float) const {
    return (z > y ? 1.0f : 0.0f) - (z < y ? 1.0f : 0.0f);
  }
  double loss(float z, float y, float) const {
    const double r = double(z) - double(y);
    return r < 0 ? -r : r;
  }
};

// l = level * (y - z) where y > z, (1 - level) * (z - y) elsewhere
struct Quantile {
  static constexpr const char* kName = "quantile";
  float gradient(float z, float y, float level) const {
    return (z > y ? 1.0f - level : 0.0f) - (z < y ? level : 0.0f);
  }
  double loss(float z, float y, float level) const {
    const double r = double(y) - double(z);
    return r > 0 ? double(level) * r : (double(level) - 1.0) * r;
  }
};

// l = r^2 / 2 where |r| <= delta, delta * (|r| - delta / 2) elsewhere. The Hessian 1 is an upper
// bound, so a Newton step never overshoots.
struct Huber {
  static constexpr const char* kName = "huber";
  static constexpr const char* kParameters[] = {"delta"};
  float delta;
  explicit Huber(const LossParams& params) : delta(params[0]) {}
  float gradient(float z, float y, float) const { return max(min(z - y, delta), -delta); }
  double loss(float z, float y, float) const {
    double r = double(z) - double(y);
    r = r < 0 ? -r : r;
    const double inside = r < double(delta) ? r : double(delta);
    return inside * (r - 0.5 * inside);
  }
};

// l = delta^2 ln cosh(r / delta), like r^2 / 2 near 0 and like delta |r| far away. The Hessian 1 is
// an upper bound.
struct LogCosh {
  static constexpr const char* kName = "log_cosh";
  static constexpr const char* kParameters[] = {"delta"};
  static constexpr float kSmallRatio = 0.25f;
  float delta;
  explicit LogCosh(const LossParams& params) : delta(params[0]) {}
  float gradient(float z, float y, float) const {
    const float ratio = (z - y) / delta, size = magnitude(ratio);
    // 1 - e^-2s has few digits near 0, where the tangent is a series.
    const float x = size * size, e = exp_saturating(-2.0f * size);
    float series = 0.0218694885f * x - 0.0539682540f;
    series = (series * x + 0.133333333f) * x - 0.333333333f;
    const float tangent = size < kSmallRatio ? size + size * (x * series) : (1.0f - e) / (1.0f + e);
    return ratio < 0 ? -(delta * tangent) : delta * tangent;
  }
  double loss(float z, float y, float) const {
    const float ratio = (z - y) / delta, size = magnitude(ratio);
    // ln cosh s = s - ln 2 + ln(1 + e^-2s), and s^2 / 2 - s^4 / 12 + s^6 / 45 - ... near 0
    const double s = double(size), x = s * s;
    const double near = x * (0.5 - x * (1.0 / 12.0 - x * (1.0 / 45.0 - x * (17.0 / 2520.0))));
    const double far =
        s - 0.69314718055994531 + double(log1p_positive(exp_saturating(-2.0f * size)));
    return double(delta) * double(delta) * (size < kSmallRatio ? near : far);
  }
};

// l = w (z - y)^2 / 2 with w = 2 level where y > z, and 2 (1 - level) elsewhere; level 1/2 is the
// squared error.
struct Expectile {
  static constexpr const char* kName = "expectile";
  static float weight(float z, float y, float level) {
    return z < y ? 2.0f * level : 2.0f - 2.0f * level;
  }
  Derivative derivative(float z, float y, float level) const {
    const float w = weight(z, y, level);
    return {w * (z - y), w};
  }
  double loss(float z, float y, float level) const {
    const double r = double(z) - double(y);
    return 0.5 * double(weight(z, y, level)) * r * r;
  }
};

// Deviances with a log link, variance = mean^p, p in [1, 2]. With the model part b = e^((2-p) z)
// and the data part s = y e^((1-p) z) the gradient is b - s, and the Hessian a weighted sum of b
// and s. kPower 1: Poisson (s = y), 2: Gamma (b = 1), 0: Tweedie.
template <int kPower>
struct LogLinkPower {
  float one_minus_p, two_minus_p, model_hessian, data_hessian;
  double inverse_one, inverse_two;  // 1 / (1 - p), 1 / (2 - p); Tweedie only
  explicit LogLinkPower(const LossParams& params)
      : one_minus_p(1.0f - params[0]),
        two_minus_p(2.0f - params[0]),
        model_hessian(params[1]),
        data_hessian(params[2]),
        inverse_one(1.0 / double(one_minus_p)),
        inverse_two(1.0 / double(two_minus_p)) {}
  float model(float z) const {
    return kPower == 2 ? 1.0f : min(exp_saturating(two_minus_p * z), kMaxGradientPart);
  }
  float data(float z, float y) const {
    return kPower == 1 ? y : min(y * exp_saturating(one_minus_p * z), kMaxGradientPart);
  }
  Derivative derivative(float z, float y, float) const {
    const float b = model(z), s = data(z, y);
    return {b - s, max(model_hessian * b + data_hessian * s, kMinHessian)};
  }
  double loss(float z, float y, float) const {
    if constexpr (kPower == 1) return double(model(z)) - double(y) * double(z);
    if constexpr (kPower == 2) return double(data(z, y)) + double(z);
    return double(model(z)) * inverse_two - double(data(z, y)) * inverse_one;
  }
};
struct LogLink {
  static constexpr const char* kName = "log_link";
  static constexpr const char* kParameters[] = {"variance_power", "model_hessian", "data_hessian"};
  template <class F>
  static void choose(const LossParams& params, F&& f) {
    const float two_minus_p = 2.0f - params[0];
    if (two_minus_p == 1.0f) return f(LogLinkPower<1>(params));
    if (two_minus_p == 0.0f) return f(LogLinkPower<2>(params));
    f(LogLinkPower<0>(params));
  }
};

// l = -s y ln p - (1 - y) ln(1 - p), p = 1 / (1 + e^-z), y in [0, 1], s the weight of positives
struct Logistic {
  static constexpr const char* kName = "logistic";
  Derivative derivative(float z, float y, float positive) const {
    // The smaller of p and 1 - p is e / (1 + e), which keeps its digits.
    const float e = exp_saturating(-magnitude(z));
    const float larger = 1.0f / (1.0f + e), smaller = e * larger;
    const float p = z < 0 ? smaller : larger, not_p = z < 0 ? larger : smaller;
    const float sy = positive * y, ny = 1.0f - y;
    return {ny * p - sy * not_p, max((ny + sy) * (larger * smaller), kMinHessian)};
  }
  double loss(float z, float y, float positive) const {
    const double rest = double(log1p_positive(exp_saturating(-magnitude(z))));
    const double minus_log_p = (z < 0 ? -double(z) : 0.0) + rest,
                 minus_log_not_p = (z < 0 ? 0.0 : double(z)) + rest;
    return double(positive) * double(y) * minus_log_p + (1.0 - double(y)) * minus_log_not_p;
  }
};

// l = -s y (1 - p)^gamma ln p - (1 - y) p^gamma ln(1 - p), y in {0, 1}. With q the probability of
// the wrong label the gradient is that of the cross-entropy, q, times q^gamma - gamma (1 - q)
// q^(gamma - 1) ln(1 - q). The Hessian takes this factor for a constant, so that it is positive.
struct Focal {
  static constexpr const char* kName = "focal";
  static constexpr const char* kParameters[] = {"gamma"};
  float gamma;
  explicit Focal(const LossParams& params) : gamma(params[0]) {}
  Derivative derivative(float z, float y, float positive) const {
    const float margin = y > 0.5f ? z : -z;
    const float e = exp_saturating(-magnitude(z));
    const float larger = 1.0f / (1.0f + e), smaller = e * larger, rest = log1p_positive(e);
    const float q = margin < 0 ? larger : smaller;
    const float minus_log_q = margin < 0 ? rest : rest + margin;
    // -(1 - q) / q * ln(1 - q)
    const float ratio = margin < 0 ? e * (rest - margin) : rest / e;
    const float factor = exp_saturating(-gamma * minus_log_q) * (1.0f + gamma * ratio);
    const float weighted = y > 0.5f ? positive * factor : factor;
    const float g = weighted * q;
    return {y > 0.5f ? -g : g, max(weighted * (larger * smaller), kMinHessian)};
  }
  double loss(float z, float y, float positive) const {
    const float margin = y > 0.5f ? z : -z;
    const double rest = double(log1p_positive(exp_saturating(-magnitude(z))));
    const double minus_log_p = (margin < 0 ? -double(margin) : 0.0) + rest;
    const double minus_log_q = (margin < 0 ? 0.0 : double(margin)) + rest;
    const double factor = double(exp_saturating(-gamma * float(minus_log_q)));
    return (y > 0.5f ? double(positive) : 1.0) * factor * minus_log_p;
  }
};

// l = max(0, 1 - t z)^2 / 2 with t = 2 y - 1 in {-1, +1}. The Hessian 1 is an upper bound, reached
// inside the margin.
struct SquaredHinge {
  static constexpr const char* kName = "squared_hinge";
  float gradient(float z, float y, float) const {
    const float t = 2.0f * y - 1.0f;
    return -t * max(1.0f - t * z, 0.0f);
  }
  double loss(float z, float y, float) const {
    const double margin = 1.0 - (2.0 * double(y) - 1.0) * double(z);
    return margin > 0 ? 0.5 * margin * margin : 0.0;
  }
};

template <class L>
constexpr bool kHasUnitHessian = requires(const L loss) { loss.gradient(0.0f, 0.0f, 0.0f); };

// Call f with the loss that has these parameters.
template <class L, class F>
void dispatch_loss(const LossParams& params, F&& f) {
  if constexpr (requires { L::choose(params, f); })
    L::choose(params, f);
  else if constexpr (requires { L::kParameters; })
    f(L(params));
  else
    f(L());
}

// The losses in the order of the registry.
template <class... L>
struct Losses {};
using ElementwiseLosses = Losses<SquaredError, AbsoluteError, Quantile, Huber, LogLink, Logistic,
                                 SquaredHinge, LogCosh, Expectile, Focal>;

}  // namespace polyleaf::POLYLEAF_ISA_NAMESPACE
