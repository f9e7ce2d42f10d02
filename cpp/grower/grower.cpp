#include "grower/grower.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "grower/host_row_partitioner.h"

namespace polyleaf {
Grower::Grower(const Bins& bins, const Workers& workers)
    : Grower(std::make_unique<HostRowPartitioner>(bins, workers), workers) {}

Grower::Grower(std::unique_ptr<RowPartitioner> rows, const Workers& workers)
    : rows_(std::move(rows)), workers_(workers) {}

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
  scope_.start(*rows_, config_, interactions_, features);
  policy_ = ExpansionPolicy(config.level_wise, config.max_leaves, config.max_depth);
  nodes_.clear();
  tree_ = Tree();
  tree_.n_outputs = search.n_outputs();
  const RowRange rows = rows_->start(search.sample(), scope_.tiles());
  const SearchNode root{0, 0, rows, workers_.sum(rows.size()), {}};
  search.start(scope_, root);
  add_node(root);
  new_nodes_.assign(1, 0);
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
  if (!policy_.can_split_more() || new_nodes_.empty()) return;
  if (renewed && !rows_->has(search_->sample())) repartition();
  if (renewed && !workers_.is_alone())
    count_rows();  // those of another rank may have been drawn anew
  std::vector<SearchNode> nodes;
  for (int32_t id : new_nodes_) nodes.push_back(nodes_[id].at);
  std::vector<SplitInfo> choices;
  search_->evaluate(nodes, renewed, choices);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (choices[i].feature < 0) continue;
    nodes_[nodes[i].id].choice = choices[i];
    policy_.push(nodes[i].id, choices[i].gain);
  }
}

bool Grower::split() {
  const std::vector<int32_t> batch = policy_.next();
  new_nodes_.clear();
  if (batch.empty()) return false;
  std::vector<RowPartitioner::PartitionRequest> divisions(batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    const Node& node = nodes_[batch[i]];
    const SplitInfo& choice = node.choice;
    RowPartitioner::PartitionRequest& d = divisions[i];
    d.rows = node.at.rows;
    d.feature = choice.feature;
    d.threshold = choice.threshold;
    d.set = choice.set;
    d.missing_left = choice.missing_left;
    d.n_left = choice.n_left;
    const int32_t depth = node.at.depth + 1;
    d.left_is_splittable = scope_.can_split(depth, choice.n_left);
    d.right_is_splittable = scope_.can_split(depth, node.at.count - choice.n_left);
  }
  rows_->partition_rows(divisions);
  for (size_t i = 0; i < batch.size(); ++i) make_children(batch[i], divisions[i]);
  return true;
}

void Grower::make_children(int32_t id, const RowPartitioner::PartitionRequest& division) {
  const int32_t left_id = static_cast<int32_t>(nodes_.size());
  Node& node = nodes_[id];
  const SplitInfo& choice = node.choice;
  node.is_split = true;
  tree_.feature[id] = choice.feature;
  tree_.threshold[id] = choice.threshold;
  tree_.missing_left[id] = choice.missing_left;
  tree_.left[id] = left_id;
  tree_.right[id] = left_id + 1;
  tree_.gain[id] = choice.gain;
  if (choice.threshold < 0) {
    tree_.category_set[id] = static_cast<int32_t>(tree_.categories.size());
    tree_.categories.push_back(choice.set);
    tree_.categories.back()[3] &=
        ~(uint64_t{1} << 63);  // missing_left alone tells where missing goes
  }
  const SearchNode& at = node.at;
  std::vector<int32_t> path = at.path;
  scope_.extend(path, choice.feature);
  const SearchNode left{left_id, at.depth + 1, division.left, choice.n_left, path};
  const SearchNode right{left_id + 1, at.depth + 1, division.right, at.count - choice.n_left, path};
  search_->split(id, left, right,
                 tree_.output_gain.data() + static_cast<size_t>(id) * tree_.n_outputs);
  for (const SearchNode& child : {left, right}) {
    add_node(child);
    new_nodes_.push_back(child.id);
  }
}

bool Grower::can_split_further() const {
  return policy_.can_split_more() &&
         std::any_of(new_nodes_.begin(), new_nodes_.end(),
                     [&](int32_t id) { return scope_.can_split(nodes_[id].at); });
}

Tree Grower::finish() {
  if (config_.post_prune) prune();
  assign_leaf_ids();
  if (config_.post_prune) remove_cut_nodes();
  return std::move(tree_);
}

// Cuts subtrees that are not worth their leaves (TFBT, eq. 8): the sum of their gains, each less
// min_split_gain. Nodes keep their numbers.
void Grower::prune() {
  const int32_t n = tree_.n_nodes();
  const std::vector<int32_t> left = tree_.left, right = tree_.right;
  std::vector<double> worth(n, 0.0);
  for (int32_t i = n - 1; i >= 0; --i) {
    if (left[i] < 0) continue;
    worth[i] = (tree_.gain[i] - config_.split.min_split_gain) + (worth[left[i]] + worth[right[i]]);
    if (worth[i] > 0) continue;
    worth[i] = 0.0;
    tree_.feature[i] = tree_.threshold[i] = tree_.left[i] = tree_.right[i] = tree_.category_set[i] =
        -1;
    tree_.missing_left[i] = 0;
    tree_.gain[i] = 0;
    std::fill_n(tree_.output_gain.begin() + static_cast<int64_t>(i) * tree_.n_outputs,
                tree_.n_outputs, 0.0f);
  }
  for (int32_t i = 0; i < n; ++i) {
    if (left[i] < 0) continue;
    const bool kept = nodes_[i].holder == i && tree_.left[i] >= 0;
    for (int32_t child : {left[i], right[i]})
      nodes_[child].holder = kept ? child : nodes_[i].holder;
  }
}

// Numbers nodes and sets of categories anew where some were cut.
void Grower::remove_cut_nodes() {
  Tree kept;
  kept.n_leaves = tree_.n_leaves;
  kept.n_outputs = tree_.n_outputs;
  const int32_t n = tree_.n_nodes();
  std::vector<int32_t> number(n, -1);
  for (int32_t i = 0, next = 0; i < n; ++i)
    if (nodes_[i].holder == i) number[i] = next++;
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
    if (tree_.left[i] >= 0 || nodes_[i].holder != i) continue;
    tree_.leaf[i] = tree_.n_leaves++;
    node_of_leaf_.push_back(i);
  }
  std::vector<RowPartitioner::LeafRows> leaves;
  for (const Node& node : nodes_)
    if (!node.is_split) leaves.push_back({tree_.leaf[node.holder], node.at.rows});
  rows_->assign_leaf_ids(leaves, tree_);
  return tree_;
}

// The search has another sample than the nodes were made with: its rows are grouped by the leaves
// of the tree so far.
void Grower::repartition() {
  assign_leaf_ids();
  const std::vector<RowRange> rows = rows_->repartition(search_->sample(), tree_.n_leaves);
  for (int32_t leaf = 0; leaf < tree_.n_leaves; ++leaf) {
    SearchNode& at = nodes_[node_of_leaf_[leaf]].at;
    at.rows = rows[leaf];
    at.count = rows[leaf].size();
  }
}

// Rows of the new nodes, over all ranks.
void Grower::count_rows() {
  std::vector<int64_t> counts;
  for (int32_t id : new_nodes_) counts.push_back(nodes_[id].at.rows.size());
  workers_.sum(counts);
  for (size_t i = 0; i < counts.size(); ++i) nodes_[new_nodes_[i]].at.count = counts[i];
}

}  // namespace polyleaf
