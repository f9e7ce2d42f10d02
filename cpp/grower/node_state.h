// What a node passes on to its children, and to whoever fits its leaf: bounds of its values, and the features
// it was reached by. A search may narrow bounds for the children of a split (constraints, such as monotone
// ones, live on that); today none does. Those of the leaves go to the fitters (Grower::leaf_bounds). A state
// without bounds and rules holds nothing.
//
// Must not know: who narrows it, and why.
#pragma once
#include <cstdint>
#include <vector>

namespace polyleaf {

struct NodeState {
  std::vector<float> lower, upper;  // of the value of each output; empty: no bounds
  std::vector<int32_t> path;        // features split on from the root, each once; kept where there are rules
};

}  // namespace polyleaf
