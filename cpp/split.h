// The best split of one node over the features of one tile. Sums are exact integers; scores are float32 in
// one fixed order (docs/design.md section 4), so the answer is the same for any thread count and instruction
// set.
//
// Owns: candidates and their order. Must not know: rows, trees, which node comes next.
#pragma once
#include <cstdint>
#include <vector>

#include "bins.h"
#include "channels.h"
#include "isa.h"
#include "tree.h"

namespace polyleaf {

struct SplitConfig {
  float reg_lambda = 1.0f, reg_alpha = 0.0f, max_delta_step = 0.0f, min_child_weight = 0.0f;
  int32_t min_child_samples = 1;
  double min_split_gain = 0.0;
  int max_cat_to_onehot = 4;
  double cat_smooth = 10.0;
};

// A node as the scan sees it: its totals, and how channels are to be read.
struct ScanNode {
  const SplitConfig* config;
  const ChannelLayout* layout;
  const float* gradient_step;   // K floats, zeros after them
  const float* curvature_step;  // K floats, zeros after them
  const int32_t* totals;        // `lanes` sums; 16 readable ints follow
  int32_t count;
};

// One feature's histogram of that node.
struct ScanFeature {
  const int32_t* sums;
  const uint32_t* counts;   // nullptr: the count lane holds them
  const uint64_t* touched;  // 256 bits, bins that may be non-empty; nullptr: any
  int n_bins;
  int missing;  // index of the missing bin

  uint32_t count(const ChannelLayout& layout, int bin) const {
    return counts != nullptr
               ? counts[bin]
               : static_cast<uint32_t>(sums[static_cast<int64_t>(bin) * layout.lanes + layout.count_lane]);
  }
  const int32_t* bin(const ChannelLayout& layout, int bin) const {
    return sums + static_cast<int64_t>(bin) * layout.lanes;
  }
};

struct NumericBest {
  float sum;  // -inf: no admissible candidate
  int32_t bin;
  int32_t missing_left;
};

struct ScanScratch {
  alignas(64) int32_t count[272], curvature[272], gradient[272];
  alignas(64) float left[272], right[272], sums[2][272];
  int32_t bins[272];
  int32_t* lanes;  // running sums when they do not fit registers: 32 * ceil(n_outputs / 16) ints
};

struct SplitKernels {
  void (*scan_numeric)(const ScanNode& node, const ScanFeature& feature, ScanScratch& scratch,
                       NumericBest* best);
  // Score sum of a candidate whose left child has these sums; -inf where a child is too light.
  float (*candidate_sum)(const ScanNode& node, const int32_t* left, int32_t left_count);
  float (*node_sum)(const ScanNode& node);
  // Curvature of the node: summed over rows, mean over outputs.
  float (*node_curvature)(const ScanNode& node);
  // out[lane] += sums[bin][lane] over the first n_bins bins.
  void (*add_bins)(const int32_t* sums, int lanes, int n_bins, int32_t* out);
  // What each output adds to half of sum(candidate) - sum(node), for the candidate chosen.
  void (*output_terms)(const ScanNode& node, const int32_t* left, int32_t left_count, float* out);
};
POLYLEAF_DECLARE_KERNELS(SplitKernels, split_kernels)

// The best candidate of a tile. `left` are the exact sums of the left child.
struct TileSplit {
  float sum;  // -inf: none
  int32_t feature = -1;
  int32_t bin = -1;  // -1: categorical
  bool missing_left = false;
  CategorySet set = {};  // codes as the model sees them (missing is 255)
  int32_t left_count = 0;
  std::vector<int32_t> left;  // lanes
};

// Histogram of a tile: sums [slot][bin][lane], counts [slot][bin] or nullptr, touched [slot][4] or nullptr.
struct TileHistogram {
  const int32_t* sums;
  const uint32_t* counts;
  const uint64_t* touched;
};

// allowed[s] != 0: slot s may be used.
void best_split_of_tile(const Bins& bins, int tile, const TileHistogram& histogram, const ScanNode& node,
                        const uint8_t* allowed, ScanScratch& scratch, TileSplit& best);

}  // namespace polyleaf
