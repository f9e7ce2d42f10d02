#include "explain/leaf_paths.h"

#include <algorithm>

namespace polyleaf {
namespace {

// The parent of a node.
struct Branch {
  int32_t parent = -1;
  bool left = false;
  double share = 1.0;  // share of the rows of both children
};

std::vector<Branch> find_branches(const Tree& tree) {
  std::vector<Branch> branches(tree.n_nodes());
  for (int32_t node = 0; node < tree.n_nodes(); ++node) {
    if (tree.feature[node] < 0) continue;
    const int32_t left = tree.left[node], right = tree.right[node];
    const double both =
        static_cast<double>(tree.count[left]) + static_cast<double>(tree.count[right]);
    const double share = both > 0.0 ? static_cast<double>(tree.count[left]) / both : 0.5;
    branches[left] = {node, true, share};
    branches[right] = {node, false, 1.0 - share};
  }
  return branches;
}

class PathWriter {
 public:
  PathWriter(const Tree& tree, const std::vector<int32_t>& feature_column, LeafPaths& paths)
      : tree_(tree),
        feature_column_(feature_column),
        paths_(paths),
        split_ids_(tree.n_nodes(), -1) {
    paths_.test_begin.push_back(0);
  }

  void add_leaf(int32_t node, const std::vector<Branch>& branches, const LeafView& leaves) {
    LeafPath path{tree_.leaf[node], static_cast<int32_t>(paths_.columns.size()), 0,
                  static_cast<int32_t>(paths_.regressors.size()), 0};
    climb(node, branches);
    for (size_t i = 0; i < steps_.size(); ++i)
      if (!steps_[i].used) add_feature(i, path);
    if (leaves.kind->is_linear) add_regressors(leaves, path);
    paths_.leaves.push_back(path);
  }

 private:
  struct Step {
    int32_t node, column;
    Branch branch;
    bool used;
  };

  // Collect the splits above a leaf, from the root on.
  void climb(int32_t node, const std::vector<Branch>& branches) {
    steps_.clear();
    for (; branches[node].parent >= 0; node = branches[node].parent) {
      const int32_t parent = branches[node].parent;
      steps_.push_back({parent, feature_column_[tree_.feature[parent]], branches[node], false});
    }
    std::reverse(steps_.begin(), steps_.end());
  }

  // Add the feature of a step with all later steps on it.
  void add_feature(size_t from, LeafPath& path) {
    double share = 1.0;
    for (size_t i = from; i < steps_.size(); ++i) {
      if (steps_[i].column != steps_[from].column) continue;
      steps_[i].used = true;
      share *= steps_[i].branch.share;
      paths_.tests.push_back(
          {add_split(steps_[i].node), static_cast<uint8_t>(steps_[i].branch.left ? 0 : 255)});
    }
    end_feature(steps_[from].column, share, path);
  }

  void end_feature(int32_t column, double share, LeafPath& path) {
    paths_.columns.push_back(column);
    paths_.shares.push_back(share);
    paths_.test_begin.push_back(static_cast<int32_t>(paths_.tests.size()));
    ++path.n_features;
  }

  void add_regressors(const LeafView& leaves, LeafPath& path) {
    for (int64_t e = leaves.begin[path.leaf]; e < leaves.begin[path.leaf + 1];
         ++e, ++path.n_entries) {
      const int32_t column = feature_column_[leaves.index[e]];
      const auto begin = paths_.columns.begin() + path.first;
      const auto at = std::find(begin, paths_.columns.end(), column);
      paths_.regressors.push_back(static_cast<int32_t>(at - begin));
      if (at == paths_.columns.end()) end_feature(column, 1.0, path);
    }
  }

  int32_t add_split(int32_t node) {
    if (split_ids_[node] >= 0) return split_ids_[node];
    // As in prediction, shift 1 wraps the missing code 255 to 0.
    const uint8_t shift = tree_.missing_left[node];
    const int32_t cut = tree_.category_set[node] < 0 ? tree_.threshold[node] + shift : 0;
    paths_.splits.push_back(
        {feature_column_[tree_.feature[node]], static_cast<uint8_t>(cut), shift, nullptr});
    if (tree_.category_set[node] >= 0) {
      std::array<uint8_t, 256> left;
      for (int code = 0; code < 256; ++code)
        left[code] = tree_.goes_left(node, code) ? uint8_t{255} : uint8_t{0};
      paths_.categories.push_back(left);
      categorical_.push_back(static_cast<int32_t>(paths_.splits.size()) - 1);
    }
    return split_ids_[node] = static_cast<int32_t>(paths_.splits.size()) - 1;
  }

 public:
  // Set the pointers to category tables; call after all leaves were added.
  void link_categories() {
    for (size_t i = 0; i < categorical_.size(); ++i)
      paths_.splits[categorical_[i]].left = paths_.categories[i].data();
  }

 private:
  const Tree& tree_;
  const std::vector<int32_t>& feature_column_;
  LeafPaths& paths_;
  std::vector<int32_t> split_ids_;  // split id of each node; -1: none yet
  std::vector<int32_t> categorical_;
  std::vector<Step> steps_;
};

}  // namespace

int32_t LeafPaths::max_features() const {
  int32_t largest = 0;
  for (const LeafPath& path : leaves) largest = std::max(largest, path.n_features);
  return largest;
}

std::vector<LeafPaths> leaf_paths(const Tree& tree, const LeafView& leaves,
                                  const std::vector<int32_t>& feature_column) {
  const std::vector<Branch> branches = find_branches(tree);
  std::vector<int32_t> nodes;
  for (int32_t node = 0; node < tree.n_nodes(); ++node)
    if (tree.feature[node] < 0) nodes.push_back(node);
  std::vector<LeafPaths> all((nodes.size() + kLeafGroupSize - 1) / kLeafGroupSize);
  for (size_t u = 0; u < all.size(); ++u) {
    PathWriter writer(tree, feature_column, all[u]);
    const size_t end = std::min(nodes.size(), (u + 1) * kLeafGroupSize);
    for (size_t i = u * kLeafGroupSize; i < end; ++i) writer.add_leaf(nodes[i], branches, leaves);
    writer.link_categories();
  }
  return all;
}

}  // namespace polyleaf
