// The likelihoods: one struct each, and a table of them at the end. As in elementwise_kernels.h, a
// struct defines its name, the names of its parameters and the formulas, here for both scores of
// one target.
//
// The second score s is the logarithm of a scale; it is clipped to [`lowest`, `highest`], and
// derivatives outside are those at the bound. Finite scores and targets never give NaN or infinity.
#include "losses/kernels/gamma_math.h"
#include "losses/likelihoods.h"

namespace polyleaf::POLYLEAF_ISA_NAMESPACE {
namespace {

// Maximum step of one row before the ridge: a far outlier would multiply the scale by e^50, since
// Fisher's information only reflects what was expected.
constexpr float kMaxStep = 2.0f;
// Standardised deviations are clipped here, so that their squares can still be multiplied by a
// weight.
constexpr float kMaxDeviation = 1e12f;
// Logarithms of means are clipped here, so that squares of the means are finite.
constexpr float kMaxLogMean = 40.0f;

struct Derivatives {
  float g[2], h[2];
};

inline float bound_hessian(float g, float information) {
  return max(max(information, magnitude(g) * (1.0f / kMaxStep)), kMinHessian);
}

inline float clip(float x, float lowest, float highest) {
  return min(max(x, lowest), highest);
}

// -ln f = s + z^2 / 2, z = (y - location) / e^s.
struct Normal {
  static constexpr const char* kName = "normal";
  static constexpr const char* kParameters[] = {"lowest", "highest"};
  float lowest, highest;
  explicit Normal(const LossParams& params) : lowest(params[0]), highest(params[1]) {}
  Derivatives derivatives(float location, float s, float y) const {
    const float precision = exp_saturating(-clip(s, lowest, highest));
    const float z = clip((location - y) * precision, -kMaxDeviation, kMaxDeviation);
    const float gs = 1.0f - z * z;
    return {{z * precision, gs}, {precision * precision, bound_hessian(gs, 2.0f)}};
  }
};

// -ln f = s + (df + 1) / 2 ln(1 + z^2 / df), z = (y - location) / e^s. (Lange, Little and Taylor,
// "Robust statistical modeling using the t distribution", JASA 84, 1989, for the information.)
struct StudentT {
  static constexpr const char* kName = "student_t";
  static constexpr const char* kParameters[] = {"lowest", "highest", "df"};
  float lowest, highest, df;
  explicit StudentT(const LossParams& params)
      : lowest(params[0]), highest(params[1]), df(params[2]) {}
  Derivatives derivatives(float location, float s, float y) const {
    const float precision = exp_saturating(-clip(s, lowest, highest));
    const float z = clip((location - y) * precision, -kMaxDeviation, kMaxDeviation);
    const float share = (df + 1.0f) / (df + z * z), other = 1.0f / (df + 3.0f);
    const float gs = 1.0f - share * (z * z);
    const float location_information = (precision * precision) * ((df + 1.0f) * other);
    return {{share * (z * precision), gs},
            {location_information, bound_hessian(gs, 2.0f * df * other)}};
  }
};

// Mean e^m, coefficient of variation e^s: shape k = e^(-2 s). With v = ln y - m
// -ln f = k (e^v - 1 - v) + [ln gamma(k) - k ln k + k] + ln y.
struct Gamma {
  static constexpr const char* kName = "gamma_distribution";
  static constexpr const char* kParameters[] = {"lowest", "highest"};
  float lowest, highest;
  explicit Gamma(const LossParams& params) : lowest(params[0]), highest(params[1]) {}
  Derivatives derivatives(float m, float s, float y) const {
    const float log_k = -2.0f * clip(s, lowest, highest), k = exp_saturating(log_k);
    const float v = clip(log_normal(y) - m, -kMaxLogMean, kMaxLogMean);
    const float gm = -k * exp_minus_one(v);
    const float gs = -2.0f * (k * (digamma_excess(k, log_k) + exp_excess(v)));
    return {{gm, gs}, {bound_hessian(gm, k), bound_hessian(gs, 4.0f * trigamma_excess(k))}};
  }
};

// Mean e^m = u, variance u + u^2 e^(2 s): a Poisson of a gamma of shape r = e^(-2 s). With
//   x = u / r,
//   -ln f = ln gamma(r) - ln gamma(y + r) + (y + r) ln(1 + x) - y ln x + ln y!.
struct NegativeBinomial {
  static constexpr const char* kName = "negative_binomial";
  static constexpr const char* kParameters[] = {"lowest", "highest"};
  float lowest, highest;
  explicit NegativeBinomial(const LossParams& params) : lowest(params[0]), highest(params[1]) {}
  Derivatives derivatives(float m, float s, float y) const {
    const float log_r = -2.0f * clip(s, lowest, highest), r = exp_saturating(log_r);
    const float u = exp_saturating(min(m, kMaxLogMean));
    const float whole = r + u, share = r / whole;  // 1 / (1 + x)
    const float gm = (u - y) * share;
    const float gs = -2.0f * shape_derivative(r, y, u);
    const float shape_information = trigamma_excess(r) * ((1.0f - share) * (1.0f - share));
    // An upper bound of the information: the sum over all counts has no closed form. It is
    // exact for large counts or large r, within a factor of 2.5 for r >= .2, and of 5 at r = .05.
    return {{gm, gs},
            {bound_hessian(gm, u * share),
             bound_hessian(gs, 4.0f * shape_information * (whole / (whole + 1.0f)))}};
  }

  // r times the derivative of -ln f by r: r (digamma(r) - digamma(r + y) + ln(1 + x)) + (y - u) /
  // (1 + x). From `kFar` upwards all logarithms are one, of (r + y) / (r + u), whose leading term
  // goes.
  static float shape_derivative(float r, float y, float u) {
    const float t = (y - u) / (r + u);
    const float tail_y = digamma_tail(max(r + y, kFar)), tail_r = digamma_tail(max(r, kFar));
    const float far = r * (log_excess(t) + (tail_r - tail_y));
    float sum = 0.0f;  // digamma(r + y) - digamma(r), from kShift upwards
    for (int i = 0; i < kShift; ++i) {
      const float at = r + static_cast<float>(i);
      sum += y / (at * (at + y));
    }
    const float begin = r + static_cast<float>(kShift), end = begin + y;
    sum += (log_normal(end) - log_normal(begin)) + (digamma_tail(end) - digamma_tail(begin));
    const float near = r * ((log_normal(r + u) - log_normal(r)) - sum) + r * t;
    return r < kFar ? near : far;
  }
  static constexpr float kFar = 16.0f;
};

template <class L>
void derivatives(const LossParams& params, const LikelihoodChunk& chunk, float* g_out,
                 float* h_out) {
  const float* __restrict raw = chunk.raw, * __restrict target = chunk.target;
  const float* __restrict offset = chunk.offset, * __restrict weight = chunk.weight;
  float* __restrict g = g_out, * __restrict h = h_out;
  const L likelihood(params);
  const int64_t n = chunk.n;
  for (int64_t i = 0; i < n; ++i) {
    const Derivatives d = likelihood.derivatives(raw[2 * i] + offset[2 * i],
                                                 raw[2 * i + 1] + offset[2 * i + 1], target[i]);
    const float w = weight[i];
    g[2 * i] = d.g[0] * w;
    g[2 * i + 1] = d.g[1] * w;
    h[2 * i] = d.h[0] * w;
    h[2 * i + 1] = d.h[1] * w;
  }
}

void digamma_array(const float* x, float* out, int64_t n) {
  float* __restrict result = out;
  for (int64_t i = 0; i < n; ++i) result[i] = digamma_excess(x[i], log_normal(x[i]));
}

void trigamma_array(const float* x, float* out, int64_t n) {
  float* __restrict result = out;
  for (int64_t i = 0; i < n; ++i) result[i] = trigamma_excess(x[i]);
}

template <class L>
constexpr LikelihoodKernels make_kernels() {
  LikelihoodKernels kernels{L::kName, {}, derivatives<L>};
  const char** to = kernels.parameters;
  for (const char* parameter : L::kParameters) *to++ = parameter;
  return kernels;
}

template <class... L>
constexpr LikelihoodKernels kLikelihoods[] = {make_kernels<L>()...};

template <int n>
constexpr LossTable<LikelihoodKernels> table(const LikelihoodKernels (&likelihoods)[n]) {
  return {likelihoods, n};
}

}  // namespace

extern const LikelihoodTable likelihood_kernels;
const LikelihoodTable likelihood_kernels{
    table(kLikelihoods<Normal, StudentT, Gamma, NegativeBinomial>), digamma_array, trigamma_array};

}  // namespace polyleaf::POLYLEAF_ISA_NAMESPACE
