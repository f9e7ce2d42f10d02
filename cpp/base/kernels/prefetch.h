// Lines of memory that are asked for some rows before their turn, where rows are found by their
// numbers.
//
// They go to the second cache: far more of such requests may be under way than of those for the
// first one.
//
// Included by kernels only, inside the namespace of an instruction set.
#pragma once
#include <cstdint>

#include "base/inline.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

constexpr int64_t kRowsAhead = 128;

POLYLEAF_INLINE void prefetch(const void* line) {
  __builtin_prefetch(line, 0, 2);
}

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
