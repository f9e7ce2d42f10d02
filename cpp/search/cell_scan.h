// The best split of one node over features that are held sparse: a histogram of the node's cells for one
// feature at a time, which is scanned as any other (tile_scan.h).
//
// Owns: that histogram. Must not know: where cells come from, which node comes next.
#pragma once
#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "data/cells.h"
#include "search/tile_scan.h"

namespace polyleaf {

// The best split of one feature, and the cells that it was found in.
struct FoundSplit {
  NumericBest best;
  int32_t feature;
  int64_t number;  // among the sparse features
  const Cell* entries;
  int64_t n;
};

// One sparse feature's histogram at a time: bins that hold nothing are left as they are.
struct CellHistogram {
  Buffer<int32_t> sums;     // [bin][lane]; one bin more for missing
  Buffer<uint32_t> counts;  // zero between features
  Buffer<int32_t> all;      // lanes
  std::vector<FoundSplit> found;
  void reserve(int lanes);
};

// The best splits among sparse features, `n_best` at most, each of another group of features, the best first:
// `entries`, whole features of them, are the node's, `channels` those of its rows. allowed[f] != 0: feature f
// may be used.
void best_splits_of_entries(const Bins& bins, const Cell* entries, int64_t n, const int16_t* channels,
                            const ScanNode& node, const uint8_t* allowed, ScanScratch& scratch,
                            CellHistogram& histogram, TileSplit* best, int n_best);

}  // namespace polyleaf
