// Finds the best splits of nodes in their histograms and in sparse columns, and decides whether a
// split is admissible.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/context.h"
#include "grower/search.h"
#include "search/dense_scan.h"
#include "search/histogram_builder.h"
#include "search/sparse_scan.h"

namespace polyleaf {

// The best splits of every part (tiles, then groups of sparse features) of a node; feature -1: the
// part has none.
struct CandidateSplits {
  int32_t node;
  std::vector<TileSplit> splits;
};

// Return the best split; nullptr if there is none.
const TileSplit* find_best(const std::vector<TileSplit>& splits);
// Return the best splits of finite sum, at most n, each of another feature group, the best first.
std::vector<const TileSplit*> find_best_of_groups(const std::vector<TileSplit>& splits,
                                                  const Bins& bins, size_t n);
SplitInfo to_split_info(const TileSplit& split, double gain);
// Return the best split (nullptr: none) of a node whose own score is `node_sum`, with its gain; no
// feature if it is not admissible.
SplitInfo validate_gain(const TileSplit* best, float node_sum, int n_outputs,
                        const GrowConfig& config);

class SplitFinder {
 public:
  SplitFinder(const Bins& bins, const Context& context);

  // Set constraints that hold from the next tree on.
  void set_monotone_constraints(MonotoneConstraints constraints) {
    constraints_ = std::move(constraints);
  }
  // Start a tree.
  void start(const TreeContext& tree, const ChannelLayout& layout);
  void set_categorical_overfit(const CategoricalOverfit& overfit) { overfit_ = overfit; }
  // Set how many splits a part proposes: the best one, or the best of each group of features.
  void set_part_size(int n_splits) { part_size_ = n_splits; }
  int part_size() const { return part_size_; }
  OutputBounds make_output_bounds() const { return OutputBounds(constraints_.stride()); }

  // Return the node as the kernels see it. `thread`: whose workspace they may use.
  ScanNode scan_node(const HistogramNode& node, int thread = 0) const;
  const ScoreKernels& scores() const {
    return select_score_kernels(layout_, tree_->config().split);
  }
  // Return flags of the features that a node may be split on, and of those in a tile.
  const std::vector<uint8_t>& get_allowed(const HistogramNode& node) const {
    return tree_->has_node_features() ? node.allowed : tree_->features();
  }
  Slots get_allowed_slots(const HistogramNode& node, const Tile& tile) const;

  // Sparse leaves: bound what candidates of a node can gain, so that few are scored exactly.
  void set_prune_bound(HistogramNode& node, int thread) const;
  bool has_prune_bounds() const { return scores().prune_bound != nullptr; }
  // Start or drop the gain bounds of a node's sparse features.
  void set_gain_bounds(HistogramNode& node, bool has_fixed_gradients) const;
  // Pass gain bounds to the child that keeps the parent's list of nonzeros; the rows of the other
  // child leave it.
  void pass_gain_bounds(HistogramNode& parent, HistogramNode& left, HistogramNode& right,
                        const FixedGradients& gradients) const;
  // Set the output bounds of the children of a split node.
  void propagate_output_bounds(const HistogramNode& parent, HistogramNode& left,
                               HistogramNode& right) const;

  // Return whether the splits of small nodes come from sorted rows.
  bool can_sort_rows() const {
    return layout_.n_outputs <= kMaxSortedOutputs && layout_.lanes <= kMaxSortedLanes &&
           layout_.count_lane >= 0 && are_separable(layout_, tree_->config().split) &&
           !constraints_.any();
  }
  // Write the best splits of a small node in one tile without categories.
  void scan_sorted_rows(HistogramNode& node, int tile, const uint64_t* words,
                        const int16_t* channels, const Slots& slots, int thread, TileSplit* out);
  // Write the best splits of a node in one tile, or in one group of sparse features.
  void scan_tile(HistogramNode& node, int tile, const TileHistogram& histogram, const Slots& slots,
                 int thread, TileSplit* out);
  void scan_sparse(HistogramNode& node, int group, const int16_t* channels, int thread,
                   TileSplit* out);
  // Write the best splits on the sparse features first .. last - 1, from bins of all ranks.
  void scan_shared(HistogramNode& node, int64_t first, int64_t last,
                   std::span<const SparseBinList> bins, int thread, TileSplit* out);

  // Return the best of the candidates if it is admissible.
  SplitInfo choose(const HistogramNode& node, const TileSplit* best) const;
  // Write what each output gains by the node's best split.
  void write_output_gains(const HistogramNode& node, float* output_gain) const;

 private:
  struct Scratch {
    Buffer<int32_t> lanes;
    mutable Buffer<float> workspace;
    Buffer<double> moments;
    SparseHistogram sparse;
    ScanScratch scan;
    SortedRows sorted_rows;
    void reserve(const ChannelLayout& layout);
  };

  void scan_sparse(HistogramNode& node, const SparseScanInput& input, int thread, TileSplit* out);
  template <class Find>
  void find_with_pruning(HistogramNode& node, int thread, const Find& find);

  const Bins& bins_;
  MonotoneConstraints constraints_;
  const TreeContext* tree_ = nullptr;
  ChannelLayout layout_;
  CategoricalOverfit overfit_;
  int part_size_ = 1;
  std::vector<Scratch> scratch_;
};

}  // namespace polyleaf
