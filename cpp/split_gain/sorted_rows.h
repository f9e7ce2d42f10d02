// Candidates of small nodes with few outputs: they need no histogram, and come from the sorted
// codes of their rows.
#pragma once
#include <cstdint>

#include "base/aligned_buffer.h"
#include "base/isa.h"
#include "data/bins.h"
#include "split_gain/score_kernels.h"

namespace polyleaf {

constexpr int kMaxSortedRows = 255;  // row numbers have eight bits
constexpr int kSortedRowSlots = 256;
constexpr int kMaxSortedLanes = 16;
constexpr int kMaxSortedOutputs = 8;

// The best numeric candidate of a feature.
struct SortedSplit {
  NumericBest best;
  int32_t n_left;     // rows on the left that are not missing
  int32_t n_missing;  // rows of the node

  int32_t left_count() const { return n_left + (best.missing_left != 0 ? n_missing : 0); }
};

// Rows in the order of each feature of a tile, and what is found in them: working memory of one
// thread. The sorted rows stand in groups; see sorted_rows_kernels.cpp.
struct SortedRows {
  static constexpr int kMaxGroups = 4;

  int n, group_rows, n_sums;  // n_sums: of a channel
  SortedSplit splits[kTileFeatures];
  // Sums of each channel over the rows before, within the group and over the groups before.
  Buffer<int32_t> sums;
  using Sums = int32_t[kMaxGroups * kTileFeatures];
  alignas(64) Sums before[kMaxSortedLanes];
  int32_t absent[kMaxSortedLanes][kTileFeatures];  // sums over missing values
  alignas(64) int16_t keys[(kSortedRowSlots + kMaxGroups) * kTileFeatures];
  alignas(64) int32_t found[kSortedRowSlots * kTileFeatures];        // in `table`, by the keys
  alignas(64) int16_t table[kMaxSortedLanes][kSortedRowSlots] = {};  // channels

  void reserve(const ChannelLayout& layout) {
    sums.reserve(static_cast<size_t>(layout.lanes) * kSortedRowSlots * kTileFeatures);
  }
  // Return the sum of a channel over the first rows, fewer than all.
  int32_t sum_before(int channel, int n_rows, int slot) const {
    const int group = n_rows / group_rows, lane = group * kTileFeatures + slot;
    const int row = lane / 16 * group_rows + n_rows % group_rows;
    return sums.data()[channel * n_sums + 16 * row + lane % 16] + before[channel][lane];
  }
  // Write the sums of the channels over the left child of a slot's best split.
  void write_left(int slot, int n_channels, int32_t* left) const {
    const SortedSplit& split = splits[slot];
    for (int c = 0; c < n_channels; ++c)
      left[c] =
          sum_before(c, split.n_left, slot) + (split.best.missing_left != 0 ? absent[c][slot] : 0);
  }
};

struct SortedRowKernels {
  // Write the best split of every feature of a tile. Rows: n <= kMaxSortedRows, with their words
  // and channels. missing: code of missing values.
  void (*scan)(const ScanNode& node, const uint64_t* words, const int16_t* channels, int n,
               int missing, SortedRows& rows);
};
POLYLEAF_DECLARE_KERNELS(SortedRowKernels, sorted_row_kernels)

}  // namespace polyleaf
