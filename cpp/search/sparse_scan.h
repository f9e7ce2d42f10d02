// The best split of one node over features that are held sparse: a histogram of the node's cells
// for one feature at a time, which is scanned as any other (dense_scan.h).
//
// Owns: that histogram. Must not know: where cells come from, which node comes next.
#pragma once
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "data/sparse_columns.h"
#include "grower/sparse_column_partition.h"
#include "search/dense_scan.h"
#include "search/sparse_gain_bounds.h"

namespace polyleaf {

// The best split of one feature, and the cells that it was found in.
struct FoundSplit {
  NumericBest best;
  float penalised_gain;
  int32_t feature;
  int64_t number;  // among the sparse features
  CellRange cells;
};

// One sparse feature's histogram at a time: bins that hold nothing are left as they are.
struct CellHistogram {
  Buffer<int32_t> sums;     // [bin][lane]; one bin more for missing
  Buffer<uint32_t> counts;  // zero between features
  Buffer<int32_t> all;      // lanes
  std::vector<FoundSplit> found;
  Buffer<int32_t> reach;      // features that have to be looked at
  Buffer<SparseEntry> there;  // cells of the node alone, where others lie between them
  void reserve(int lanes);
};

// What the best splits of a node are looked for in: features numbered `first` .. `last` - 1, of
// those that allowed[feature] says, and `channels` of the node's rows.
struct CellsToScan {
  const SparseColumnPartition* lists;
  int32_t list;
  int64_t first, last;
  const int16_t* channels;
  const uint8_t* allowed;
  CellBounds* bounds = nullptr;  // of what was found above; nullptr: all are looked at
};

// The best splits among sparse features, `n_best` at most, each of another group of features, the
// best first; with bounds, none where none is worth the scratch's floor.
void best_splits_of_cells(const Bins& bins, const CellsToScan& cells, const ScanNode& node,
                          ScanScratch& scratch, CellHistogram& histogram, TileSplit* best,
                          int n_best);

}  // namespace polyleaf
