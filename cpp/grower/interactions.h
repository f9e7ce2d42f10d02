// Which features may meet on a path from the root to a leaf, so that a model has no other
// interactions.
//
// Must not know: which users, and why; a rule is the same for all trees of a training.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace polyleaf {

struct InteractionConstraints {
  std::vector<std::vector<uint8_t>>
      groups;                // flags, one a feature: every path stays within one; empty: no rule
  int32_t max_features = 0;  // different features on a path; 0: no rule

  bool is_active() const { return max_features > 0 || !groups.empty(); }

  // Clears the flags of features that a node with these on its path may not be split by.
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
