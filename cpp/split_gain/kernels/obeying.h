// The score of trees that obey directions (monotone.h), of any number of outputs, and how it and
// others are asked for those at hand. Included by kernels only, inside the namespace of an
// instruction set.
#pragma once
#include "split_gain/monotone_score.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

template <bool PER_OUTPUT>
struct MonotoneScore {
  static constexpr bool kPerOutput = PER_OUTPUT;
  Regularisation r;
  const float *direction, *low, *high;  // of every output, readable to the next sixteen

  POLYLEAF_INLINE_MEMBER f32x16 coefficient(f32x16 h) const { return h + r.lambda; }
  POLYLEAF_INLINE_MEMBER MonotoneBlock block(int z) const {
    return {r, load<f32x16>(direction + 16 * z), load<f32x16>(low + 16 * z),
            load<f32x16>(high + 16 * z)};
  }
  POLYLEAF_INLINE_MEMBER MonotoneBlock narrow() const {
    return {r, broadcast(direction[0]), broadcast(low[0]), broadcast(high[0])};
  }
};

// A score as it is for the outputs 16 z to 16 z + 15, and for one output.
template <Score S>
POLYLEAF_INLINE const S& block_of(const S& score, int) {
  return score;
}
template <bool P>
POLYLEAF_INLINE MonotoneBlock block_of(const MonotoneScore<P>& score, int z) {
  return score.block(z);
}
template <Score S>
POLYLEAF_INLINE const S& narrow_of(const S& score) {
  return score;
}
template <bool P>
POLYLEAF_INLINE MonotoneBlock narrow_of(const MonotoneScore<P>& score) {
  return score.narrow();
}

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
