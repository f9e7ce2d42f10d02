// Which leaves of a tree must not be above which others, where features have directions: leaf a not
// above leaf b, where some row of a becomes one of b by raising features of direction 1 and
// lowering those of -1 alone. Missing values can be neither raised nor lowered, categories neither.
//
// Pairs never form a circle: of the leaves of a circle some split would be the uppermost that
// divides them, and it is crossed one way only.
//
// Owns: what of a tree's splits matters for that. Must not know: values, where directions come
// from.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "grower/tree.h"

namespace polyleaf {

class MonotoneOrder {
 public:
  // n_bins: one number a feature, its value bins. `is_constrained[f]`: whether some output has a
  // direction for f.
  MonotoneOrder(const Tree& tree, const uint16_t* n_bins,
                const std::vector<uint8_t>& is_constrained);

  // Pairs (a, b): leaf a must not be above leaf b; what follows from others is left out. In an
  // order such that what is said of a by pairs (., a) comes before any (a, .). `direction(f)`: 1,
  // -1 or 0.
  template <class Direction>
  std::vector<std::pair<int32_t, int32_t>> pairs(const Direction& direction) const;

 private:
  using Pairs = std::vector<std::pair<int32_t, int32_t>>;
  // Leaves that some directions order: `first .. last` of relations_ are the features by which they
  // lie apart.
  struct ComparablePair {
    int32_t a, b;
    size_t first, last;
  };
  struct FeatureRelation {
    int32_t feature;
    int8_t sign;  // 1: a lies below b
  };
  // The codes of a feature of thresholds that a node holds: values first .. last, none where these
  // cross.
  struct Span {
    int16_t first, last;
    bool has_missing;
  };
  struct Boxes;
  // How two spans lie: 0 overlap, 1 or -1 the first below or above, 2 no move leads from one to the
  // other.
  static int compare_spans(const Span& a, const Span& b);
  // Leaves by their place from low to high: of a split the child that is to be lower comes first.
  template <class Direction>
  std::vector<int32_t> rank_leaves(const Direction& direction) const;
  // The pairs that do not follow from others, sorted by `place`.
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
