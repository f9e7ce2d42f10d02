// Leaf kernels: fixed-point sums of derivatives by leaf, and addition of leaf values to raw scores.
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
