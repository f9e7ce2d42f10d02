// What is always inlined: code that kernels of several instruction sets, or of a device, and the
// rest of the core share, so that nothing is left to the linker to merge.
#pragma once

#define POLYLEAF_INLINE static inline __attribute__((always_inline))
#define POLYLEAF_INLINE_MEMBER inline __attribute__((always_inline))
