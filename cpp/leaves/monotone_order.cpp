#include "leaves/monotone_order.h"

#include "base/bin_code.h"

namespace polyleaf {
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

}  // namespace polyleaf
