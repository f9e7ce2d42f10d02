// Histograms of whole nodes, kept for their children: one slot each, within a memory budget, reused
// over trees.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "data/bins.h"
#include "quantised_gradients/quantised_gradients.h"

namespace polyleaf {

// Return the number of bins of the features of a tile.
inline int64_t count_bins(const Tile& tile) {
  return int64_t{tile.n_features} * tile.stride();
}

// The bins of one tile.
struct TileBins {
  int32_t* sums;     // [slot][bin][lane]
  uint32_t* counts;  // [slot][bin]; nullptr: a lane holds them

  void clear(const Tile& tile, int lanes) const;
  // Clear the bins that a few rows touch.
  void clear_touched(const Tile& tile, const uint64_t* words, int64_t n, int lanes) const;
  void subtract(const TileBins& other, const Tile& tile, int lanes) const;
  void copy(const TileBins& other, const Tile& tile, int lanes) const;
};

class HistogramPool {
 public:
  // Lay out histograms; those of another layout are dropped.
  void lay_out(const Bins& bins, const ChannelLayout& layout);
  // Start a tree: nothing is kept. budget: bytes.
  void start(size_t budget);

  // Return a slot with undefined contents; -1: the budget is used up.
  int acquire();
  void release(int slot) { free_.push_back(slot); }
  TileBins tile(int slot, int t);

  // Number of bins of all tiles, and of the largest tile.
  size_t n_bins() const { return n_bins_; }
  size_t max_bins() const { return max_bins_; }

 private:
  std::vector<Buffer<int32_t>> slots_;
  std::vector<int> free_;
  size_t budget_ = 0, n_bins_ = 0, max_bins_ = 0;
  size_t ints_ = 0;                    // of one histogram
  bool has_counts_ = false;            // from the sums
  std::vector<size_t> sums_, counts_;  // offsets of each tile
};

}  // namespace polyleaf
