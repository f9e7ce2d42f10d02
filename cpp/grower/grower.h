// The tree grower. Read this file first.
//
// Vocabulary: quantised gradients are small integers per row; a histogram sums them per bin without
// knowing what they mean; a score turns summed gradients into a split gain; a search finds the best
// splits of a batch of nodes; the row partitioner keeps the rows of a node next to each other; the
// expansion policy decides which leaf nodes are split next; the tree holds the structure and
// numbered leaves; leaf values are fitted afterwards (leaves/) from unquantised derivatives.
//
// One tree is grown as in GBDT-MO's Algorithm 5, in batches:
//
//   begin                    # the root
//   do evaluate              # the search finds the best splits of the new nodes
//   while split              # the next batch of the policy: rows move to the children
//   finish                   # number the leaves
//
// Layer-wise boosting (TFBT, section V) runs the same steps with new derivatives between `split`
// and `evaluate`.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/context.h"
#include "grower/row_partitioner.h"
#include "grower/search.h"
#include "grower/tree.h"

namespace polyleaf {

// Decide which leaf nodes are expanded next: best-first or level-wise, with a limit on leaves.
// Returns batches of independent nodes.
//
// Best-first is GBDT-MO's Algorithm 5. When the leaf limit cannot bind, the order does not matter
// and whole levels are expanded at once.

struct ExpandEntry {
  int32_t node;
  double gain;
};

class ExpansionPolicy {
 public:
  // max_depth < 0: no limit.
  ExpansionPolicy(bool level_wise, int max_leaves, int max_depth)
      : expands_whole_frontier_(level_wise || (max_depth >= 0 && max_depth < 31 &&
                                               max_leaves >= (int64_t{1} << max_depth))),
        leaves_left_(max_leaves - 1) {}

  void push(int32_t node, double gain) { frontier_.push_back({node, gain}); }
  bool can_add_leaves() const { return leaves_left_ > 0; }

  // Return the nodes to split next, in order of id; empty when growth has ended. Every split adds
  // one leaf.
  std::vector<int32_t> next() {
    const auto better = [](const ExpandEntry& a, const ExpandEntry& b) {
      return a.gain > b.gain || (a.gain == b.gain && a.node < b.node);
    };
    const size_t limit =
        std::min<size_t>(expands_whole_frontier_ ? frontier_.size() : 1, std::max(leaves_left_, 0));
    const size_t n = std::min(limit, frontier_.size());
    if (n < frontier_.size())
      std::partial_sort(frontier_.begin(), frontier_.begin() + n, frontier_.end(), better);
    std::vector<int32_t> batch;
    for (size_t i = 0; i < n; ++i) batch.push_back(frontier_[i].node);
    std::sort(batch.begin(), batch.end());
    POLYLEAF_DCHECK(std::adjacent_find(batch.begin(), batch.end()) == batch.end());
    if (expands_whole_frontier_)
      frontier_.clear();
    else
      frontier_.erase(frontier_.begin(), frontier_.begin() + n);
    leaves_left_ -= static_cast<int>(n);
    return batch;
  }

 private:
  bool expands_whole_frontier_;
  int leaves_left_;
  std::vector<ExpandEntry> frontier_;
};

class Grower {
 public:
  Grower(const Bins& bins, const Context& context);
  // Grow with rows that a given partitioner holds, for example on a GPU.
  Grower(std::unique_ptr<RowPartitioner> rows, const Context& context);

  Grower(const Grower&) = delete;
  Grower& operator=(const Grower&) = delete;

  // Set constraints for all following trees.
  void set_interaction_constraints(InteractionConstraints interactions) {
    interactions_ = std::move(interactions);
  }

  // Grow one tree. `features`: n_features flags, or nullptr for all.
  Tree grow(Search& search, const GrowConfig& config, const uint8_t* features);

  // Start a tree that is grown step by step. `config` is copied; `search` must live until
  // `finish`.
  void begin(Search& search, const GrowConfig& config, const uint8_t* features);
  // Find the best splits of the new nodes. `renewed`: the derivatives or the sample have changed
  // since the nodes were made.
  void evaluate(bool renewed);
  // Split the next batch of the expansion policy; return false when there is none.
  bool split();
  // Return whether a node made by the last split can still be split; false means that growth has
  // ended.
  bool can_split_further() const;
  // Number the leaves of the tree so far and fill `leaf_of_row`.
  const Tree& assign_leaf_ids();
  Tree finish();

  const Bins& bins() const { return rows_->bins(); }
  RowPartitioner& rows() { return *rows_; }

  // Leaf id of every row, including rows outside the sample; valid after finish() or
  // assign_leaf_ids().
  const int32_t* leaf_of_row() { return rows_->leaf_of_row(); }
  // Node id of each leaf, with the ids that nodes had before pruning.
  const std::vector<int32_t>& node_of_leaf() const { return node_of_leaf_; }

 private:
  struct Node {
    SearchNode at;
    SplitInfo split_info;
    // the node that owns its rows: itself, or the ancestor that pruning turned into a leaf
    int32_t owner;
    bool is_split;
  };

  void reserve_nodes();
  void add_node(const SearchNode& at);
  // Create the children of a node whose rows have been partitioned.
  void make_children(int32_t id, const RowPartitioner::PartitionRequest& request);
  void repartition();
  void count_rows();
  void prune();
  void remove_pruned_nodes();

  const std::unique_ptr<RowPartitioner> rows_;
  const Context context_;
  TreeContext tree_context_;
  InteractionConstraints interactions_;
  GrowConfig config_{};
  Search* search_ = nullptr;
  ExpansionPolicy policy_{false, 1, 0};
  Tree tree_;
  std::vector<Node> nodes_;
  std::vector<int32_t> new_nodes_;  // created by the last split, not evaluated yet
  std::vector<int32_t> node_of_leaf_;
};

}  // namespace polyleaf
