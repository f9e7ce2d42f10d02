// Interaction constraints: which features may occur together on a path from the root to a leaf.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace polyleaf {

struct InteractionConstraints {
  std::vector<std::vector<uint8_t>>
      groups;  // one flag per feature: every path uses features of one group; empty: no constraint
  int32_t max_features = 0;  // maximum number of different features on a path; 0: no limit

  bool is_active() const { return max_features > 0 || !groups.empty(); }

  // Clear the flags of features that a node with this path may not be split on.
  void restrict_features(const std::vector<int32_t>& path, std::vector<uint8_t>& features) const {
    if (max_features > 0 && path.size() >= static_cast<size_t>(max_features)) {
      std::vector<uint8_t> met(features.size(), 0);
      for (int32_t f : path) met[f] = features[f];
      features = met;
    }
    if (groups.empty()) return;
    std::vector<uint8_t> joined(features.size(), 0);
    for (const std::vector<uint8_t>& group : groups) {
      if (!std::all_of(path.begin(), path.end(), [&](int32_t f) { return group[f] != 0; }))
        continue;
      for (size_t f = 0; f < joined.size(); ++f) joined[f] |= group[f];
    }
    for (size_t f = 0; f < joined.size(); ++f) features[f] &= joined[f];
  }
};

}  // namespace polyleaf
