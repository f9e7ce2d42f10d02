// Quantisation of derivatives: the arithmetic of quantised_gradients/kernels/quantise_kernels.cpp.
#include "device/kernels/block.h"

namespace polyleaf::on_device {

__device__ inline int32_t magnitude_bits(float x) {
  return __builtin_bit_cast(int32_t, x) & 0x7fffffff;
}

// Round half to even for |x| < 2^22.
__device__ inline float round_even(float x) {
  const float magic = 12582912.0f;  // 1.5 * 2^23
  return (x + magic) - magic;
}

}  // namespace polyleaf::on_device

using namespace polyleaf::on_device;

extern "C" __global__ void compute_max_magnitudes(const LargestMagnitudes a) {
  POLYLEAF_SHARED_MEMORY(int32_t, block_memory);
  const BlockAccumulator<int32_t> block(block_memory, a.n_columns, can_share_columns(a.n_columns));
  int32_t largest = 0;
  const int column = visit_column_rows(a.sample, a.n_columns, [&](uint32_t row, int j) {
    const float value = a.values[static_cast<int64_t>(row) * a.n_columns + j];
    const int32_t bits = magnitude_bits(value * get_multiplier(a.sample, row));
    largest = bits > largest ? bits : largest;
  });
  if (column >= 0) atomicMax(block.get(a.largest) + column, largest);
  block.flush([&](int j, int32_t found) { atomicMax(a.largest + j, found); });
}

extern "C" __global__ void quantise(const Quantise a) {
  POLYLEAF_SHARED_MEMORY(int64_t, block_memory);
  const bool fits = can_share_columns(a.n_columns);
  const BlockAccumulator<int64_t> sizes(block_memory, a.n_columns, fits);
  const BlockAccumulator<int64_t> totals(block_memory + a.n_columns, a.n_columns, fits);
  int64_t size = 0, total = 0;
  const int column = visit_column_rows(a.sample, a.n_columns, [&](uint32_t row, int j) {
    const float value = a.values[static_cast<int64_t>(row) * a.n_columns + j];
    const int32_t q =
        static_cast<int32_t>(round_even(value * get_multiplier(a.sample, row) * a.inverse[j]));
    size += q < 0 ? -q : q;
    total += q;
    int16_t* const channels = a.channels + static_cast<int64_t>(row) * a.lanes;
    channels[a.offset + j] = static_cast<int16_t>(q);
    if (j == 0 && a.count_lane >= 0) channels[a.count_lane] = 1;
  });
  if (column >= 0) {
    atomic_add(sizes.get(a.sizes) + column, size);
    atomic_add(totals.get(a.totals) + column, total);
  }
  sizes.flush([&](int j, int64_t found) { atomic_add(a.sizes + j, found); });
  totals.flush([&](int j, int64_t found) { atomic_add(a.totals + j, found); });
}

extern "C" __global__ void sum_squares(const SumSquares a) {
  POLYLEAF_SHARED_MEMORY(int64_t, block_memory);
  const BlockAccumulator<int64_t> block(block_memory, a.n_columns, can_share_columns(a.n_columns));
  int64_t squares = 0;
  const int column = visit_column_rows(a.sample, a.n_columns, [&](uint32_t row, int j) {
    const int32_t q = a.channels[static_cast<int64_t>(row) * a.lanes + j];
    squares += q * q;
  });
  if (column >= 0) atomic_add(block.get(a.squares) + column, squares);
  block.flush([&](int j, int64_t found) { atomic_add(a.squares + j, found); });
}
