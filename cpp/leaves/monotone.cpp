#include "leaves/monotone.h"

#include <map>
#include <vector>

#include "base/parallel.h"
#include "leaves/isotonic.h"
#include "leaves/monotone_order.h"

namespace polyleaf {

void enforce_monotone_constraints(const Tree& tree, const uint16_t* n_bins,
                                  const MonotoneDirections& directions,
                                  const std::vector<double>& weights, int weight_columns,
                                  const Context& context, float* values) {
  std::vector<uint8_t> is_constrained(directions.n_features, 0);
  for (int f = 0; f < directions.n_features; ++f)
    for (int k = 0; k < directions.n_outputs; ++k) is_constrained[f] |= directions(f, k) != 0;
  const MonotoneOrder order(tree, n_bins, is_constrained);
  std::map<std::vector<int8_t>, std::vector<int>>
      output_groups;  // outputs with the same directions
  for (int k = 0; k < directions.n_outputs; ++k) {
    std::vector<int8_t> own(directions.n_features);
    for (int f = 0; f < directions.n_features; ++f) own[f] = directions(f, k);
    output_groups[own].push_back(k);
  }
  for (const auto& group : output_groups) {
    const std::vector<int8_t>& own = group.first;
    const std::vector<int>& outputs = group.second;
    const auto pairs = order.pairs([&](int32_t f) { return own[f]; });
    if (pairs.empty()) continue;
    parallel_for(context, static_cast<int64_t>(outputs.size()), [&](int64_t task, int) {
      const int k = outputs[task], column = weight_columns == 1 ? 0 : k;
      std::vector<float> value(tree.n_leaves);
      std::vector<double> weight(tree.n_leaves);
      for (int32_t leaf = 0; leaf < tree.n_leaves; ++leaf) {
        value[leaf] = values[static_cast<int64_t>(leaf) * directions.n_outputs + k];
        weight[leaf] = weights[static_cast<int64_t>(leaf) * weight_columns + column];
      }
      fit_isotonic(pairs, weight, value);
      for (int32_t leaf = 0; leaf < tree.n_leaves; ++leaf)
        values[static_cast<int64_t>(leaf) * directions.n_outputs + k] = value[leaf];
    });
  }
}

}  // namespace polyleaf
