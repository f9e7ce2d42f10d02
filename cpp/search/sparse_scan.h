// The best splits of one node among sparse features: a histogram of the node's nonzeros for one
// feature at a time, which is scanned like any other (dense_scan.h). In distributed training it is
// the sum of the bins that all ranks have sent.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "data/sparse_columns.h"
#include "grower/sparse_column_partition.h"
#include "search/dense_scan.h"
#include "search/shared_sparse_bins.h"
#include "search/sparse_gain_bounds.h"

namespace polyleaf {

// The best split of one feature, and its entries.
struct FoundSplit {
  NumericBest best;
  float penalised_gain;
  int32_t feature;
  int64_t number;  // among the sparse features
  EntryRange entries;
};

// Histogram of one sparse feature at a time; empty bins are undefined.
struct SparseHistogram {
  Buffer<int32_t> sums;     // [bin][lane]; one bin more for missing
  Buffer<uint32_t> counts;  // zero between features
  Buffer<int32_t> totals;   // one per lane
  std::vector<FoundSplit> found;
  Buffer<int32_t> candidates;   // features to be scanned
  Buffer<SparseEntry> present;  // entries of rows in the node, if the list holds others
  void reserve(int lanes);
};

// Features with indices first .. last - 1 and allowed[feature], and `channels` of the node's rows.
struct SparseScanInput {
  const SparseColumnPartition* lists;
  int32_t list;
  int64_t first, last;
  const int16_t* channels;
  const uint8_t* allowed;
  SparseGainBounds* bounds = nullptr;          // nullptr: all features are scanned
  std::span<const SparseBinList> shared = {};  // bins of each rank, in the place of `lists`
};

// Find the best splits on sparse features, at most `n_best`, each of another feature group, the
// best first; with bounds, only splits that exceed scratch.best_so_far.
void find_best_sparse_splits(const Bins& bins, const SparseScanInput& input, const ScanNode& node,
                             ScanScratch& scratch, SparseHistogram& histogram, TileSplit* best,
                             int n_best);

}  // namespace polyleaf
