// Score of trees with monotone constraints: if the values of the children of a split would violate
// the feature's constraint on an output, both children take the one value that is best for both,
// and no value below may pass it. The leaf values themselves are projected later
// (monotone_leaves.h); the score accounts for what that costs a split.
#pragma once
#include "split_gain/separable_score.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

// Score of sixteen outputs, or of one output for sixteen candidates. Coefficients are the Hessian
// and lambda.
struct MonotoneBlock {
  const Regularisation& r;
  f32x16 constraint, low, high;

  POLYLEAF_INLINE_MEMBER f32x16 value(f32x16 g, f32x16 c, float alpha) const {
    const Step<f32x16, float> step(g, c, alpha, r.max_delta_step);
    return min(max(select(g < 0.0f, step.size, -step.size), low), high);
  }
  // Return twice the loss that a value removes.
  POLYLEAF_INLINE_MEMBER f32x16 term(f32x16 g, f32x16 c, f32x16 w) const {
    return -((2.0f * g) * w + (c * w) * w) - (2.0f * r.alpha) * select(w < 0.0f, -w, w);
  }
  POLYLEAF_INLINE_MEMBER f32x16 pair(f32x16 gl, f32x16 gr, f32x16 cl, f32x16 cr) const {
    const f32x16 wl = value(gl, cl, r.alpha), wr = value(gr, cr, r.alpha),
                 tied_value = get_tied_value(gl, gr, cl, cr);
    const auto is_violated = constraint * (wr - wl) < 0.0f;
    return term(gl, cl, select(is_violated, tied_value, wl)) +
           term(gr, cr, select(is_violated, tied_value, wr));
  }
  // Return the tied values; NaN where each child has its own value.
  POLYLEAF_INLINE_MEMBER f32x16 tied(f32x16 gl, f32x16 gr, f32x16 cl, f32x16 cr) const {
    const f32x16 wl = value(gl, cl, r.alpha), wr = value(gr, cr, r.alpha);
    const f32x16 none = broadcast(__builtin_bit_cast(float, 0x7fc00000u));
    return select(constraint * (wr - wl) < 0.0f, get_tied_value(gl, gr, cl, cr), none);
  }
  POLYLEAF_INLINE_MEMBER f32x16 get_tied_value(f32x16 gl, f32x16 gr, f32x16 cl, f32x16 cr) const {
    return value(gl + gr, cl + cr, 2.0f * r.alpha);
  }
  POLYLEAF_INLINE_MEMBER f32x16 single(f32x16 g, f32x16 c) const {
    return term(g, c, value(g, c, r.alpha));
  }
};

// Score of trees with monotone constraints (monotone_constraints.h) for any number of outputs, and
// functions that select the outputs of a score. Included by kernels only, inside the namespace of
// an instruction set.

template <bool PER_OUTPUT>
struct MonotoneScore {
  static constexpr bool kPerOutput = PER_OUTPUT;
  Regularisation r;
  const float *constraint, *low, *high;  // one per output, readable to the next sixteen

  POLYLEAF_INLINE_MEMBER f32x16 coefficient(f32x16 h) const { return h + r.lambda; }
  POLYLEAF_INLINE_MEMBER MonotoneBlock block(int z) const {
    return {r, load<f32x16>(constraint + 16 * z), load<f32x16>(low + 16 * z),
            load<f32x16>(high + 16 * z)};
  }
  POLYLEAF_INLINE_MEMBER MonotoneBlock narrow() const {
    return {r, broadcast(constraint[0]), broadcast(low[0]), broadcast(high[0])};
  }
};

// Return a score for the outputs 16 z to 16 z + 15, or for a single output.
template <Score S>
POLYLEAF_INLINE const S& get_block(const S& score, int) {
  return score;
}
template <bool P>
POLYLEAF_INLINE MonotoneBlock get_block(const MonotoneScore<P>& score, int z) {
  return score.block(z);
}
template <Score S>
POLYLEAF_INLINE const S& get_narrow(const S& score) {
  return score;
}
template <bool P>
POLYLEAF_INLINE MonotoneBlock get_narrow(const MonotoneScore<P>& score) {
  return score.narrow();
}

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
