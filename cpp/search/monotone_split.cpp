#include "split_gain/monotone_constraints.h"

#include <cmath>
#include <stdexcept>
#include <vector>

#include "split_gain/monotone_constraints.h"

namespace polyleaf {

void check_directions(const MonotoneConstraints& directions, const ChannelLayout& layout,
                      const SplitConfig& split) {
  if (!directions.any()) return;
  if (!are_separable(layout, split))
    throw std::invalid_argument(
        "Directions are for leaves of one value an output, each with its own step.");
  if (directions.n_outputs() != layout.n_outputs)
    throw std::invalid_argument(
        "The directions are of another number of outputs than the channels.");
}

ScanNode split_like(const ScanNode& node, const Bins& bins, const TileSplit& split) {
  const bool missing_apart = split.bin == bins.n_bins(split.feature) - 1 && !split.missing_left;
  return missing_apart ? node.split_freely() : node.split_on(split.feature);
}

void bound_children(const ScanNode& node, const TileSplit& split, OutputBounds& left,
                    OutputBounds& right) {
  left = right = *node.bounds;
  std::vector<float> pooled(node.directions->stride());
  select_score_kernels(node).tied_values(node, split.left.data(), split.left_count, pooled.data());
  const float* direction = node.directions->of(split.feature);
  for (int k = 0; k < node.layout->n_outputs; ++k) {
    if (direction[k] == 0 || std::isnan(pooled[k])) continue;
    left.pool(k, pooled[k], direction[k] > 0, true);
    right.pool(k, pooled[k], direction[k] > 0, false);
  }
}

}  // namespace polyleaf
