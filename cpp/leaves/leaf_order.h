// Which leaves of a tree must not be above which others, where features have directions: leaf a not above
// leaf b, where some row of a becomes one of b by raising features of direction 1 and lowering those of -1
// alone. Missing values can be neither raised nor lowered, categories neither.
//
// Pairs never form a circle: of the leaves of a circle some split would be the uppermost that divides them,
// and it is crossed one way only.
//
// Owns: what of a tree's splits matters for that. Must not know: values, where directions come from.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "grower/tree.h"

namespace polyleaf {

class LeafOrder {
 public:
  // n_bins: one number a feature, its value bins.
  LeafOrder(const Tree& tree, const uint16_t* n_bins, int n_features);

  // A pair (a, b): leaf a must not be above leaf b. In an order such that what is said of a by pairs (., a)
  // comes before any (a, .). `direction(f)`: 1, -1 or 0.
  template <class Direction>
  std::vector<std::pair<int32_t, int32_t>> pairs(const Direction& direction) const;

 private:
  // Leaves that some directions order: `first .. last` of sides_ are the features by which they lie apart.
  struct Apart {
    int32_t a, b;
    size_t first, last;
  };
  struct Side {
    int32_t feature;
    int8_t sign;  // 1: a lies below b
  };
  // How two sets of codes lie: 0 overlap, 1 or -1 the first below or above, 2 no move leads from one to the
  // other.
  static int apart(const CategorySet& a, const CategorySet& b, bool is_ordered);

  const Tree& tree_;
  std::vector<Apart> apart_;
  std::vector<Side> sides_;
};

template <class Direction>
std::vector<std::pair<int32_t, int32_t>> LeafOrder::pairs(const Direction& direction) const {
  // From low to high: of a split the child that is to be lower comes first.
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
  std::vector<std::pair<int32_t, int32_t>> found;
  for (const Apart& pair : apart_) {
    bool up = true, down = true;
    for (size_t i = pair.first; i < pair.last; ++i) {
      const int sense = direction(sides_[i].feature) * sides_[i].sign;
      up &= sense > 0;
      down &= sense < 0;
    }
    if (up) found.emplace_back(pair.a, pair.b);
    if (down) found.emplace_back(pair.b, pair.a);
  }
  std::sort(found.begin(), found.end(), [&](const auto& one, const auto& other) {
    return std::pair(place[one.first], place[one.second]) <
           std::pair(place[other.first], place[other.second]);
  });
  return found;
}

}  // namespace polyleaf
