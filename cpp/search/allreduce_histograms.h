// Histograms of a batch of nodes, of whose rows every rank has some. Tiles are shared out among the
// ranks: each builds all tiles of its own rows, is sent the sums of the tiles that are its own, and
// scans these; all are told what each has found. Sums are of integers, so who has which rows or
// tiles leaves no trace.
//
// Owns: who has which tile, and room for what is sent. Must not know: nodes, what is scanned for.
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

  // The tiles of a tree: runs of them, with about as many bins for each rank. Nodes may have fewer
  // lanes.
  void share_out(const Bins& bins, const std::vector<int>& tiles, const ChannelLayout& layout);
  // Whether tile i of those is this rank's.
  bool is_own(int i) const { return owner_[i] == context_.communicator->rank(); }

  // How many histograms are best sent at once.
  size_t at_once() const;
  // Room for so many of them, all zero.
  void start(size_t n_histograms);
  // Bins of a tile of one of them: of this rank's rows, and after `add_ranks` of all ranks' where
  // the tile is its own. layout: of the node.
  TileBins bins(size_t histogram, int i, const ChannelLayout& layout);
  void add_ranks();

  // What every rank has found, rank after rank: as many splits from each.
  std::vector<TileSplit> gather(const std::vector<TileSplit>& found) const;

 private:
  const Context context_;
  int lanes_ = 0;
  bool counts_apart_ = false;  // from the sums, in some nodes
  std::vector<int> owner_;     // of each tile
  std::vector<int64_t> sums_,
      counts_;                  // where those of a tile start in its owner's part of one histogram
  std::vector<int64_t> width_;  // of each rank's part of one histogram
  std::vector<int64_t> begin_;  // of each rank's share of the room, and the end
  // What others may still read where it lies, and what is built next.
  std::shared_ptr<Buffer<int32_t>> sent_, room_;
};

}  // namespace polyleaf
