// What is always inlined: code that kernels of several instruction sets, or of a device, and the
// rest of the core share, so that nothing is left to the linker to merge.
#pragma once

#define POLYLEAF_INLINE static inline __attribute__((always_inline))
#define POLYLEAF_INLINE_MEMBER inline __attribute__((always_inline))

// A choice between two numbers, lane by lane where they are vectors: with it a formula can be
// written once for numbers of leaves and for the vectors of the kernels (kernels/lanes.h adds those
// of two halves).
namespace polyleaf {

// mask ? yes : no.
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
