// Leaf kernels: fixed-point sums of derivatives by leaf, addition of leaf values to raw scores, and
// operations on matrices.
#include "device/kernels/block.h"

using namespace polyleaf::on_device;

extern "C" __global__ void sum_leaves(const SumLeaves a) {
  POLYLEAF_SHARED_MEMORY(int64_t, block_memory);
  const BlockAccumulator<int64_t> block(block_memory, static_cast<int>(a.n_sums()),
                                        can_share_sums(a.n_sums()));
  int64_t* const sums = block.get(a.sums);
  visit_column_rows(a.sample, a.n_columns, [&](uint32_t row, int j) {
    const float value =
        a.values == nullptr ? 1.0f : a.values[static_cast<int64_t>(row) * a.n_columns + j];
    const auto fixed = static_cast<int32_t>(value * get_multiplier(a.sample, row) * a.scale[j]);
    atomic_add(sums + static_cast<int64_t>(a.leaf_of_row[row]) * a.n_columns + j, fixed);
  });
  block.flush([&](int i, int64_t sum) {
    if (sum != 0) atomic_add(a.sums + i, sum);
  });
}

extern "C" __global__ void add_leaves(const AddLeaves a) {
  visit_column_rows({nullptr, a.n_rows, nullptr}, a.width, [&](uint32_t row, int j) {
    const int k = a.output >= 0 ? a.output : j;
    a.raw[static_cast<int64_t>(row) * a.n_outputs + k] +=
        a.values[a.leaf_of_row[row] * a.stride + j];
  });
}

extern "C" __global__ void add_sparse(const AddSparse a) {
  visit_column_rows({nullptr, a.n_rows, nullptr}, a.max_entries, [&](uint32_t row, int j) {
    const int64_t* const begin = a.begin + a.leaf_of_row[row];
    const int64_t entry = begin[0] + j;
    if (entry < begin[1])
      a.raw[static_cast<int64_t>(row) * a.n_outputs + a.outputs[entry]] += a.values[entry];
  });
}

extern "C" __global__ void take_column(const TakeColumn a) {
  for (int64_t row = thread_of_grid(); row < a.n_rows; row += threads_of_grid())
    a.to[row] = a.from[row * a.n_columns + a.column];
}

// The order of additions of sketch/kernels/sketch_kernels.cpp, here and in `row_means`.
extern "C" __global__ void project(const Project a) {
  for (int64_t i = thread_of_grid(); i < a.n_rows * a.d; i += threads_of_grid()) {
    const float* const row = a.values + i / a.d * a.n_columns;
    const float* const column = a.matrix + i % a.d;
    float sum = 0.0f;
    for (int k = 0; k < a.n_columns; ++k) sum += row[k] * column[static_cast<int64_t>(k) * a.d];
    a.out[i] = sum * a.scale;
  }
}

// Sixteen threads add the lanes of a row.
extern "C" __global__ void row_means(const RowMeans a) {
  POLYLEAF_SHARED_MEMORY(float, sums);
  constexpr int kLanes = 16;
  const int lane = threadIdx.x % kLanes, slot = threadIdx.x / kLanes;
  const int rows_per_block = blockDim.x / kLanes;
  for (int64_t first = int64_t{blockIdx.x} * rows_per_block; first < a.n_rows;
       first += int64_t{gridDim.x} * rows_per_block) {
    const int64_t row = first + slot;
    float sum = 0.0f;
    for (int k = lane; row < a.n_rows && k < a.n_columns; k += kLanes)
      sum += a.values[row * a.n_columns + k];
    sums[threadIdx.x] = sum;
    for (int half = kLanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (lane < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (lane == 0 && row < a.n_rows) a.out[row] = sums[threadIdx.x] * a.share;
    __syncthreads();
  }
}
