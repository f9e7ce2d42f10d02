// Histograms: sums of quantised gradients by bin, first in shared memory. Neighbouring threads have
// neighbouring lanes of one row, so that they add to contiguous memory.
#include "device/kernels/block.h"

using namespace polyleaf::on_device;

extern "C" __global__ void build_histograms(const BuildHistograms a) {
  POLYLEAF_SHARED_MEMORY(int32_t, sums);
  const HistogramPiece piece = a.pieces[blockIdx.x];
  const DeviceTile tile = a.tiles[piece.tile];
  const Histograms& all = a.histograms;
  const int n_bins = piece.n_slots << tile.log2_stride, n_sums = n_bins * a.width;
  const bool counts = all.counts_at >= 0 && piece.first_lane == 0;
  for (int i = threadIdx.x; i < n_sums + (counts ? n_bins : 0); i += blockDim.x) sums[i] = 0;
  __syncthreads();

  int32_t* const bin_counts = sums + n_sums;
  const uint64_t* const words = a.words + piece.tile * a.n_rows;
  const uint32_t* const ids = a.ids[piece.copy];
  const int lane = threadIdx.x % a.width, rows_at_once = blockDim.x / a.width;
  int64_t i = piece.begin + threadIdx.x / a.width;
  uint64_t word = 0;
  int32_t channel = 0;
  const auto load = [&] {  // of the next row while the current one is added
    if (i >= piece.end) return;
    const int64_t row = ids != nullptr ? static_cast<int64_t>(ids[i]) : i;
    word = words[row] >> (8 * piece.first_slot);
    channel = a.channels[row * all.lanes + piece.first_lane + lane];
  };
  load();
  while (i < piece.end) {
    const uint64_t bins = word;
    const int32_t value = channel;
    i += rows_at_once;
    load();
    const auto bin = [&](int slot) {
      return (slot << tile.log2_stride) + static_cast<int>(bins >> (8 * slot) & 255);
    };
    if (value != 0)
      for (int s = 0; s < piece.n_slots; ++s) atomicAdd(&sums[bin(s) * a.width + lane], value);
    if (counts)
      for (int s = lane; s < piece.n_slots; s += a.width) atomicAdd(&bin_counts[bin(s)], 1);
  }
  __syncthreads();

  int32_t* const to = all.data + piece.histogram * all.size;
  const int64_t first =
      tile.first_bin + (static_cast<int64_t>(piece.first_slot) << tile.log2_stride);
  for (int i = threadIdx.x; i < n_sums; i += blockDim.x)
    if (sums[i] != 0)
      atomicAdd(&to[(first + i / a.width) * all.lanes + piece.first_lane + i % a.width], sums[i]);
  if (counts)
    for (int i = threadIdx.x; i < n_bins; i += blockDim.x)
      if (bin_counts[i] != 0) atomicAdd(&to[all.counts_at + first + i], bin_counts[i]);
}

extern "C" __global__ void sum_nodes(const SumNodes a) {
  const Histograms& all = a.histograms;
  const int32_t* const sums =
      all.data + a.nodes[blockIdx.x].histogram * all.size + a.first_bin * all.lanes;
  for (int lane = threadIdx.x; lane < all.lanes; lane += blockDim.x) {
    int32_t total = 0;
    for (int b = 0; b < a.n_bins; ++b) total += sums[static_cast<int64_t>(b) * all.lanes + lane];
    a.totals[static_cast<int64_t>(blockIdx.x) * all.lanes + lane] = total;
  }
}

extern "C" __global__ void subtract_histograms(const SubtractHistograms a) {
  int32_t* const from = a.histograms.data + a.pairs[2 * blockIdx.y] * a.histograms.size;
  const int32_t* const less = a.histograms.data + a.pairs[2 * blockIdx.y + 1] * a.histograms.size;
  for (int64_t i = thread_of_grid(); i < a.histograms.size; i += threads_of_grid())
    from[i] -= less[i];
}
