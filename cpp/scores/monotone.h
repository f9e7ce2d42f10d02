// A score for splits on a feature that outputs must not fall, or not rise, with: an output whose children
// would disobey gives both the one value that is best for both. What leaves hold in the end obeys by itself
// (leaves/monotone.h); here splits learn what that will cost.
#pragma once
#include "scores/score.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

// Of sixteen outputs, or sixteen candidates of one.
template <Score S>
struct ObeyingBlock {
  const S& free;
  f32x16 direction;

  POLYLEAF_METHOD f32x16 value(f32x16 g, f32x16 c) const {
    const Step<f32x16, float> step(g, c, free.r.alpha, free.r.max_delta_step);
    return select(g < 0.0f, step.size, -step.size);
  }
  POLYLEAF_METHOD f32x16 pooled(f32x16 g, f32x16 c) const {
    const S both{{free.r.lambda, 2.0f * free.r.alpha, free.r.max_delta_step}};
    return both.single(g, both.of_sum(c));
  }
  // Coefficients are curvature and lambda.
  POLYLEAF_METHOD f32x16 pair(f32x16 gl, f32x16 gr, f32x16 cl, f32x16 cr) const {
    const f32x16 disobedience = direction * (value(gr, cr) - value(gl, cl));
    return select(disobedience < 0.0f, pooled(gl + gr, cl + cr),
                  free.pair(gl, gr, free.of_sum(cl), free.of_sum(cr)));
  }
};

template <Score S>
struct Obeying {
  static constexpr bool kPerOutput = S::kPerOutput;
  S free;
  const float* direction;  // of every output, zeros after them to the next sixteen

  POLYLEAF_METHOD f32x16 coefficient(f32x16 h) const { return h + free.r.lambda; }
  POLYLEAF_METHOD f32x16 single(f32x16 g, f32x16 c) const { return free.single(g, free.of_sum(c)); }
  POLYLEAF_METHOD ObeyingBlock<S> block(int z) const { return {free, load<f32x16>(direction + 16 * z)}; }
  POLYLEAF_METHOD ObeyingBlock<S> narrow() const { return {free, broadcast(direction[0])}; }
};

// A score as it is for the outputs 16 z to 16 z + 15, and for one output.
template <Score S>
POLYLEAF_INLINE const S& block_of(const S& score, int) {
  return score;
}
template <Score S>
POLYLEAF_INLINE ObeyingBlock<S> block_of(const Obeying<S>& score, int z) {
  return score.block(z);
}
template <Score S>
POLYLEAF_INLINE const S& narrow_of(const S& score) {
  return score;
}
template <Score S>
POLYLEAF_INLINE ObeyingBlock<S> narrow_of(const Obeying<S>& score) {
  return score.narrow();
}

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
