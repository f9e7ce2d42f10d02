// Helpers for the threads of a block. Compiled for the GPU, or for the host by the tests, where a
// thread is a fibre (tests/device/cuda_on_host.h).
#pragma once
#include <cstdint>

#include "device/kernels/kernel_args.h"

#ifdef __CUDACC_RTC__
#define POLYLEAF_SHARED_MEMORY(T, name)           \
  extern __shared__ long long polyleaf_dynamic[]; \
  T* const name = reinterpret_cast<T*>(polyleaf_dynamic)
#else
#define POLYLEAF_SHARED_MEMORY(T, name) T* const name = reinterpret_cast<T*>(polyleaf_dynamic())
#endif

namespace polyleaf::on_device {

__device__ inline int64_t thread_of_grid() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t threads_of_grid() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

// Signed and unsigned 64-bit sums wrap alike.
__device__ inline void atomic_add(int64_t* to, int64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
}

__device__ inline uint32_t get_row(const Sample& sample, int64_t i) {
  return sample.rows != nullptr ? sample.rows[i] : static_cast<uint32_t>(i);
}
__device__ inline float get_multiplier(const Sample& sample, uint32_t row) {
  return sample.multiplier != nullptr ? sample.multiplier[row] : 1.0f;
}

// Call f(row, column) for this thread's rows of the sample and return its column (-1: none).
// Neighbouring threads have neighbouring columns. The grid needs at least one thread per column.
template <class F>
__device__ int visit_column_rows(const Sample& sample, int n_columns, const F& f) {
  const int64_t rows_at_once = threads_of_grid() / n_columns, t = thread_of_grid();
  if (t >= rows_at_once * n_columns) return -1;
  const int column = static_cast<int>(t % n_columns);
  for (int64_t i = t / n_columns; i < sample.n; i += rows_at_once) f(get_row(sample, i), column);
  return column;
}

// Accumulators of a block in shared memory if it has scratch, added to global memory at the end.
// All threads construct it and call `flush`.
template <class T>
struct BlockAccumulator {
  T* shared;  // nullptr: no scratch
  int n;

  __device__ BlockAccumulator(T* memory, int n, bool fits) : shared(fits ? memory : nullptr), n(n) {
    for (int j = threadIdx.x; fits && j < n; j += blockDim.x) shared[j] = 0;
    __syncthreads();
  }
  // Return the accumulators to use; `global`: those in global memory.
  __device__ T* get(T* global) const { return shared != nullptr ? shared : global; }
  // Call f(j, number) for every shared accumulator.
  template <class F>
  __device__ void flush(const F& f) const {
    __syncthreads();
    for (int j = threadIdx.x; shared != nullptr && j < n; j += blockDim.x) f(j, shared[j]);
  }
};

// Inclusive prefix sum over one value per thread; all threads must call it.
__device__ inline void running_sums(int32_t* values) {
  const int t = threadIdx.x, n = blockDim.x;
  for (int step = 1; step < n; step *= 2) {
    __syncthreads();
    const int32_t before = t >= step ? values[t - step] : 0;
    __syncthreads();
    values[t] += before;
  }
  __syncthreads();
}

}  // namespace polyleaf::on_device
