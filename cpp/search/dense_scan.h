// The best split of one node among the features of one tile. Sums are exact integers; scores are
// float32 in one fixed order, so the result is the same for any number of threads and any
// instruction set.
#pragma once
#include <cstdint>
#include <vector>

#include "base/bin_code.h"
#include "base/isa.h"
#include "data/bins.h"
#include "split_gain/score_kernels.h"
#include "split_gain/sorted_rows.h"

namespace polyleaf {

// Kernels that sum bins.
struct SumKernels {
  // out[lane] += sums[bin][lane] over the first n_bins bins.
  void (*add_bins)(const int32_t* sums, int lanes, int n_bins, int32_t* out);
};
POLYLEAF_DECLARE_KERNELS(SumKernels, sum_kernels)

// Kernels that compare sets of categories.
struct CategoryKernels {
  // Write the positions of n categories along the leading direction of their gradient means (for
  // one output it is the mean itself, the order of Fisher 1958). Category i is bin bins[i] of the
  // feature. workspace: workspace_doubles(n, n_outputs).
  void (*position)(const ScanNode& node, const ScanFeature& feature, const int32_t* bins,
                   const int32_t* counts, int n, double* workspace, double* positions);
  // Write the numbers of n <= 256 positions in ascending order, ties in order of number.
  void (*order)(const double* positions, int n, int32_t* numbers);
  // Write the sums of n bins, one row of lanes each; running: of all bins so far.
  void (*list_sums)(const int32_t* sums, int lanes, const int32_t* bins, int n, bool running,
                    int32_t* rows);
  // Return the first candidate with the largest score sum, of those whose children have enough
  // rows; -1 if there is none. `sums`, which is overwritten, has 15 elements more.
  int (*find_best)(const ScanNode& node, const int32_t* left_counts, int n, float* sums);

  static size_t workspace_doubles(size_t n, size_t n_outputs) {
    return (2 * n_outputs + 16) * (n + 16) + 4 * n_outputs + 64;
  }
};
POLYLEAF_DECLARE_KERNELS(CategoryKernels, category_kernels)

// The best candidate of a tile, with the exact sums of its left child.
struct TileSplit {
  float sum = 0;             // -inf: none
  float penalised_gain = 0;  // gain by which splits on different features are compared
  int32_t feature = -1;
  int32_t bin = -1;  // -1: categorical
  bool missing_left = false;
  CategorySet set = {};  // codes that go left (missing is 255)
  int32_t left_count = 0;
  std::vector<int32_t> left;  // sums, one per lane
  // Linear leaves: products of the feature's bin means with sums of the left child and of the node
  // (empty if the feature is no regressor), and the sums over rows where the feature is missing.
  std::vector<double> left_products, products;
  std::vector<int32_t> absent;
  int32_t n_absent = 0;

  // Return whether this split is better than one on another feature; ties go to the first feature.
  bool comes_before(const TileSplit& other) const {
    return penalised_gain > other.penalised_gain ||
           (penalised_gain == other.penalised_gain && feature < other.feature);
  }
  // Reset to no split.
  void reset(const ScanNode& node);
  // Update with the best split of a feature, if it is better. Its sums are computed once the best
  // feature is known. Features come in ascending order: ties keep the first.
  bool update_if_better(const NumericBest& found, int split_feature, float gain);
  // Set the direction of missing values where the node has none.
  void send_missing_to_larger_child(const ScanNode& node);
  // Return the node with the constraints that hold for this split. A split that separates missing
  // values from all others is unconstrained.
  ScanNode candidate_node(const ScanNode& node, const Bins& bins) const;
};

// Histogram of a tile: sums [slot][bin][lane], counts [slot][bin] or nullptr, touched [slot][4] or
// nullptr. If `sorted` is set: the best split of each slot, and nothing else.
struct TileHistogram {
  const int32_t* sums;
  const uint32_t* counts;
  const uint64_t* touched;
  const SortedRows* sorted = nullptr;
};

// Find the best split of a tile. allowed: flags of the slots that may be used.
void find_best_tile_split(const Bins& bins, int tile, const TileHistogram& histogram,
                          const ScanNode& node, const Slots& allowed, ScanScratch& scratch,
                          TileSplit& best);

}  // namespace polyleaf
