// Newton step of one output: the w that minimises g w + (c / 2) w^2 + alpha |w|, |w| <= limit,
// where g is the sum of the gradients and c the sum of the Hessians plus lambda (GBDT-MO eq. 15,
// C-GB eq. 13). Gains and leaf values use the same step; V is a double, or sixteen sums in float
// lanes.
//
// Without alpha and limit the loss falls by g^2 / (2 c); separable_score.h computes that with fewer
// divisions.
#pragma once
#include "base/inline.h"

namespace polyleaf {

template <class V, class Real>
struct Step {
  V kept;  // |g| after soft thresholding by alpha
  V size;  // |w|; 0 without Hessian

  POLYLEAF_INLINE_MEMBER Step(const V& g, const V& c, Real alpha, Real limit) {  // limit 0: none
    const V zero{};
    kept = max(select(g < zero, -g, g) - alpha, zero);
    size = select(c > zero, kept / c, zero);
    if (limit > 0) size = min(size, limit - zero);
  }
};

}  // namespace polyleaf
