// The ways to the leaves of a tree, seen by feature: what has to hold of a feature for a row to be
// in a leaf, and how likely that is.
//
// A leaf's path may split on a feature several times; here these splits are one: a row *holds* the
// feature where it goes the leaf's way at all of them. The *share* of a feature is what its splits
// leave over of the training rows: the product, over them, of the share of the child on the path in
// the rows of both children.
//
// Owns: paths and shares. Must not know: leaf_values, shap_coefficients, tables of rows.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "explain/kernels/shap_kernels.h"
#include "grower/tree.h"
#include "leaves/leaf_block.h"

namespace polyleaf {

// Features of the path: first .. first + n_features - 1; of a linear leaf also regressors that the
// path does not split on, held by all rows, with share 1. Regressors: first_entry .. first_entry +
// n_entries - 1.
struct LeafPath {
  int32_t leaf, first, n_features, first_entry, n_entries;
};

// Up to kLeafGroupSize leaves of one tree.
struct LeafPaths {
  std::vector<SplitOnCodes> splits;
  std::vector<std::array<uint8_t, 256>> categories;  // what categorical splits point at
  std::vector<LeafPath> leaves;
  std::vector<int32_t> columns;  // of each feature of each path: its column in tables of codes
  std::vector<double> shares;
  std::vector<int32_t>
      test_begin;  // the tests of feature i are test_begin[i] .. test_begin[i + 1] - 1
  std::vector<SplitOnPath> tests;
  std::vector<int32_t>
      regressors;  // of each entry of a linear leaf: which of the path's features it is

  int32_t max_features() const;  // of a path
};

constexpr int32_t kLeafGroupSize = 64;

// column_of[f] is the column of feature f. Paths do not outlive the tree's last change: they copy
// all they need.
std::vector<LeafPaths> leaf_paths(const Tree& tree, const LeafView& leaves,
                                  const std::vector<int32_t>& column_of);

}  // namespace polyleaf
