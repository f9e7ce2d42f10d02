// One Hessian per output: GBDT-MO eq. 16, TFBT's diagonal Hessian. Both sides share one division.
#pragma once
#include "split_gain/score.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

struct Diagonal {
  static constexpr bool kPerOutput = true;
  Regularisation r;
  POLYLEAF_METHOD f32x16 coefficient(f32x16 h) const { return h + r.lambda; }
  POLYLEAF_METHOD f32x16 pair(f32x16 gl, f32x16 gr, f32x16 cl, f32x16 cr) const {
    const f32x16 product = cl * cr;
    const f32x16 term = ((gl * gl) * cr + (gr * gr) * cl) / product;
    return select(product != 0.0f, term, f32x16{});
  }
  POLYLEAF_METHOD f32x16 single(f32x16 g, f32x16 c) const {
    return select(c != 0.0f, (g * g) / c, f32x16{});
  }
};

static_assert(Score<Diagonal>);

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
