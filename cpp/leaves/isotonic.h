// Isotonic regression over a partial order: the values that satisfy the order and are closest to
// the given ones in weighted least squares. Values that already satisfy it are returned bit for
// bit.
//
// Recursive partitioning (Picard 1976; Luss, Rosset and Shahar 2012): the upper set with the
// largest excess over the block's mean is split off by a maximum flow; both parts are solved
// recursively until no split helps, and a block then gets its mean. Components that no pair
// connects are separate blocks.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace polyleaf {

// pairs (a, b): values[a] <= values[b] is required; the pairs are acyclic, and no (., a) follows an
// (a, .). Weights are non-negative. Values are updated in place; the float32 results satisfy the
// order exactly.
void fit_isotonic(const std::vector<std::pair<int32_t, int32_t>>& pairs,
                  const std::vector<double>& weights, std::vector<float>& values);

}  // namespace polyleaf
