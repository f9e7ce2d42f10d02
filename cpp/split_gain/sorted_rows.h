// Candidates of small nodes of one output: they need no histogram, and come from the sorted codes
// of their rows.
#pragma once
#include <cstdint>

#include "base/isa.h"
#include "data/bins.h"
#include "split_gain/score_kernels.h"

namespace polyleaf {

constexpr int kMaxSortedRows = 255;  // counts have eight bits

// Working memory of one thread: rows in the order of each feature of a tile.
struct SortedRows {
  alignas(64) uint64_t sums[(kMaxSortedRows + 3) * kTileFeatures];  // of the first rows
  alignas(64) int16_t keys[(kMaxSortedRows + 18) * kTileFeatures];
};

// The best numeric candidate of a feature, and the sums of its left child.
struct SortedSplit {
  NumericBest best;
  int32_t gradient, hessian, count;
  bool has_missing;
};

struct SortedRowKernels {
  // Write the best split of every feature of a tile. Rows: n <= kMaxSortedRows, with their words
  // and four channels each. missing: code of missing values.
  void (*scan)(const ScanNode& node, const uint64_t* words, const int16_t* channels, int n,
               int missing, SortedRows& rows, SortedSplit* splits);
};
POLYLEAF_DECLARE_KERNELS(SortedRowKernels, sorted_row_kernels)

}  // namespace polyleaf
