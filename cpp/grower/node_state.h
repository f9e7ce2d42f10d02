// What a node passes on to its children: bounds of the values that a split is judged by, which a search
// narrows for the children (HistogramSearch, where outputs must obey directions), and the features it was
// reached by. A state without bounds and rules holds nothing. What leaves hold in the end is not bound by it.
//
// Must not know: who narrows it, and why.
#pragma once
#include <cstdint>
#include <vector>

namespace polyleaf {

struct NodeState {
  std::vector<float> lower, upper;  // of the value of each output, at least; empty: no bounds
  std::vector<int32_t> path;        // features split on from the root, each once; kept where there are rules
};

}  // namespace polyleaf
