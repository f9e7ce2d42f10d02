// Values of the leaves of one tree made to obey directions of features, output by output: an
// isotonic regression over the order of the leaves (leaf_order.h, isotonic.h), weighted by
// Hessian.
//
// Owns: which outputs share an order. Must not know: how values were fitted.
#pragma once
#include <cstdint>
#include <vector>

#include "base/context.h"
#include "grower/tree.h"

namespace polyleaf {

// For each feature and output 1: must not fall, -1: must not rise, 0: free.
struct MonotoneDirections {
  const int8_t* data;  // (n_features, n_outputs)
  int n_features, n_outputs;

  int8_t operator()(int feature, int output) const {
    return data[static_cast<int64_t>(feature) * n_outputs + output];
  }
};

// values: (n_leaves, n_outputs), changed in place. weights: (n_leaves, weight_columns), one column
// or one an output. n_bins: of each feature.
void enforce_monotone_constraints(const Tree& tree, const uint16_t* n_bins,
                                  const MonotoneDirections& directions,
                                  const std::vector<double>& weights, int weight_columns,
                                  const Workers& workers, float* values);

}  // namespace polyleaf
