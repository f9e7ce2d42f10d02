#include "leaves/monotone_leaves.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "base/bin_code.h"
#include "base/parallel.h"

namespace polyleaf {

namespace {

using Pairs = std::vector<std::pair<int32_t, int32_t>>;

constexpr double kRounding = 1.0 / (int64_t{1} << 40);   // relative to the sum of magnitudes
constexpr double kMinWeight = 1.0 / (int64_t{1} << 40);  // relative to the largest weight

// The upper set with the largest sum of excess (the total is 0; if a of a pair (a, b) is chosen, so
// is b): the nodes reachable from excess that no flow can move upwards to a deficit. A maximum flow
// by distance layers (Dinitz 1970).
class UpperSet {
 public:
  UpperSet(std::vector<double> excess, const Pairs& pairs)
      : excess_(std::move(excess)),
        pairs_(pairs),
        flow_(pairs.size(), 0.0),
        begin_(excess_.size() + 1, 0) {
    for (const auto& [a, b] : pairs) ++begin_[a + 1], ++begin_[b + 1];
    for (size_t i = 1; i < begin_.size(); ++i) begin_[i] += begin_[i - 1];
    arcs_.resize(2 * pairs.size());
    std::vector<int32_t> next(begin_.begin(), begin_.end() - 1);
    for (size_t e = 0; e < pairs.size(); ++e)
      for (const int32_t i : {pairs[e].first, pairs[e].second})
        arcs_[next[i]++] = static_cast<int32_t>(e);
    double sum = 0;
    for (double x : excess_) sum += std::fabs(x);
    tolerance_ = kRounding * sum;
  }

  // Return flags of the set; all 0 if no set has a positive sum.
  std::vector<uint8_t> find() {
    const auto n = static_cast<int32_t>(excess_.size());
    while (find_layers()) {
      next_.assign(begin_.begin(), begin_.end() - 1);
      for (int32_t i = 0; i < n; ++i)
        while (excess_[i] > tolerance_ && push_from(i)) {
        }
    }
    std::vector<uint8_t> reached(excess_.size());
    for (size_t i = 0; i < reached.size(); ++i) reached[i] = layer_[i] >= 0;
    return reached;
  }

 private:
  // Return the node that an arc with residual capacity leads to, or -1.
  int32_t residual_target(int32_t e, int32_t i) const {
    const auto& [a, b] = pairs_[e];
    return a == i ? b : flow_[e] > 0 ? a : -1;
  }

  // Compute the distance of each node from the excess nodes (-1: unreachable); return whether a
  // deficit node is reachable.
  bool find_layers() {
    layer_.assign(excess_.size(), -1);
    queue_.clear();
    bool found = false;
    for (size_t i = 0; i < excess_.size(); ++i)
      if (excess_[i] > tolerance_) {
        layer_[i] = 0;
        queue_.push_back(static_cast<int32_t>(i));
      }
    for (size_t at = 0; at < queue_.size(); ++at) {
      const int32_t i = queue_[at];
      for (int32_t k = begin_[i]; k < begin_[i + 1]; ++k) {
        const int32_t j = residual_target(arcs_[k], i);
        if (j < 0 || layer_[j] >= 0) continue;
        layer_[j] = layer_[i] + 1;
        found |= excess_[j] < 0;
        queue_.push_back(j);
      }
    }
    return found;
  }

  // Push flow along one path of the layers to a deficit node; return false if there is none.
  bool push_from(int32_t source) {
    path_.clear();
    int32_t i = source;
    while (!(excess_[i] < 0)) {
      int32_t j = -1;
      for (; next_[i] < begin_[i + 1]; ++next_[i]) {
        j = residual_target(arcs_[next_[i]], i);
        if (j >= 0 && layer_[j] == layer_[i] + 1) break;
        j = -1;
      }
      if (j >= 0) {
        path_.push_back(i);
        i = j;
      } else if (i == source) {
        return false;
      } else {
        i = path_.back();
        path_.pop_back();
        ++next_[i];
      }
    }
    double amount = std::min(-excess_[i], excess_[source]);
    for (const int32_t from : path_)
      if (const int32_t e = arcs_[next_[from]]; pairs_[e].first != from)
        amount = std::min(amount, flow_[e]);
    excess_[source] -= amount;
    excess_[i] += amount;
    for (const int32_t from : path_) {
      const int32_t e = arcs_[next_[from]];
      flow_[e] += pairs_[e].first == from ? amount : -amount;
    }
    return true;
  }

  std::vector<double> excess_;
  const Pairs& pairs_;
  std::vector<double> flow_;
  std::vector<int32_t> begin_, arcs_;  // arcs of each node
  std::vector<int32_t> layer_, next_, queue_, path_;
  double tolerance_ = 0;
};

// The members of one block and the order pairs among them, renumbered.
struct IsotonicBlock {
  std::vector<int32_t> members;
  Pairs pairs;

  bool is_ordered(const std::vector<float>& values) const {
    return std::all_of(pairs.begin(), pairs.end(), [&](const auto& pair) {
      return values[members[pair.first]] <= values[members[pair.second]];
    });
  }

  // Return the part of the block whose flag is `side`.
  IsotonicBlock subset(const std::vector<uint8_t>& flags, uint8_t side) const {
    IsotonicBlock out;
    std::vector<int32_t> number(members.size(), -1);
    for (size_t i = 0; i < members.size(); ++i) {
      if (flags[i] != side) continue;
      number[i] = static_cast<int32_t>(out.members.size());
      out.members.push_back(members[i]);
    }
    for (const auto& [a, b] : pairs)
      if (number[a] >= 0 && number[b] >= 0) out.pairs.emplace_back(number[a], number[b]);
    return out;
  }
};

// Split a block into its connected components.
std::vector<IsotonicBlock> components(const IsotonicBlock& block) {
  const auto n = static_cast<int32_t>(block.members.size());
  std::vector<int32_t> root(n), number(n);
  for (int32_t i = 0; i < n; ++i) root[i] = i;
  const auto find = [&](int32_t i) {
    while (root[i] != i) i = root[i] = root[root[i]];
    return i;
  };
  for (const auto& [a, b] : block.pairs) root[find(a)] = find(b);
  std::vector<IsotonicBlock> out;
  std::vector<int32_t> part(n, -1);  // component of a root
  for (int32_t i = 0; i < n; ++i) {
    int32_t& own = part[find(i)];
    if (own < 0) {
      own = static_cast<int32_t>(out.size());
      out.emplace_back();
    }
    number[i] = static_cast<int32_t>(out[own].members.size());
    out[own].members.push_back(block.members[i]);
  }
  for (const auto& [a, b] : block.pairs)
    out[part[find(a)]].pairs.emplace_back(number[a], number[b]);
  return out;
}

double compute_mean(const IsotonicBlock& block, const std::vector<double>& weights,
                    const std::vector<float>& values) {
  double sum = 0, weight = 0;
  for (int32_t i : block.members) {
    sum += weights[i] * static_cast<double>(values[i]);
    weight += weights[i];
  }
  return sum / weight;
}

// Raise weights that are so small relative to the largest that means would be lost in rounding.
std::vector<double> make_positive_weights(const std::vector<double>& weights) {
  const double largest = *std::max_element(weights.begin(), weights.end());
  std::vector<double> out(weights);
  for (double& w : out) w = largest > 0 ? std::max(w, kMinWeight * largest) : 1.0;
  return out;
}

}  // namespace

void fit_isotonic(const Pairs& pairs, const std::vector<double>& weights,
                  std::vector<float>& values) {
  IsotonicBlock all;
  for (size_t i = 0; i < values.size(); ++i) all.members.push_back(static_cast<int32_t>(i));
  all.pairs = pairs;
  if (all.is_ordered(values)) return;
  std::vector<IsotonicBlock> blocks = components(all);
  const std::vector<double> positive_weights = make_positive_weights(weights);
  while (!blocks.empty()) {
    const IsotonicBlock block = std::move(blocks.back());
    blocks.pop_back();
    if (block.is_ordered(values)) continue;
    const double mean = compute_mean(block, positive_weights, values);
    std::vector<double> excess;
    for (int32_t i : block.members)
      excess.push_back(positive_weights[i] * (static_cast<double>(values[i]) - mean));
    const std::vector<uint8_t> upper = UpperSet(std::move(excess), block.pairs).find();
    const auto n = static_cast<size_t>(std::count(upper.begin(), upper.end(), 1));
    if (n == 0 || n == upper.size()) {
      for (int32_t i : block.members) values[i] = static_cast<float>(mean);
      continue;
    }
    for (const uint8_t side : {0, 1})
      for (IsotonicBlock& part : components(block.subset(upper, side)))
        blocks.push_back(std::move(part));
  }
  // Remove violations left by rounding of the means.
  for (const auto& [a, b] : pairs) values[b] = std::max(values[b], values[a]);
}

namespace {

constexpr uint64_t kMissingBit = uint64_t{1} << 63;  // bit 255, in the last word
static_assert(kMissingCode == 255);

CategorySet all_codes(int n_bins) {
  CategorySet set = {};
  for (int code = 0; code < n_bins; ++code) set[code >> 6] |= uint64_t{1} << (code & 63);
  set[3] |= kMissingBit;
  return set;
}

CategorySet left_codes(const Tree& tree, int32_t node) {
  CategorySet set = {};
  for (int code = 0; code <= kMissingCode; ++code)
    if (tree.goes_left(node, code)) set[code >> 6] |= uint64_t{1} << (code & 63);
  return set;
}

bool overlap(const CategorySet& a, const CategorySet& b) {
  return ((a[0] & b[0]) | (a[1] & b[1]) | (a[2] & b[2]) | (a[3] & b[3])) != 0;
}

}  // namespace

// The feature ranges of each node: sets of codes for categorical features, spans for ordered ones.
// Unconstrained features come first, since they rule out most pairs.
struct MonotoneOrder::Boxes {
  Boxes(const Tree& tree, const uint16_t* n_bins, const std::vector<uint8_t>& is_constrained);

  const CategorySet* node_sets(size_t node) const {
    return sets.data() + node * set_features.size();
  }
  const Span* node_spans(size_t node) const { return spans.data() + node * span_features.size(); }

  std::vector<int32_t> set_features, span_features;
  size_t n_free = 0;  // number of unconstrained features at the front of span_features
  std::vector<CategorySet> sets;
  std::vector<Span> spans;

 private:
  void divide(const Tree& tree, int32_t node, const std::vector<int32_t>& number);
};

MonotoneOrder::Boxes::Boxes(const Tree& tree, const uint16_t* n_bins,
                            const std::vector<uint8_t>& is_constrained) {
  std::vector<int32_t> number(is_constrained.size(), -1);
  for (const bool constrained : {false, true})
    for (int32_t i = 0; i < tree.n_nodes(); ++i) {
      const int32_t f = tree.feature[i];
      if (f < 0 || number[f] >= 0 || (is_constrained[f] != 0) != constrained) continue;
      auto& features = tree.category_set[i] >= 0 ? set_features : span_features;
      number[f] = static_cast<int32_t>(features.size());
      features.push_back(f);
      if (!constrained) n_free = span_features.size();
    }
  const auto n_nodes = static_cast<size_t>(tree.n_nodes());
  sets.resize(n_nodes * set_features.size());
  spans.resize(n_nodes * span_features.size());
  for (size_t j = 0; j < set_features.size(); ++j) sets[j] = all_codes(n_bins[set_features[j]]);
  for (size_t j = 0; j < span_features.size(); ++j)
    spans[j] = {0, static_cast<int16_t>(n_bins[span_features[j]] - 1), true};
  for (int32_t i = 0; i < tree.n_nodes(); ++i)
    if (tree.left[i] >= 0) divide(tree, i, number);
}

void MonotoneOrder::Boxes::divide(const Tree& tree, int32_t node,
                                  const std::vector<int32_t>& number) {
  const size_t j = number[tree.feature[node]], n_sets = set_features.size(),
               n_spans = span_features.size();
  const bool by_set = tree.category_set[node] >= 0;
  const CategorySet goes_left = by_set ? left_codes(tree, node) : CategorySet{};
  for (const auto& [child, is_left] :
       {std::pair(tree.left[node], true), std::pair(tree.right[node], false)}) {
    CategorySet* to_sets = sets.data() + child * n_sets;
    Span* to_spans = spans.data() + child * n_spans;
    std::copy_n(node_sets(node), n_sets, to_sets);
    std::copy_n(node_spans(node), n_spans, to_spans);
    if (by_set) {
      for (int word = 0; word < 4; ++word)
        to_sets[j][word] &= is_left ? goes_left[word] : ~goes_left[word];
      continue;
    }
    const auto last = static_cast<int16_t>(tree.threshold[node]);
    Span& span = to_spans[j];
    if (is_left)
      span.last = std::min(span.last, last);
    else
      span.first = std::max<int16_t>(span.first, last + 1);
    span.has_missing = span.has_missing && (tree.missing_left[node] != 0) == is_left;
  }
}

int MonotoneOrder::compare_spans(const Span& a, const Span& b) {
  const bool has_a = a.first <= a.last, has_b = b.first <= b.last;
  if (a.has_missing && b.has_missing) return 0;
  if (!has_a || !has_b) return 2;
  return a.last < b.first ? 1 : b.last < a.first ? -1 : 0;
}

MonotoneOrder::MonotoneOrder(const Tree& tree, const uint16_t* n_bins,
                             const std::vector<uint8_t>& is_constrained)
    : tree_(tree) {
  const Boxes boxes(tree, n_bins, is_constrained);
  const size_t n_sets = boxes.set_features.size(), n_spans = boxes.span_features.size();
  std::vector<size_t> node_of_leaf(tree.n_leaves);
  for (size_t i = 0; i < static_cast<size_t>(tree.n_nodes()); ++i)
    if (tree.left[i] < 0) node_of_leaf[tree.leaf[i]] = i;
  for (int32_t a = 0; a < tree.n_leaves; ++a) {
    const CategorySet* sets = boxes.node_sets(node_of_leaf[a]);
    const Span* spans = boxes.node_spans(node_of_leaf[a]);
    for (int32_t b = a + 1; b < tree.n_leaves; ++b) {
      const CategorySet* other_sets = boxes.node_sets(node_of_leaf[b]);
      const Span* other_spans = boxes.node_spans(node_of_leaf[b]);
      const size_t first = relations_.size();
      bool is_comparable = true;
      for (size_t j = 0; j < n_spans && is_comparable; ++j) {
        const int relation = compare_spans(spans[j], other_spans[j]);
        is_comparable = relation == 0 || (relation != 2 && j >= boxes.n_free);
        if (relation != 0 && is_comparable)
          relations_.push_back({boxes.span_features[j], static_cast<int8_t>(relation)});
      }
      for (size_t j = 0; j < n_sets && is_comparable; ++j)
        is_comparable = overlap(sets[j], other_sets[j]);
      if (is_comparable)
        comparable_.push_back({a, b, first, relations_.size()});
      else
        relations_.resize(first);
    }
  }
}

MonotoneOrder::Pairs MonotoneOrder::reduce(Pairs pairs, const std::vector<int32_t>& place) {
  std::sort(pairs.begin(), pairs.end(), [&](const auto& one, const auto& other) {
    return std::pair(place[one.first], place[one.second]) <
           std::pair(place[other.first], place[other.second]);
  });
  // From the highest leaf down, collect the leaves above each leaf. A leaf above a that is above
  // an earlier one follows by transitivity.
  const size_t n_words = (place.size() + 63) / 64;
  std::vector<uint64_t> above(place.size() * n_words, 0);
  std::vector<uint8_t> keeps(pairs.size(), 0);
  for (size_t last = pairs.size(); last > 0;) {
    const int32_t a = pairs[last - 1].first;
    size_t first = last;
    while (first > 0 && pairs[first - 1].first == a) --first;
    uint64_t* above_a = above.data() + a * n_words;
    for (size_t e = first; e < last; ++e) {
      const int32_t b = pairs[e].second;
      if ((above_a[b >> 6] >> (b & 63) & 1) != 0) continue;
      keeps[e] = 1;
      const uint64_t* above_b = above.data() + b * n_words;
      for (size_t word = 0; word < n_words; ++word) above_a[word] |= above_b[word];
      above_a[b >> 6] |= uint64_t{1} << (b & 63);
    }
    last = first;
  }
  size_t n = 0;
  for (size_t e = 0; e < pairs.size(); ++e)
    if (keeps[e] != 0) pairs[n++] = pairs[e];
  pairs.resize(n);
  return pairs;
}

void enforce_monotone_constraints(const Tree& tree, const uint16_t* n_bins,
                                  const MonotoneDirections& directions,
                                  const std::vector<double>& weights, int weight_columns,
                                  const Context& context, float* values) {
  std::vector<uint8_t> is_constrained(directions.n_features, 0);
  for (int f = 0; f < directions.n_features; ++f)
    for (int k = 0; k < directions.n_outputs; ++k) is_constrained[f] |= directions(f, k) != 0;
  const MonotoneOrder order(tree, n_bins, is_constrained);
  // Outputs with the same directions.
  std::map<std::vector<int8_t>, std::vector<int>> output_groups;
  for (int k = 0; k < directions.n_outputs; ++k) {
    std::vector<int8_t> own(directions.n_features);
    for (int f = 0; f < directions.n_features; ++f) own[f] = directions(f, k);
    output_groups[own].push_back(k);
  }
  for (const auto& group : output_groups) {
    const std::vector<int8_t>& own = group.first;
    const std::vector<int>& outputs = group.second;
    const auto pairs = order.pairs([&](int32_t f) { return own[f]; });
    if (pairs.empty()) continue;
    parallel_for(context, static_cast<int64_t>(outputs.size()), [&](int64_t task, int) {
      const int k = outputs[task], column = weight_columns == 1 ? 0 : k;
      std::vector<float> value(tree.n_leaves);
      std::vector<double> weight(tree.n_leaves);
      for (int32_t leaf = 0; leaf < tree.n_leaves; ++leaf) {
        value[leaf] = values[static_cast<int64_t>(leaf) * directions.n_outputs + k];
        weight[leaf] = weights[static_cast<int64_t>(leaf) * weight_columns + column];
      }
      fit_isotonic(pairs, weight, value);
      for (int32_t leaf = 0; leaf < tree.n_leaves; ++leaf)
        values[static_cast<int64_t>(leaf) * directions.n_outputs + k] = value[leaf];
    });
  }
}

}  // namespace polyleaf
