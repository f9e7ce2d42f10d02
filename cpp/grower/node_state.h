// What a node passes on to its children, and to whoever fits its leaf: bounds of its values. A search may
// narrow them for the children of a split (constraints, such as monotone ones, live on that); today none
// does, and a state without bounds holds nothing.
//
// Must not know: who narrows it, and why.
#pragma once
#include <vector>

namespace polyleaf {

struct NodeState {
  std::vector<float> lower, upper;  // of the value of each output; empty: no bounds
};

}  // namespace polyleaf
