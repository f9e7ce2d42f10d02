// The score of trees that must obey directions: of an output whose children would disobey the
// feature's direction both take the one value that is best for both, which what is below them must
// not pass. What leaves hold in the end obeys by itself (leaves/monotone.h); here splits learn what
// that will cost.
#pragma once
#include "split_gain/score.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

// Of sixteen outputs, or sixteen candidates of one. Coefficients are Hessian and lambda.
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
    const f32x16 wl = value(gl, cl, r.alpha), wr = value(gr, cr, r.alpha),
                 both = of_both(gl, gr, cl, cr);
    const auto disobeys = direction * (wr - wl) < 0.0f;
    return term(gl, cl, select(disobeys, both, wl)) + term(gr, cr, select(disobeys, both, wr));
  }
  // NaN where each child has its own.
  POLYLEAF_METHOD f32x16 pooled(f32x16 gl, f32x16 gr, f32x16 cl, f32x16 cr) const {
    const f32x16 wl = value(gl, cl, r.alpha), wr = value(gr, cr, r.alpha);
    const f32x16 none = broadcast(__builtin_bit_cast(float, 0x7fc00000u));
    return select(direction * (wr - wl) < 0.0f, of_both(gl, gr, cl, cr), none);
  }
  POLYLEAF_METHOD f32x16 of_both(f32x16 gl, f32x16 gr, f32x16 cl, f32x16 cr) const {
    return value(gl + gr, cl + cr, 2.0f * r.alpha);
  }
  POLYLEAF_METHOD f32x16 single(f32x16 g, f32x16 c) const {
    return term(g, c, value(g, c, r.alpha));
  }
};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
