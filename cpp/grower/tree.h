// The structure of one tree: splits on bin codes and numbered leaves. Leaf values are stored
// separately (leaves/).
#pragma once
#include <cstdint>
#include <vector>

#include "base/bin_code.h"

namespace polyleaf {

// Every array has one entry per node. Node 0 is the root; children come after their parent.
struct Tree {
  std::vector<int32_t> feature;       // -1: leaf
  std::vector<int32_t> threshold;     // last code that goes left; -1: categorical or leaf
  std::vector<uint8_t> missing_left;  // where code 255 goes (numeric and categorical)
  std::vector<int32_t> left, right;   // -1: leaf
  std::vector<int32_t> leaf;          // leaf id; -1: inner node
  std::vector<int32_t> category_set;  // row of `categories`; -1: numeric or leaf
  std::vector<CategorySet> categories;
  std::vector<double> gain;    // of the split, averaged over outputs; 0 for a leaf
  std::vector<int64_t> count;  // training rows of the sample
  std::vector<double> cover;   // summed Hessian (mean over outputs)
  // What each output contributes to gain * n_outputs, n_nodes x n_outputs.
  std::vector<float> output_gain;
  int32_t n_leaves = 0;
  int32_t n_outputs = 0;

  int32_t n_nodes() const { return static_cast<int32_t>(feature.size()); }

  bool goes_left(int32_t node, int code) const {
    if (code == kMissingCode) return missing_left[node] != 0;
    if (category_set[node] >= 0) return contains(categories[category_set[node]], code);
    return code <= threshold[node];
  }
};

// Throw std::invalid_argument unless the arrays describe one valid tree with features < n_features.
// A checked tree can be traversed without further checks. Trees from files and from Python are
// checked; trees made by the grower need not be.
void check_tree(const Tree& tree, int32_t n_features);

}  // namespace polyleaf
