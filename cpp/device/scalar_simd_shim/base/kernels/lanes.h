// Replaces base/kernels/lanes.h when scores are compiled for a GPU: a thread is one lane, so a
// vector of 16 is a scalar.
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
