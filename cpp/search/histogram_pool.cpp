#include "search/histogram_pool.h"

#include <algorithm>
#include <cstring>

#include "search/packed_histogram.h"

namespace polyleaf {

void TileBins::clear(const Tile& tile, int lanes) const {
  std::memset(sums, 0, sizeof(int32_t) * count_bins(tile) * lanes);
  if (counts != nullptr) std::memset(counts, 0, sizeof(uint32_t) * count_bins(tile));
}

void TileBins::clear_touched(const Tile& tile, const uint64_t* words, int64_t n, int lanes) const {
  for (int64_t i = 0; i < n; ++i)
    for (int s = 0; s < tile.n_features; ++s) {
      const size_t bin =
          (static_cast<size_t>(s) << tile.log2_stride) + ((words[i] >> (8 * s)) & 255);
      std::memset(sums + bin * lanes, 0, sizeof(int32_t) * lanes);
      if (counts != nullptr) counts[bin] = 0;
    }
}

void TileBins::subtract(const TileBins& other, const Tile& tile, int lanes) const {
  const HistogramKernels& kernels = POLYLEAF_SELECT(histogram_kernels);
  const auto n = count_bins(tile);
  kernels.subtract(sums, other.sums, n * lanes);
  if (counts != nullptr)
    kernels.subtract(reinterpret_cast<int32_t*>(counts),
                     reinterpret_cast<const int32_t*>(other.counts), n);
}

void TileBins::copy(const TileBins& other, const Tile& tile, int lanes) const {
  std::memcpy(sums, other.sums, sizeof(int32_t) * count_bins(tile) * lanes);
  if (counts != nullptr) std::memcpy(counts, other.counts, sizeof(uint32_t) * count_bins(tile));
}

void HistogramPool::lay_out(const Bins& bins, const ChannelLayout& layout) {
  slots_.clear();
  sums_.assign(bins.n_tiles(), 0);
  counts_.assign(bins.n_tiles(), 0);
  has_counts_ = layout.count_lane < 0;
  ints_ = n_bins_ = max_bins_ = 0;
  for (int t = 0; t < bins.n_tiles(); ++t) {
    const auto n_bins = static_cast<size_t>(count_bins(bins.tile(t)));
    max_bins_ = std::max(max_bins_, n_bins);
    n_bins_ += n_bins;
    sums_[t] = ints_;
    ints_ += n_bins * layout.lanes + 16;  // 16: vectors may read past the last bin
    counts_[t] = ints_;
    if (has_counts_) ints_ += n_bins;
    ints_ = (ints_ + 15) / 16 * 16;
  }
}

void HistogramPool::start(size_t budget) {
  budget_ = budget;
  free_.clear();
  for (size_t i = 0; i < slots_.size(); ++i) free_.push_back(static_cast<int>(i));
}

int HistogramPool::acquire() {
  if (free_.empty()) {
    if ((slots_.size() + 1) * Buffer<int32_t>::allocated_bytes(ints_) > budget_) return -1;
    slots_.emplace_back(ints_);
    return static_cast<int>(slots_.size()) - 1;
  }
  const int slot = free_.back();
  free_.pop_back();
  return slot;
}

TileBins HistogramPool::tile(int slot, int t) {
  int32_t* ints = slots_[slot].data();
  return {ints + sums_[t], has_counts_ ? reinterpret_cast<uint32_t*>(ints + counts_[t]) : nullptr};
}

}  // namespace polyleaf
