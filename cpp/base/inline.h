// Code that is always inlined: kernels of several instruction sets, GPU kernels and the rest of the
// core share it, so the linker must have nothing to merge.
#pragma once

#define POLYLEAF_INLINE static inline __attribute__((always_inline))
#define POLYLEAF_INLINE_MEMBER inline __attribute__((always_inline))

namespace polyleaf {

// Return the smallest multiple of `multiple` that is at least n.
POLYLEAF_INLINE int round_up(int n, int multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace polyleaf

// Lane-wise selection, so that one formula serves single numbers and kernel vectors;
// kernels/lanes.h adds overloads for vector pairs.
namespace polyleaf {

// Return mask ? yes : no, lane by lane.
template <class M, class V>
POLYLEAF_INLINE V select(const M& mask, const V& yes, const V& no) {
  return mask ? yes : no;
}
template <class V>
POLYLEAF_INLINE V max(const V& a, const V& b) {
  return select(a > b, a, b);
}
template <class V>
POLYLEAF_INLINE V min(const V& a, const V& b) {
  return select(a < b, a, b);
}

}  // namespace polyleaf
