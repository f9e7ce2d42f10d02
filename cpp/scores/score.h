// What a score is. A score reads summed channels of the left and right child, sixteen outputs (or sixteen
// candidates) at a time, and says how much the loss would fall; `solve` of the leaf problem is the same
// formula's argument (leaves/newton.cpp). Included by kernels only, inside the namespace of an instruction
// set.
//
// To add one: a header here that satisfies the concept, one line in kernels/split.cpp, one twin in
// tests/reference/scores.py.
#pragma once
#include <concepts>

#include "../kernels/lanes.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

struct Regularisation {
  float lambda, alpha, max_delta_step;  // max_delta_step 0: no limit
};

template <class S>
concept Score = requires(const S s, f32x16 g, f32x16 h) {
  { S::kPerOutput } -> std::convertible_to<bool>;  // curvature differs between outputs
  { s.coefficient(h) } -> std::same_as<f32x16>;    // from summed curvature to what `pair` wants
  { s.pair(g, g, h, h) } -> std::same_as<f32x16>;  // terms of (left, right), with their coefficients
  { s.single(g, h) } -> std::same_as<f32x16>;      // terms of one node
};

// A term of one side where plain division is not enough: L1 and limited steps.
POLYLEAF_INLINE f32x16 regularised_term(f32x16 g, f32x16 c, const Regularisation& r) {
  const f32x16 zero = {};
  const f32x16 size = select(g < zero, -g, g);
  const f32x16 shrunk = size - r.alpha;
  const f32x16 kept = larger(shrunk, zero);
  f32x16 w = kept / c;
  w = select(c > zero, w, zero);
  if (r.max_delta_step > 0) {
    const f32x16 limit = broadcast(r.max_delta_step);
    w = select(w < limit, w, limit);
  }
  return (2.0f * kept) * w - (c * w) * w;  // the signs of t and w cancel
}

// The score of both kinds of curvature where plain division is not enough.
template <bool PER_OUTPUT>
struct Regularised {
  static constexpr bool kPerOutput = PER_OUTPUT;
  Regularisation r;
  POLYLEAF_METHOD f32x16 coefficient(f32x16 h) const { return h + r.lambda; }
  POLYLEAF_METHOD f32x16 pair(f32x16 gl, f32x16 gr, f32x16 cl, f32x16 cr) const {
    return regularised_term(gl, cl, r) + regularised_term(gr, cr, r);
  }
  POLYLEAF_METHOD f32x16 single(f32x16 g, f32x16 c) const { return regularised_term(g, c, r); }
};

static_assert(Score<Regularised<false>> && Score<Regularised<true>>);

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
