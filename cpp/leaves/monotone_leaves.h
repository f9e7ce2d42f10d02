// Monotone leaf values: order of leaves, isotonic regression and projection of leaf values.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/context.h"
#include "grower/tree.h"

namespace polyleaf {

// Isotonic regression over a partial order: the values that satisfy the order and are closest to
// the given ones in weighted least squares. Values that already satisfy it are returned bit for
// bit.
//
// Recursive partitioning (Picard 1976; Luss, Rosset and Shahar 2012): the upper set with the
// largest excess over the block's mean is split off by a maximum flow; both parts are solved
// recursively until no split helps, and a block then gets its mean. Components that no pair
// connects are separate blocks.

// pairs (a, b): values[a] <= values[b] is required; the pairs are acyclic, and no (., a) follows an
// (a, .). Weights are non-negative. Values are updated in place; the float32 results satisfy the
// order exactly.
void fit_isotonic(const std::vector<std::pair<int32_t, int32_t>>& pairs,
                  const std::vector<double>& weights, std::vector<float>& values);

// Order of leaves under monotone constraints: leaf a must not be above leaf b if some row of a
// becomes a row of b by only raising increasing features and lowering decreasing ones. Missing
// values and categories cannot be raised or lowered.
//
// Pairs are acyclic: among the leaves of a cycle some topmost split would separate them, and it can
// be crossed in one direction only.

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

// Monotone leaf values: an isotonic regression over the order of the leaves, output by output,
// weighted by the Hessian.

// Monotone directions by feature and output; 1: increasing, -1: decreasing, 0: unconstrained.
struct MonotoneDirections {
  const int8_t* data;  // (n_features, n_outputs)
  int n_features, n_outputs;

  int8_t operator()(int feature, int output) const {
    return data[static_cast<int64_t>(feature) * n_outputs + output];
  }
};

// Project values (n_leaves, n_outputs) in place. weights: (n_leaves, weight_columns) with one
// column or one per output. n_bins: bins of each feature.
void enforce_monotone_constraints(const Tree& tree, const uint16_t* n_bins,
                                  const MonotoneDirections& directions,
                                  const std::vector<double>& weights, int weight_columns,
                                  const Context& context, float* values);

}  // namespace polyleaf
