// Validation of trees from files and from Python.
#include "grower/tree.h"

#include <stdexcept>
#include <string>

namespace polyleaf {
namespace {

[[noreturn]] void reject(int32_t node, const std::string& what) {
  throw std::invalid_argument("The tree is not valid: node " + std::to_string(node) + " " + what +
                              ".");
}

void check_sizes(const Tree& tree) {
  const size_t n = tree.feature.size();
  if (n == 0)
    throw std::invalid_argument("The tree is not valid: it has no node, not even a root.");
  if (n > size_t{1} << 30)
    throw std::invalid_argument("The tree is not valid: it has more than 2^30 nodes.");
  const bool same = tree.threshold.size() == n && tree.missing_left.size() == n &&
                    tree.left.size() == n && tree.right.size() == n && tree.leaf.size() == n &&
                    tree.category_set.size() == n && tree.gain.size() == n &&
                    tree.count.size() == n && tree.cover.size() == n && tree.n_outputs >= 0 &&
                    tree.output_gain.size() == n * static_cast<size_t>(tree.n_outputs);
  if (!same) throw std::invalid_argument("The tree is not valid: its arrays differ in length.");
}

void check_leaf(const Tree& tree, int32_t node, uint8_t* seen) {
  if (tree.left[node] != -1 || tree.right[node] != -1) reject(node, "is a leaf but has children");
  if (tree.threshold[node] != -1 || tree.category_set[node] != -1)
    reject(node, "is a leaf but has a split");
  const int32_t leaf = tree.leaf[node];
  if (leaf < 0 || leaf >= tree.n_leaves)
    reject(node, "has the leaf id " + std::to_string(leaf) + ", out of range");
  if (seen[leaf]) reject(node, "has the leaf id " + std::to_string(leaf) + " of another leaf");
  seen[leaf] = true;
}

void check_split(const Tree& tree, int32_t node, int32_t n_features) {
  const int32_t feature = tree.feature[node], threshold = tree.threshold[node],
                set = tree.category_set[node];
  if (feature < 0 || feature >= n_features)
    reject(node,
           "splits on feature " + std::to_string(feature) + " of " + std::to_string(n_features));
  if (tree.leaf[node] != -1) reject(node, "is a split but has a leaf id");
  if (set != -1) {
    if (set < 0 || static_cast<size_t>(set) >= tree.categories.size())
      reject(node, "names the category set " + std::to_string(set) + ", out of range");
    if (threshold != -1) reject(node, "has both a threshold and a category set");
  } else if (threshold < 0 || threshold >= kMissingCode) {
    reject(node, "has the threshold code " + std::to_string(threshold) + ", outside 0 .. 254");
  }
  // Children come after their parent, so there is no cycle.
  const int32_t n = tree.n_nodes();
  for (int32_t child : {tree.left[node], tree.right[node]})
    if (child <= node || child >= n)
      reject(node, "has the child " + std::to_string(child) + ", which is not after it");
}

}  // namespace

void check_tree(const Tree& tree, int32_t n_features) {
  check_sizes(tree);
  const int32_t n = tree.n_nodes();
  if (tree.n_leaves != n / 2 + 1 || n % 2 == 0)
    throw std::invalid_argument("The tree is not valid: " + std::to_string(n) + " nodes with " +
                                std::to_string(tree.n_leaves) + " leaves are not a binary tree.");
  std::vector<uint8_t> seen(n + tree.n_leaves);  // one allocation: files have many small trees
  uint8_t *const reached = seen.data(), *const leaf_seen = reached + n;
  reached[0] = true;
  for (int32_t node = 0; node < n; ++node) {
    if (!reached[node]) reject(node, "has no parent");
    if (tree.missing_left[node] > 1) reject(node, "has a missing_left that is neither 0 nor 1");
    if (tree.count[node] < 0) reject(node, "has a negative count");
    if (tree.feature[node] == -1) {
      check_leaf(tree, node, leaf_seen);
      continue;
    }
    check_split(tree, node, n_features);
    for (int32_t child : {tree.left[node], tree.right[node]}) {
      if (reached[child]) reject(child, "has two parents");
      reached[child] = true;
    }
  }
}

}  // namespace polyleaf
