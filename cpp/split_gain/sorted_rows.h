// Candidates of small nodes with few outputs: they need no histogram, and come from the sorted
// codes of their rows.
#pragma once
#include <cstdint>

#include "base/aligned_buffer.h"
#include "base/isa.h"
#include "data/bins.h"
#include "split_gain/score_kernels.h"

namespace polyleaf {

constexpr int kMaxSortedRows = 255;  // counts have eight bits
constexpr int kMaxSortedLanes = 16;
constexpr int kMaxSortedOutputs = 8;

// Working memory of one thread: rows in the order of each feature of a tile.
struct SortedRows {
  Buffer<uint64_t> sums;  // of the first rows, two channels each
  alignas(64) int16_t keys[(kMaxSortedRows + 18) * kTileFeatures];

  void reserve(const ChannelLayout& layout) {
    sums.reserve(static_cast<size_t>(layout.lanes) / 2 * (kMaxSortedRows + 3) * kTileFeatures);
  }
};

// The best numeric candidate of a feature, and the sums of its left child.
struct SortedSplit {
  NumericBest best;
  int32_t left[kMaxSortedLanes];  // of the channels
  int32_t count;
  bool has_missing;
};

struct SortedRowKernels {
  // Write the best split of every feature of a tile. Rows: n <= kMaxSortedRows, with their words
  // and channels. missing: code of missing values.
  void (*scan)(const ScanNode& node, const uint64_t* words, const int16_t* channels, int n,
               int missing, SortedRows& rows, SortedSplit* splits);
};
POLYLEAF_DECLARE_KERNELS(SortedRowKernels, sorted_row_kernels)

}  // namespace polyleaf
