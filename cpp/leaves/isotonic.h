// Isotonic regression over a partial order: of all values that keep to it, those nearest to the
// given ones in weighted squares. Where the given ones keep to it, they are the answer, bit for
// bit.
//
// By cuts (Picard 1976; Luss, Rosset and Shahar 2012): around a block's mean the upper set whose
// excess is largest is cut off, by a maximum flow; both parts are solved apart, until no cut gains
// anything and the block is its mean. Parts that no pair joins are blocks of their own from the
// beginning.
//
// Owns: the arithmetic. Must not know: trees, and what orders their leaves.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace polyleaf {

// pairs (a, b): values[a] must not be above values[b]; no circles, and none (., a) after one (a,
// .). Weights must not be negative. Values are written in place, in the end as float32, and keep to
// the order exactly.
void fit_isotonic(const std::vector<std::pair<int32_t, int32_t>>& pairs,
                  const std::vector<double>& weights, std::vector<float>& values);

}  // namespace polyleaf
