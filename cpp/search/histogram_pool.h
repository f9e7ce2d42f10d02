// Histograms of whole nodes, kept for their children: one slot each, within a budget of memory,
// reused over trees.
//
// Owns: how a histogram lies in memory, and which slots are free. Must not know: nodes, what a
// channel means.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "data/bins.h"
#include "quantised_gradients/quantised_gradients.h"

namespace polyleaf {

// The bins of one tile, wherever they lie.
struct TileBins {
  int32_t* sums;     // [slot][bin][lane]
  uint32_t* counts;  // [slot][bin]; nullptr: a lane holds them

  void clear(const Tile& tile, int lanes) const;
  // The bins that a few rows name.
  void clear_touched(const Tile& tile, const uint64_t* words, int64_t n, int lanes) const;
  void subtract(const TileBins& other, const Tile& tile, int lanes) const;
  void copy(const TileBins& other, const Tile& tile, int lanes) const;
};

class HistogramPool {
 public:
  // Histograms of channels of this layout, from now on; those of another are lost.
  void lay_out(const Bins& bins, const ChannelLayout& layout);
  // A new tree: nothing is kept. budget: bytes.
  void start(size_t budget);

  // A slot, whose bins hold anything; -1: the budget is spent.
  int take();
  void give_back(int slot) { free_.push_back(slot); }
  TileBins tile(int slot, int t);

  // Bins of all tiles, and of the largest.
  size_t n_bins() const { return n_bins_; }
  size_t most_bins() const { return most_bins_; }

 private:
  std::vector<Buffer<int32_t>> slots_;
  std::vector<int> free_;
  size_t budget_ = 0, n_bins_ = 0, most_bins_ = 0;
  size_t ints_ = 0;                    // of one histogram
  bool counts_apart_ = false;          // from the sums
  std::vector<size_t> sums_, counts_;  // where those of a tile start in it
};

}  // namespace polyleaf
