#include "split_gain/monotone_constraints.h"

#include <cmath>
#include <stdexcept>
#include <vector>

#include "split_gain/score_kernels.h"

namespace polyleaf {

void check_monotone_constraints(const MonotoneConstraints& constraints, const ChannelLayout& layout,
                                const SplitConfig& split) {
  if (!constraints.any()) return;
  if (!are_separable(layout, split))
    throw std::invalid_argument(
        "Monotone constraints need leaves with one value per output, each with its own step.");
  if (constraints.n_outputs() != layout.n_outputs)
    throw std::invalid_argument(
        "The monotone constraints and the gradients have different numbers of outputs.");
}

void propagate_bounds(const ScanNode& node, int feature, const int32_t* left, int32_t left_count,
                      OutputBounds& left_bounds, OutputBounds& right_bounds) {
  left_bounds = right_bounds = *node.bounds;
  std::vector<float> tied(node.constraints->stride());
  select_score_kernels(node).tied_values(node, left, left_count, tied.data());
  const float* constraint = node.constraints->row(feature);
  for (int k = 0; k < node.layout->n_outputs; ++k) {
    if (constraint[k] == 0 || std::isnan(tied[k])) continue;
    left_bounds.tie(k, tied[k], constraint[k] > 0, true);
    right_bounds.tie(k, tied[k], constraint[k] > 0, false);
  }
}

}  // namespace polyleaf
