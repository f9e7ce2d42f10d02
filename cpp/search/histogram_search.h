// Best splits from histograms of quantised gradients (GBDT-MO, Algorithms 1 and 2): a builder makes
// histograms, a finder scans them. Sparse features have one histogram at a time, of the nonzeros of
// the node. In distributed training ranks share tiles (allreduce_histograms.h) and sparse features
// (shared_sparse_bins.h).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/context.h"
#include "base/object_pool.h"
#include "grower/search.h"
#include "search/gradient_source.h"
#include "search/histogram_builder.h"
#include "search/shared_sparse_bins.h"
#include "search/split_finder.h"

namespace polyleaf {

class HistogramSearch final : public Search {
 public:
  explicit HistogramSearch(const Bins& bins, const Context& context);

  HistogramSearch(const HistogramSearch&) = delete;
  HistogramSearch& operator=(const HistogramSearch&) = delete;

  // Set the gradients of the next tree, or of the next layer.
  void use(const QuantisedGradients& gradients) {
    fixed_.use(gradients);
    source_ = &fixed_;
  }
  void use(GradientSource& source) { source_ = &source; }
  // Set constraints that hold from the next tree on.
  void set_monotone_constraints(MonotoneConstraints constraints) {
    finder_.set_monotone_constraints(std::move(constraints));
  }

  const RowSample& sample() const override { return source_->sample(); }
  int n_outputs() const override { return source_->layout().n_outputs; }
  void start(const TreeContext& tree, const SearchNode& root) override;
  void evaluate(const std::vector<SearchNode>& nodes, bool renewed,
                std::vector<SplitInfo>& splits) override;
  void split(int32_t parent, const SearchNode& left, const SearchNode& right,
             float* output_gain) override;
  double cover(int32_t node) const override;

  // Return what `evaluate` chooses from, for each node of the batch that may have children. If more
  // than one split is asked for, each part proposes the best split of every group of features
  // (Bins::feature_group), so that proposals do not depend on how features are stored. In
  // distributed training: the best n_splits groups of each rank. Valid until the next call.
  const ObjectPool<CandidateSplits>& propose(const std::vector<SearchNode>& nodes, bool renewed,
                                             size_t n_splits = 1);
  // Select the split of a node; nullptr: the node stays a leaf.
  void select(int32_t node, const TileSplit* split);

 private:
  HistogramNode& add_node(const SearchNode& at, const ChannelView& view);
  void refresh(const std::vector<SearchNode>& nodes);
  void gather_channels(std::vector<HistogramJob>& jobs);
  int64_t count_rows(std::span<const HistogramJob> jobs) const;
  void sum_totals(const std::vector<HistogramJob>& jobs);
  void set_bounds(const std::vector<HistogramJob>& jobs);
  void allocate_candidates(std::vector<HistogramJob>& jobs);
  void run(std::span<HistogramJob> jobs);
  void run_part(const HistogramJob& job, int part, int thread);
  void run_tile(const HistogramJob& job, int tile_index, int thread, TileSplit* built,
                TileSplit* sibling);
  void run_shared_features(const std::vector<HistogramJob>& jobs);
  void gather_best_splits(size_t n_splits);

  const Bins& bins_;
  const Context context_;
  FixedGradients fixed_;
  GradientSource* source_ = nullptr;
  const TreeContext* tree_ = nullptr;
  ChannelLayout layout_;
  ObjectPool<HistogramNode> nodes_;
  ObjectPool<CandidateSplits> candidates_;
  HistogramBuilder builder_;
  SplitFinder finder_;
  SharedSparseBins shared_;
  int n_parts_ = 0;  // of a node that this rank scans
};

}  // namespace polyleaf
