// Histograms of a batch of nodes in distributed training. Tiles are assigned to ranks: each rank
// builds all tiles from its own rows, receives the sums of its own tiles over all ranks, and scans
// these; then the best splits of all ranks are gathered. Sums are of integers, so the distribution
// of rows and tiles does not change results.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
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
  // Allocate n histograms, all zero.
  void start(size_t n_histograms);
  // Return the bins of a tile of one histogram: of this rank's rows, and after `reduce_scatter` of
  // all ranks' rows if the tile belongs to this rank. layout: of the node.
  TileBins bins(size_t histogram, int i, const ChannelLayout& layout);
  void reduce_scatter();

  // Return the splits of every rank, in order of rank: as many from each.
  std::vector<TileSplit> allgather(const std::vector<TileSplit>& found) const;

 private:
  const Context context_;
  int lanes_ = 0;
  bool has_counts_ = false;  // in some nodes
  std::vector<int> owner_;   // rank of each tile
  std::vector<int64_t> sums_,
      counts_;                  // offsets of each tile in its rank's part of one histogram
  std::vector<int64_t> width_;  // of each rank's part of one histogram
  std::vector<int64_t> begin_;  // of each rank's share of the buffer, and the end
  // Histograms that other ranks may still read, and those that are built next.
  std::shared_ptr<Buffer<int32_t>> sent_, buffer_;
};

}  // namespace polyleaf
