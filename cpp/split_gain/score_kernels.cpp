#include "split_gain/score_kernels.h"

#include "base/packed.h"

namespace polyleaf {

size_t moment_doubles(const ChannelLayout& layout) {
  // Rows of 272 candidates: a product with x for every gradient, Hessian and regressor, a sum for
  // every lane.
  return layout.linear()
             ? 272 * static_cast<size_t>(layout.n_regressor_products() + 16 + layout.lanes)
             : 0;
}

size_t workspace_floats(const ChannelLayout& layout, const SplitConfig& config) {
  if (layout.linear()) return layout.lanes + 16;
  // Sixteen candidates: their sums as rows, the largest terms of both sides. Of one candidate: all
  // terms.
  if (config.keeps_few(layout.n_outputs))
    return 16 * (static_cast<size_t>(layout.lanes) + 2 * static_cast<size_t>(layout.n_outputs)) +
           layout.lanes + 3 * static_cast<size_t>(layout.n_outputs) + 96;
  if (layout.hessian != Hessian::full) return 0;
  const size_t k = layout.n_outputs, lanes = layout.lanes;
  // Sixteen candidates: their sums as rows and by lane, and one system of equations with its
  // solution.
  return 16 * (2 * lanes + packed_size(k) + 3 * k) + lanes + k + 64;
}

}  // namespace polyleaf
