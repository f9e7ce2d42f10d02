// Scores whose terms are separate by output: they compute the loss reduction from summed channels,
// sixteen outputs (or sixteen candidates) at a time. Leaves take the same step (step.h). Included
// by kernels only, inside the namespace of an instruction set.
//
// To add one: a struct here that satisfies the concept, a line in `visit_score`
// (kernels/separable_kernels.h), the same in tests/reference/split_gain.py. Scores of other kinds
// (full Hessian, leaves of few outputs, linear leaves) fill a ScoreKernels of their own
// (score_kernels.h): that is the contract of all scores. Of its entries `output_terms` may be null
// where LinearKernels::solve answers for it, `prune_bound` where leaves hold all outputs.
#pragma once
#include <concepts>

#include "base/kernels/lanes.h"
#include "split_gain/step.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

struct Regularisation {
  float lambda, alpha, max_delta_step;  // max_delta_step 0: no limit
};

template <class S>
concept Score = requires(const S s, f32x16 g, f32x16 h) {
  { S::kPerOutput } -> std::convertible_to<bool>;  // each output has its own Hessian
  { s.coefficient(h) } -> std::same_as<f32x16>;    // from the Hessian sum to what `pair` takes
  {
    s.pair(g, g, h, h)
  } -> std::same_as<f32x16>;                   // terms of (left, right), with their coefficients
  { s.single(g, h) } -> std::same_as<f32x16>;  // term of one node
};

// Return the term of one side with L1 regularisation or limited steps.
POLYLEAF_INLINE f32x16 regularised_term(f32x16 g, f32x16 c, const Regularisation& r) {
  const Step<f32x16, float> step(g, c, r.alpha, r.max_delta_step);
  return (2.0f * step.kept) * step.size - (c * step.size) * step.size;
}

// Score with L1 regularisation or limited steps, for a shared or a diagonal Hessian.
template <bool PER_OUTPUT>
struct Regularised {
  static constexpr bool kPerOutput = PER_OUTPUT;
  Regularisation r;
  POLYLEAF_INLINE_MEMBER f32x16 coefficient(f32x16 h) const { return h + r.lambda; }
  POLYLEAF_INLINE_MEMBER f32x16 pair(f32x16 gl, f32x16 gr, f32x16 cl, f32x16 cr) const {
    return regularised_term(gl, cl, r) + regularised_term(gr, cr, r);
  }
  POLYLEAF_INLINE_MEMBER f32x16 single(f32x16 g, f32x16 c) const {
    return regularised_term(g, c, r);
  }
};

static_assert(Score<Regularised<false>> && Score<Regularised<true>>);

// One Hessian for all outputs (a shared channel, or the row count): GBDT-MO eq. 16 with H common to
// all outputs, and C-GB eq. 10 where it is the count. The gain needs two multiplications per side
// and no division per output.

struct Shared {
  static constexpr bool kPerOutput = false;
  Regularisation r;
  POLYLEAF_INLINE_MEMBER f32x16 coefficient(f32x16 h) const {
    const f32x16 c = h + r.lambda;
    return select(c > 0.0f, 1.0f / c, f32x16{});
  }
  POLYLEAF_INLINE_MEMBER f32x16 pair(f32x16 gl, f32x16 gr, f32x16 cl, f32x16 cr) const {
    return (gl * gl) * cl + (gr * gr) * cr;
  }
  POLYLEAF_INLINE_MEMBER f32x16 single(f32x16 g, f32x16 c) const { return (g * g) * c; }
};

static_assert(Score<Shared>);

// One Hessian per output: GBDT-MO eq. 16, TFBT's diagonal Hessian. Both sides share one division.

struct Diagonal {
  static constexpr bool kPerOutput = true;
  Regularisation r;
  POLYLEAF_INLINE_MEMBER f32x16 coefficient(f32x16 h) const { return h + r.lambda; }
  POLYLEAF_INLINE_MEMBER f32x16 pair(f32x16 gl, f32x16 gr, f32x16 cl, f32x16 cr) const {
    const f32x16 product = cl * cr;
    const f32x16 term = ((gl * gl) * cr + (gr * gr) * cl) / product;
    return select(product != 0.0f, term, f32x16{});
  }
  POLYLEAF_INLINE_MEMBER f32x16 single(f32x16 g, f32x16 c) const {
    return select(c != 0.0f, (g * g) / c, f32x16{});
  }
};

static_assert(Score<Diagonal>);

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
