// Paths to the leaves of a tree by feature: the conditions on each feature for a row to reach a
// leaf, and their probability.
//
// A path may split on a feature several times; these splits are merged. A row satisfies the feature
// if it goes towards the leaf at all of them. The share of a feature is the product, over its
// splits, of the fraction of training rows that go to the child on the path.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "explain/kernels/shap_kernels.h"
#include "grower/tree.h"
#include "leaves/leaf_block.h"

namespace polyleaf {

// Features of the path: first .. first + n_features - 1. A linear leaf also has regressors that the
// path does not split on; all rows satisfy them, with share 1. Regressors: first_entry ..
// first_entry + n_entries - 1.
struct LeafPath {
  int32_t leaf, first, n_features, first_entry, n_entries;
};

// Up to kLeafGroupSize leaves of one tree.
struct LeafPaths {
  std::vector<SplitOnCodes> splits;
  std::vector<std::array<uint8_t, 256>> categories;  // code tables of categorical splits
  std::vector<LeafPath> leaves;
  std::vector<int32_t> columns;  // column of each feature of each path in code tables
  std::vector<double> shares;
  std::vector<int32_t>
      test_begin;  // the tests of feature i are test_begin[i] .. test_begin[i + 1] - 1
  std::vector<SplitOnPath> tests;
  std::vector<int32_t>
      regressors;  // of each entry of a linear leaf: which of the path's features it is

  int32_t max_features() const;  // largest number of features of a path
};

constexpr int32_t kLeafGroupSize = 64;

// feature_column[f] is the column of feature f. Paths copy what they need of the tree.
std::vector<LeafPaths> leaf_paths(const Tree& tree, const LeafView& leaves,
                                  const std::vector<int32_t>& feature_column);

}  // namespace polyleaf
