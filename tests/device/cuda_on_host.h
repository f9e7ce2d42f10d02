// A minimal CUDA C++ that compiles the kernels of cpp/device for the host: blocks run one after
// another, the threads of a block as fibres that switch at barriers. It checks what kernels
// compute, not that they are free of races.
#pragma once
#include <cstdint>

#define __global__
#define __device__
#define __shared__ static  // of one block at a time
#define __syncthreads() cuda_on_host::wait_for_block()

struct dim3 {
  unsigned x, y, z;
};
extern dim3 gridDim, blockDim, blockIdx, threadIdx;

namespace cuda_on_host {

// Yield to the other threads of the block until all have arrived.
void wait_for_block();

}  // namespace cuda_on_host

void* polyleaf_dynamic();

template <class T>
T atomicAdd(T* to, T value) {
  const T before = *to;
  *to = before + value;
  return before;
}
inline unsigned long long atomicMin(unsigned long long* to, unsigned long long value) {
  const unsigned long long before = *to;
  if (value < before) *to = value;
  return before;
}
inline int32_t atomicMax(int32_t* to, int32_t value) {
  const int32_t before = *to;
  if (value > before) *to = value;
  return before;
}
