// Sparse Newton leaves: the k outputs of a leaf whose Newton step reduces the loss most, and their
// values (GBDT-MO eq. 19, GBDT-SPARSE eq. 19), from exact fixed-point sums of unquantised
// derivatives. Every leaf selects its own outputs, or the two children of a node share theirs
// (GBDT-MO, Algorithm 4).
#pragma once
#include <cstdint>
#include <vector>

#include "base/context.h"
#include "data/sparse_rows.h"
#include "grower/tree.h"
#include "leaves/newton.h"

namespace polyleaf {

// Leaf l has the entries begin[l] .. begin[l + 1] - 1, outputs ascending.
struct TopkLeafArrays {
  std::vector<int64_t> begin;
  std::vector<int32_t> outputs;
  std::vector<float> values;
};

// Fit from dense derivatives like `fit_newton_leaves` (no full Hessian). `shared`: the tree, if
// children of a node share their outputs; nullptr: every leaf selects its own.
TopkLeafArrays fit_topk_leaves(MatrixView<const float> g, MatrixView<const float> h,
                               const RowSample& sample, const int32_t* leaf_of_row,
                               int32_t n_leaves, const LeafConfig& config, int32_t leaf_k,
                               const Tree* shared, const Context& context);

// Same from summed derivatives of the leaves; H: 1 or n_outputs columns.
TopkLeafArrays solve_topk_leaves(std::vector<double> G, std::vector<double> H, int n_outputs,
                                 int h_columns, const LeafConfig& config, int32_t leaf_k,
                                 const Tree* shared);

// Fit from sparse gradients; every output has the Hessian of its row: `weight` (n_all), or 1.
TopkLeafArrays fit_topk_leaves(const SparseRows& g, const float* weight, const RowSample& sample,
                               const int32_t* leaf_of_row, int32_t n_leaves,
                               const LeafConfig& config, int32_t leaf_k, const Context& context);

}  // namespace polyleaf
