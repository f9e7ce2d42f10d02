// The grower. Read this file first.
//
// Vocabulary (docs/design.md section 1): *channels* are small integers per row; a *histogram* sums
// them per bin without knowing what they mean; a *score* reads summed channels and says how good a
// split is; a *search* finds the best splits of a batch of nodes; the *partition* keeps a node's
// rows next to each other; the *schedule* says which frontier nodes are split next; the *tree*
// holds structure and numbered leaves; what a leaf pays out is fitted afterwards (leaves/) from
// unquantised derivatives.
//
// One tree, as GBDT-MO's Algorithm 5 with batches:
//
//   begin                    # the root
//   do evaluate              # the search finds the best splits of the new nodes
//   while split              # the schedule's next batch: rows move to the children
//   finish                   # number the leaves
//
// Layer-by-layer boosting (TFBT, section V) is the same steps with new derivatives between `split`
// and `evaluate`.
//
// Owns: the nodes of one tree and the order of the steps. Must not know: channels, scores,
// objectives, leaf values.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "base/context.h"
#include "grower/expansion_policy.h"
#include "grower/row_partitioner.h"
#include "grower/search.h"
#include "grower/tree.h"

namespace polyleaf {

class Grower {
 public:
  Grower(const Bins& bins, const Workers& workers);
  // Where rows lie elsewhere: only for searches that read them there.
  Grower(std::unique_ptr<RowPartitioner> rows, const Workers& workers);

  Grower(const Grower&) = delete;
  Grower& operator=(const Grower&) = delete;

  // What holds for all trees from here on.
  void set_interaction_constraints(InteractionConstraints interactions) {
    interactions_ = std::move(interactions);
  }

  // One whole tree. `features`: n_features flags, or nullptr for all.
  Tree grow(Search& search, const GrowConfig& config, const uint8_t* features);

  // The same, step by step. `config` is copied; `search` must live until `finish`.
  void begin(Search& search, const GrowConfig& config, const uint8_t* features);
  // Finds the best splits of the nodes that are new. `renewed`: the search's derivatives, or its
  // sample, are not those that it had when the nodes were made.
  void evaluate(bool renewed);
  // Splits the schedule's next batch; false where there is nothing left to split.
  bool split();
  // Whether a node that the last split made could have children: false where growth is sure to have
  // ended.
  bool can_split_further() const;
  // The tree so far, with every row's leaf in `leaf_of_row`.
  const Tree& assign_leaf_ids();
  Tree finish();

  const Bins& bins() const { return rows_->bins(); }
  RowPartitioner& rows() { return *rows_; }

  // Leaf id of every row, rows outside the sample included; valid after finish() or
  // assign_leaf_ids().
  const int32_t* leaf_of_row() { return rows_->leaf_of_row(); }
  // Node that each leaf of the tree is, by the numbers that nodes had while they grew.
  const std::vector<int32_t>& node_of_leaf() const { return node_of_leaf_; }

 private:
  struct Node {
    SearchNode at;
    SplitInfo split_info;
    int32_t owner;  // the node that holds its rows: itself, or the ancestor where the tree was cut
                    // back
    bool is_split;
  };

  void add_node(const SearchNode& at);
  // Of a node whose rows have been divided.
  void make_children(int32_t id, const RowPartitioner::PartitionRequest& request);
  void repartition();
  void count_rows();
  void prune();
  void remove_pruned_nodes();

  const std::unique_ptr<RowPartitioner> rows_;
  const Workers workers_;
  TreeContext tree_context_;
  InteractionConstraints interactions_;
  GrowConfig config_{};
  Search* search_ = nullptr;
  ExpansionPolicy policy_{false, 1, 0};
  Tree tree_;
  std::vector<Node> nodes_;
  std::vector<int32_t> new_nodes_;  // made by the last split, not evaluated yet
  std::vector<int32_t> node_of_leaf_;
};

}  // namespace polyleaf
