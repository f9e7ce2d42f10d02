// The leaf problem of one output: the step w that is best for g w + (c / 2) w^2 + alpha |w|, |w| <=
// limit, where g is the sum of the gradients and c that of the Hessian plus lambda (GBDT-MO eq.
// 15, C-GB eq. 13). Gains and leaf values are made of the same step; V is a double, or sixteen sums
// in float lanes.
//
// Without alpha and limit the loss falls by g^2 / (2 c): Shared and Diagonal
// (separable_score.h) write that down with fewer divisions.
#pragma once
#include "base/inline.h"

namespace polyleaf {

template <class V, class Real>
struct Step {
  V kept;  // what alpha leaves of |g|
  V size;  // |w|; no Hessian, no step

  POLYLEAF_INLINE_MEMBER Step(const V& g, const V& c, Real alpha, Real limit) {  // limit 0: none
    const V zero{};
    kept = max(select(g < zero, -g, g) - alpha, zero);
    size = select(c > zero, kept / c, zero);
    if (limit > 0) size = min(size, limit - zero);
  }
};

}  // namespace polyleaf
