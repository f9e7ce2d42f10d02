// The score of trees that must obey directions: of an output whose children would disobey the feature's
// direction both take the one value that is best for both, which what is below them must not pass. What
// leaves hold in the end obeys by itself (leaves/monotone.h); here splits learn what that will cost.
#pragma once
#include <limits>

#include "scores/score.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

// Of sixteen outputs, or sixteen candidates of one. Coefficients are curvature and lambda.
struct ObeyingBlock {
  const Regularisation& r;
  f32x16 direction, low, high;

  POLYLEAF_METHOD f32x16 value(f32x16 g, f32x16 c, float alpha) const {
    const Step<f32x16, float> step(g, c, alpha, r.max_delta_step);
    return smaller(larger(select(g < 0.0f, step.size, -step.size), low), high);
  }
  // Twice what a value takes off the loss.
  POLYLEAF_METHOD f32x16 term(f32x16 g, f32x16 c, f32x16 w) const {
    return -((2.0f * g) * w + (c * w) * w) - (2.0f * r.alpha) * select(w < 0.0f, -w, w);
  }
  POLYLEAF_METHOD f32x16 pair(f32x16 gl, f32x16 gr, f32x16 cl, f32x16 cr) const {
    const f32x16 wl = value(gl, cl, r.alpha), wr = value(gr, cr, r.alpha), both = of_both(gl, gr, cl, cr);
    const auto disobeys = direction * (wr - wl) < 0.0f;
    return term(gl, cl, select(disobeys, both, wl)) + term(gr, cr, select(disobeys, both, wr));
  }
  // NaN where each child has its own.
  POLYLEAF_METHOD f32x16 pooled(f32x16 gl, f32x16 gr, f32x16 cl, f32x16 cr) const {
    const f32x16 wl = value(gl, cl, r.alpha), wr = value(gr, cr, r.alpha);
    const f32x16 none = broadcast(std::numeric_limits<float>::quiet_NaN());
    return select(direction * (wr - wl) < 0.0f, of_both(gl, gr, cl, cr), none);
  }
  POLYLEAF_METHOD f32x16 of_both(f32x16 gl, f32x16 gr, f32x16 cl, f32x16 cr) const {
    return value(gl + gr, cl + cr, 2.0f * r.alpha);
  }
  POLYLEAF_METHOD f32x16 single(f32x16 g, f32x16 c) const { return term(g, c, value(g, c, r.alpha)); }
};

template <bool PER_OUTPUT>
struct Obeying {
  static constexpr bool kPerOutput = PER_OUTPUT;
  Regularisation r;
  const float *direction, *low, *high;  // of every output, readable to the next sixteen

  POLYLEAF_METHOD f32x16 coefficient(f32x16 h) const { return h + r.lambda; }
  POLYLEAF_METHOD ObeyingBlock block(int z) const {
    return {r, load<f32x16>(direction + 16 * z), load<f32x16>(low + 16 * z), load<f32x16>(high + 16 * z)};
  }
  POLYLEAF_METHOD ObeyingBlock narrow() const {
    return {r, broadcast(direction[0]), broadcast(low[0]), broadcast(high[0])};
  }
};

// A score as it is for the outputs 16 z to 16 z + 15, and for one output.
template <Score S>
POLYLEAF_INLINE const S& block_of(const S& score, int) {
  return score;
}
template <bool P>
POLYLEAF_INLINE ObeyingBlock block_of(const Obeying<P>& score, int z) {
  return score.block(z);
}
template <Score S>
POLYLEAF_INLINE const S& narrow_of(const S& score) {
  return score;
}
template <bool P>
POLYLEAF_INLINE ObeyingBlock narrow_of(const Obeying<P>& score) {
  return score.narrow();
}

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
