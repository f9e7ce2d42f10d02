#include "grower/grower.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/parallel.h"
#include "grower/host_row_partitioner.h"

namespace polyleaf {

Grower::Grower(const Bins& bins, const Context& context)
    : Grower(std::make_unique<HostRowPartitioner>(bins, context), context) {}

Grower::Grower(std::unique_ptr<RowPartitioner> rows, const Context& context)
    : rows_(std::move(rows)), context_(context) {}

Tree Grower::grow(Search& search, const GrowConfig& config, const uint8_t* features) {
  begin(search, config, features);
  do {
    evaluate(false);
  } while (split());
  return finish();
}

void Grower::begin(Search& search, const GrowConfig& config, const uint8_t* features) {
  if (!config.factors.empty() &&
      static_cast<int>(config.factors.size()) != rows_->bins().n_features())
    throw std::invalid_argument("factors needs one number per feature.");
  search_ = &search;
  config_ = config;
  tree_context_.start(*rows_, config_, interactions_, features);
  policy_ = ExpansionPolicy(config.level_wise, config.max_leaves, config.max_depth);
  nodes_.clear();
  tree_ = Tree();
  tree_.n_outputs = search.n_outputs();
  reserve_nodes();
  const RowRange rows = rows_->start(search.sample());
  const SearchNode root{0, 0, rows, context_.allreduce_sum(rows.size()), {}};
  search.start(tree_context_, root);
  add_node(root);
  new_nodes_.assign(1, 0);
}

// Allocate once, for trees of usual size.
void Grower::reserve_nodes() {
  constexpr int kMaxReserved = 256;
  const auto n = static_cast<size_t>(2 * std::min(config_.max_leaves, kMaxReserved));
  nodes_.reserve(n);
  for (std::vector<int32_t>* field :
       {&tree_.feature, &tree_.threshold, &tree_.left, &tree_.right, &tree_.category_set})
    field->reserve(n);
  tree_.missing_left.reserve(n);
  tree_.gain.reserve(n);
  tree_.count.reserve(n);
  tree_.cover.reserve(n);
  tree_.output_gain.reserve(n * tree_.n_outputs);
}

// A new node is a leaf until it is split.
void Grower::add_node(const SearchNode& at) {
  nodes_.push_back({at, SplitInfo(), at.id, false});
  tree_.feature.push_back(-1);
  tree_.threshold.push_back(-1);
  tree_.missing_left.push_back(0);
  tree_.left.push_back(-1);
  tree_.right.push_back(-1);
  tree_.category_set.push_back(-1);
  tree_.gain.push_back(0);
  tree_.count.push_back(at.count);
  tree_.cover.push_back(search_->cover(at.id));
  tree_.output_gain.resize(tree_.output_gain.size() + tree_.n_outputs, 0.0f);
}

void Grower::evaluate(bool renewed) {
  if (!policy_.can_add_leaves() || new_nodes_.empty()) return;
  if (renewed && !rows_->has(search_->sample())) repartition();
  if (renewed && context_.is_distributed()) count_rows();  // other ranks may have drawn new rows
  std::vector<SearchNode> nodes;
  for (int32_t id : new_nodes_) nodes.push_back(nodes_[id].at);
  std::vector<SplitInfo> splits;
  search_->evaluate(nodes, renewed, splits);
  POLYLEAF_DCHECK(splits.size() == nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (splits[i].feature < 0) continue;
    nodes_[nodes[i].id].split_info = splits[i];
    policy_.push(nodes[i].id, splits[i].gain);
  }
}

bool Grower::split() {
  const std::vector<int32_t> batch = policy_.next();
  new_nodes_.clear();
  if (batch.empty()) return false;
  std::vector<RowPartitioner::PartitionRequest> requests(batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    const Node& node = nodes_[batch[i]];
    const SplitInfo& split_info = node.split_info;
    RowPartitioner::PartitionRequest& d = requests[i];
    d.rows = node.at.rows;
    d.feature = split_info.feature;
    d.threshold = split_info.threshold;
    d.set = split_info.set;
    d.missing_left = split_info.missing_left;
    d.n_left = split_info.n_left;
    const int32_t depth = node.at.depth + 1;
    d.left_is_splittable = tree_context_.can_split(depth, split_info.n_left);
    d.right_is_splittable = tree_context_.can_split(depth, node.at.count - split_info.n_left);
  }
  {
    const PhaseTimer timer(Phase::kPartition);
    rows_->partition_rows(requests);
  }
  for (size_t i = 0; i < batch.size(); ++i) make_children(batch[i], requests[i]);
  return true;
}

void Grower::make_children(int32_t id, const RowPartitioner::PartitionRequest& request) {
  const int32_t left_id = static_cast<int32_t>(nodes_.size());
  Node& node = nodes_[id];
  const SplitInfo& split_info = node.split_info;
  POLYLEAF_DCHECK(!node.is_split && split_info.feature >= 0);
  POLYLEAF_DCHECK(split_info.n_left > 0 && split_info.n_left < node.at.count);
  node.is_split = true;
  tree_.feature[id] = split_info.feature;
  tree_.threshold[id] = split_info.threshold;
  tree_.missing_left[id] = split_info.missing_left;
  tree_.left[id] = left_id;
  tree_.right[id] = left_id + 1;
  tree_.gain[id] = split_info.gain;
  if (split_info.threshold < 0) {
    tree_.category_set[id] = static_cast<int32_t>(tree_.categories.size());
    tree_.categories.push_back(split_info.set);
    tree_.categories.back()[3] &=
        ~(uint64_t{1} << 63);  // missing_left alone decides where missing values go
  }
  const SearchNode& at = node.at;
  std::vector<int32_t> path = at.path;
  tree_context_.extend_path(path, split_info.feature);
  const SearchNode left{left_id, at.depth + 1, request.left, split_info.n_left, path};
  const SearchNode right{left_id + 1, at.depth + 1, request.right, at.count - split_info.n_left,
                         path};
  search_->split(id, left, right,
                 tree_.output_gain.data() + static_cast<size_t>(id) * tree_.n_outputs);
  for (const SearchNode& child : {left, right}) {
    add_node(child);
    new_nodes_.push_back(child.id);
  }
}

bool Grower::can_split_further() const {
  return policy_.can_add_leaves() &&
         std::any_of(new_nodes_.begin(), new_nodes_.end(),
                     [&](int32_t id) { return tree_context_.can_split(nodes_[id].at); });
}

Tree Grower::finish() {
  if (config_.post_prune) prune();
  assign_leaf_ids();
  if (config_.post_prune) remove_pruned_nodes();
  POLYLEAF_DCHECK((check_tree(tree_, bins().n_features()), true));  // throws if it is not valid
  return std::move(tree_);
}

// Prune subtrees whose total gain does not pay for their leaves (TFBT, eq. 8): the sum of their
// gains, each minus min_split_gain. Node ids do not change.
void Grower::prune() {
  const int32_t n = tree_.n_nodes();
  const std::vector<int32_t> left = tree_.left, right = tree_.right;
  std::vector<double> subtree_gain(n, 0.0);
  for (int32_t i = n - 1; i >= 0; --i) {
    if (left[i] < 0) continue;
    subtree_gain[i] = (tree_.gain[i] - config_.split.min_split_gain) +
                      (subtree_gain[left[i]] + subtree_gain[right[i]]);
    if (subtree_gain[i] > 0) continue;
    subtree_gain[i] = 0.0;
    tree_.feature[i] = tree_.threshold[i] = tree_.left[i] = tree_.right[i] = tree_.category_set[i] =
        -1;
    tree_.missing_left[i] = 0;
    tree_.gain[i] = 0;
    std::fill_n(tree_.output_gain.begin() + static_cast<int64_t>(i) * tree_.n_outputs,
                tree_.n_outputs, 0.0f);
  }
  for (int32_t i = 0; i < n; ++i) {
    if (left[i] < 0) continue;
    const bool kept = nodes_[i].owner == i && tree_.left[i] >= 0;
    for (int32_t child : {left[i], right[i]}) nodes_[child].owner = kept ? child : nodes_[i].owner;
  }
}

// Renumber nodes and category sets after pruning.
void Grower::remove_pruned_nodes() {
  Tree kept;
  kept.n_leaves = tree_.n_leaves;
  kept.n_outputs = tree_.n_outputs;
  const int32_t n = tree_.n_nodes();
  std::vector<int32_t> number(n, -1);
  for (int32_t i = 0, next = 0; i < n; ++i)
    if (nodes_[i].owner == i) number[i] = next++;
  // Sets are in the order of splitting, not of nodes.
  std::vector<int32_t> set_number(tree_.categories.size(), -1);
  for (int32_t i = 0; i < n; ++i)
    if (number[i] >= 0 && tree_.category_set[i] >= 0) set_number[tree_.category_set[i]] = 0;
  for (size_t set = 0; set < set_number.size(); ++set) {
    if (set_number[set] < 0) continue;
    set_number[set] = static_cast<int32_t>(kept.categories.size());
    kept.categories.push_back(tree_.categories[set]);
  }
  for (int32_t i = 0; i < n; ++i) {
    if (number[i] < 0) continue;
    const bool leaf = tree_.left[i] < 0;
    kept.feature.push_back(tree_.feature[i]);
    kept.threshold.push_back(tree_.threshold[i]);
    kept.missing_left.push_back(tree_.missing_left[i]);
    kept.left.push_back(leaf ? -1 : number[tree_.left[i]]);
    kept.right.push_back(leaf ? -1 : number[tree_.right[i]]);
    kept.leaf.push_back(tree_.leaf[i]);
    kept.category_set.push_back(tree_.category_set[i] < 0 ? -1 : set_number[tree_.category_set[i]]);
    kept.gain.push_back(tree_.gain[i]);
    kept.count.push_back(tree_.count[i]);
    kept.cover.push_back(tree_.cover[i]);
    const auto gains = tree_.output_gain.begin() + static_cast<int64_t>(i) * tree_.n_outputs;
    kept.output_gain.insert(kept.output_gain.end(), gains, gains + tree_.n_outputs);
  }
  tree_ = std::move(kept);
}

const Tree& Grower::assign_leaf_ids() {
  const int32_t n = tree_.n_nodes();
  tree_.leaf.assign(n, -1);
  tree_.n_leaves = 0;
  node_of_leaf_.clear();
  for (int32_t i = 0; i < n; ++i) {
    if (tree_.left[i] >= 0 || nodes_[i].owner != i) continue;
    tree_.leaf[i] = tree_.n_leaves++;
    node_of_leaf_.push_back(i);
  }
  std::vector<RowPartitioner::LeafRows> leaves;
  for (const Node& node : nodes_)
    if (!node.is_split) leaves.push_back({tree_.leaf[node.owner], node.at.rows});
  rows_->assign_leaf_ids(leaves, tree_);
  return tree_;
}

// Partition the rows of the new sample by the leaves of the tree so far.
void Grower::repartition() {
  assign_leaf_ids();
  const std::vector<RowRange> rows = rows_->repartition(search_->sample(), tree_.n_leaves);
  for (int32_t leaf = 0; leaf < tree_.n_leaves; ++leaf) {
    SearchNode& at = nodes_[node_of_leaf_[leaf]].at;
    at.rows = rows[leaf];
    at.count = rows[leaf].size();
  }
}

// Count the rows of the new nodes over all ranks.
void Grower::count_rows() {
  std::vector<int64_t> counts;
  for (int32_t id : new_nodes_) counts.push_back(nodes_[id].at.rows.size());
  context_.allreduce_sum(counts);
  for (size_t i = 0; i < counts.size(); ++i) nodes_[new_nodes_[i]].at.count = counts[i];
}

}  // namespace polyleaf
