// Sums over the nodes of a tree that is known before its rows are, for leaf values that are fitted
// again: the bits are the same as when a search grows the tree on these rows.
#pragma once
#include <cstdint>
#include <vector>

#include "base/context.h"
#include "data/sample.h"
#include "grower/tree.h"

namespace polyleaf {

class NodeSums {
 public:
  // leaf_of_row (sample.n_all): the leaf of every row. Everything is copied.
  NodeSums(const Tree& tree, const int32_t* leaf_of_row, const RowSample& sample,
           const Context& context);

  int64_t n_rows() const { return sample_.n_all; }
  // Rows of the sample in each node, on all ranks.
  const std::vector<int64_t>& counts() const { return counts_; }

  // Return the Hessian of each node as histograms sum it, averaged over the columns of h (n_all,
  // n_columns); nullptr: 1 per row. quantises_nodes: whether each node quantises its rows anew, and
  // its children have sums on its scale, as the search for linear leaves does.
  std::vector<double> sum_hessians(const float* h, int n_columns, bool quantises_nodes,
                                   const Context& context) const;
  // Return the Hessian of each node as searches over sparse targets sum it: weights (n_all) of the
  // rows; nullptr: 1.
  std::vector<double> sum_weights(const float* weight, const Context& context) const;

 private:
  std::vector<float> sum_scaled_hessians(const float* h, size_t n_columns,
                                         const Context& context) const;
  int32_t node(int64_t row) const { return node_of_leaf_[leaf_of_row_[row]]; }
  // Return sums of all nodes on all ranks, from sums (n_nodes, n_columns) that leaves have here.
  void sum_up(std::vector<int64_t>& sums, size_t n_columns, const Context& context) const;

  std::vector<int32_t> leaf_of_row_, parent_, node_of_leaf_;
  std::vector<uint32_t> rows_;
  std::vector<float> multiplier_;
  RowSample sample_;
  std::vector<int64_t> counts_;
};

}  // namespace polyleaf
