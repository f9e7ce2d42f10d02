// One Hessian for all outputs (a shared channel, or the row count): GBDT-MO eq. 16 with H common
// to all outputs, and C-GB eq. 10 where it is the count. The gain needs two multiplications per
// side and no division per output.
#pragma once
#include "split_gain/score.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

struct Shared {
  static constexpr bool kPerOutput = false;
  Regularisation r;
  POLYLEAF_METHOD f32x16 coefficient(f32x16 h) const {
    const f32x16 c = h + r.lambda;
    return select(c > 0.0f, 1.0f / c, f32x16{});
  }
  POLYLEAF_METHOD f32x16 pair(f32x16 gl, f32x16 gr, f32x16 cl, f32x16 cr) const {
    return (gl * gl) * cl + (gr * gr) * cr;
  }
  POLYLEAF_METHOD f32x16 single(f32x16 g, f32x16 c) const { return (g * g) * c; }
};

static_assert(Score<Shared>);

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
