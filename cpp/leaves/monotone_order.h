// Order of leaves under monotone constraints: leaf a must not be above leaf b if some row of a
// becomes a row of b by only raising increasing features and lowering decreasing ones. Missing
// values and categories cannot be raised or lowered.
//
// Pairs are acyclic: among the leaves of a cycle some topmost split would separate them, and it can
// be crossed in one direction only.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "grower/tree.h"

namespace polyleaf {

class MonotoneOrder {
 public:
  // n_bins: value bins per feature. `is_constrained[f]`: whether some output is monotone in f.
  MonotoneOrder(const Tree& tree, const uint16_t* n_bins,
                const std::vector<uint8_t>& is_constrained);

  // Return pairs (a, b), leaf a must not be above leaf b, without those that follow by
  // transitivity. All pairs (., a) come before any (a, .). `direction(f)`: 1, -1 or 0.
  template <class Direction>
  std::vector<std::pair<int32_t, int32_t>> pairs(const Direction& direction) const;

 private:
  using Pairs = std::vector<std::pair<int32_t, int32_t>>;
  // Two leaves that some directions order; relations first .. last - 1 are the features that
  // separate them.
  struct ComparablePair {
    int32_t a, b;
    size_t first, last;
  };
  struct FeatureRelation {
    int32_t feature;
    int8_t sign;  // 1: a is below b
  };
  // The codes of an ordered feature that a node contains: first .. last, empty if first > last.
  struct Span {
    int16_t first, last;
    bool has_missing;
  };
  struct Boxes;
  // Compare two spans: 0 overlap, 1 or -1 the first is below or above, 2 no move leads from one
  // to the other.
  static int compare_spans(const Span& a, const Span& b);
  // Rank leaves from low to high: of two children the one that must be lower comes first.
  template <class Direction>
  std::vector<int32_t> rank_leaves(const Direction& direction) const;
  // Return the pairs that do not follow by transitivity, sorted by `place`.
  static Pairs reduce(Pairs pairs, const std::vector<int32_t>& place);

  const Tree& tree_;
  std::vector<ComparablePair> comparable_;
  std::vector<FeatureRelation> relations_;
};

template <class Direction>
std::vector<int32_t> MonotoneOrder::rank_leaves(const Direction& direction) const {
  std::vector<int32_t> place(tree_.n_leaves), stack{0};
  for (int32_t next = 0; !stack.empty();) {
    const int32_t node = stack.back();
    stack.pop_back();
    if (tree_.left[node] < 0) {
      place[tree_.leaf[node]] = next++;
      continue;
    }
    const bool falls = direction(tree_.feature[node]) < 0;
    stack.push_back(falls ? tree_.left[node] : tree_.right[node]);
    stack.push_back(falls ? tree_.right[node] : tree_.left[node]);
  }
  return place;
}

template <class Direction>
std::vector<std::pair<int32_t, int32_t>> MonotoneOrder::pairs(const Direction& direction) const {
  Pairs found;
  for (const ComparablePair& pair : comparable_) {
    bool up = true, down = true;
    for (size_t i = pair.first; i < pair.last && (up || down); ++i) {
      const int sense = direction(relations_[i].feature) * relations_[i].sign;
      up &= sense > 0;
      down &= sense < 0;
    }
    if (up) found.emplace_back(pair.a, pair.b);
    if (down) found.emplace_back(pair.b, pair.a);
  }
  return reduce(std::move(found), rank_leaves(direction));
}

}  // namespace polyleaf
