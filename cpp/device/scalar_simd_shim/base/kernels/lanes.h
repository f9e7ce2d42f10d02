// Takes the place of base/kernels/lanes.h where scores are compiled for a device: a thread is one
// lane, so that what scores call a vector of sixteen is a number.
#pragma once
#include <cstdint>

#include "base/inline.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

using f32x16 = float;
using i32x16 = int32_t;

POLYLEAF_INLINE f32x16 broadcast(float x) {
  return x;
}
template <class V, class T>
POLYLEAF_INLINE V load(const T* from) {
  return *from;
}
POLYLEAF_INLINE bool any_above(float a, float b) {
  return a > b;
}

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
