// Monotone leaf values: an isotonic regression over the order of the leaves, output by output,
// weighted by the Hessian.
#pragma once
#include <cstdint>
#include <vector>

#include "base/context.h"
#include "grower/tree.h"

namespace polyleaf {

// Monotone directions by feature and output; 1: increasing, -1: decreasing, 0: unconstrained.
struct MonotoneDirections {
  const int8_t* data;  // (n_features, n_outputs)
  int n_features, n_outputs;

  int8_t operator()(int feature, int output) const {
    return data[static_cast<int64_t>(feature) * n_outputs + output];
  }
};

// Project values (n_leaves, n_outputs) in place. weights: (n_leaves, weight_columns) with one
// column or one per output. n_bins: bins of each feature.
void enforce_monotone_constraints(const Tree& tree, const uint16_t* n_bins,
                                  const MonotoneDirections& directions,
                                  const std::vector<double>& weights, int weight_columns,
                                  const Context& context, float* values);

}  // namespace polyleaf
