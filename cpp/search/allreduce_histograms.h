// Histograms of a batch of nodes in distributed training. Tiles are assigned to ranks: each rank
// builds all tiles from its own rows, receives the filled bins of its own tiles from all ranks, and
// scans their sums; then the best splits of all ranks are gathered. Sums are of integers, so the
// distribution of rows and tiles does not change results.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/context.h"
#include "data/bins.h"
#include "quantised_gradients/quantised_gradients.h"
#include "search/dense_scan.h"
#include "search/histogram_pool.h"

namespace polyleaf {

class SharedTiles {
 public:
  explicit SharedTiles(const Context& context) : context_(context) {}

  // Assign the tiles of a tree: runs of them, with about as many bins for each rank. Nodes may have
  // fewer lanes than the layout.
  void assign_tiles(const Bins& bins, const std::vector<int>& tiles, const ChannelLayout& layout);
  // Return whether tile i belongs to this rank.
  bool owns(int i) const { return owner_[i] == context_.communicator->rank(); }

  // Return how many histograms to send at once.
  size_t get_batch_size() const;
  // Allocate histograms with these layouts.
  void start(std::vector<const ChannelLayout*> layouts);
  // Write the filled bins of a tile of one histogram, of this rank's rows; from any thread.
  void pack(size_t histogram, int i, const TileBins& bins);
  // Send the tiles to the ranks that they belong to.
  void exchange();
  // Add the bins of all ranks' rows to a tile of this rank.
  void add(size_t histogram, int i, const TileBins& bins) const;

  // Return the splits of every rank, in order of rank: as many from each.
  std::vector<TileSplit> allgather(const std::vector<TileSplit>& found) const;

 private:
  // A tile in a histogram: marks of filled bins, and these bins.
  struct Piece {
    int64_t begin = 0, n = 0;  // in the buffer, which has room for all bins
  };

  void find_received_pieces();

  const Context context_;
  int64_t n_numbers_ = 0;        // of a bin, at most
  std::vector<int> owner_;       // rank of each tile
  std::vector<int64_t> n_bins_;  // of each tile
  std::vector<int64_t> begin_;   // of each rank's share of the buffer
  std::vector<const ChannelLayout*> layouts_;
  std::vector<Piece> pieces_;  // [histogram][tile]
  // Histograms that other ranks may still read, and those that are packed next.
  std::shared_ptr<Buffer<int32_t>> sent_, buffer_;
  std::vector<Communicator::Block> received_;
  std::vector<std::span<const int32_t>> received_pieces_;  // [histogram][tile][rank]
};

}  // namespace polyleaf
