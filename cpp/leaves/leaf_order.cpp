#include "leaves/leaf_order.h"

#include "base/code.h"

namespace polyleaf {
namespace {

constexpr uint64_t kMissingBit = uint64_t{1} << 63;  // of the last word
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

}  // namespace

int LeafOrder::apart(const CategorySet& a, const CategorySet& b, bool is_ordered) {
  int first[2] = {-1, -1}, last[2] = {-1, -1};  // values
  for (int word = 0; word < 4; ++word) {
    if ((a[word] & b[word]) != 0) return 0;
    for (int side = 0; side < 2; ++side) {
      const uint64_t bits = (side == 0 ? a : b)[word] & ~(word == 3 ? kMissingBit : 0);
      if (bits == 0) continue;
      if (first[side] < 0) first[side] = 64 * word + __builtin_ctzll(bits);
      last[side] = 64 * word + 63 - __builtin_clzll(bits);
    }
  }
  if (!is_ordered || first[0] < 0 || first[1] < 0) return 2;
  return last[0] < first[1] ? 1 : -1;
}

LeafOrder::LeafOrder(const Tree& tree, const uint16_t* n_bins, int n_features) : tree_(tree) {
  std::vector<int32_t> used;  // features that the tree splits on
  std::vector<int32_t> number(n_features, -1);
  std::vector<uint8_t> is_ordered;
  for (int32_t i = 0; i < tree.n_nodes(); ++i) {
    const int32_t f = tree.feature[i];
    if (f < 0 || number[f] >= 0) continue;
    number[f] = static_cast<int32_t>(used.size());
    used.push_back(f);
    is_ordered.push_back(tree.category_set[i] < 0);
  }
  const size_t m = used.size();
  std::vector<CategorySet> codes(static_cast<size_t>(tree.n_nodes()) * m);
  for (size_t j = 0; j < m; ++j) codes[j] = all_codes(n_bins[used[j]]);
  std::vector<size_t> node_of_leaf(tree.n_leaves);
  for (size_t i = 0; i < static_cast<size_t>(tree.n_nodes()); ++i) {
    if (tree.left[i] < 0) {
      node_of_leaf[tree.leaf[i]] = i;
      continue;
    }
    const CategorySet goes_left = left_codes(tree, static_cast<int32_t>(i));
    const size_t j = number[tree.feature[i]];
    for (const auto [child, is_left] : {std::pair(tree.left[i], true), std::pair(tree.right[i], false)}) {
      CategorySet* to = codes.data() + child * m;
      std::copy_n(codes.data() + i * m, m, to);
      for (int word = 0; word < 4; ++word) to[j][word] &= is_left ? goes_left[word] : ~goes_left[word];
    }
  }
  for (int32_t a = 0; a < tree.n_leaves; ++a)
    for (int32_t b = a + 1; b < tree.n_leaves; ++b) {
      const size_t first = sides_.size();
      bool can_move = true;
      for (size_t j = 0; j < m && can_move; ++j) {
        const int how = apart(codes[node_of_leaf[a] * m + j], codes[node_of_leaf[b] * m + j], is_ordered[j]);
        can_move = how != 2;
        if (how == 1 || how == -1) sides_.push_back({used[j], static_cast<int8_t>(how)});
      }
      if (can_move)
        apart_.push_back({a, b, first, sides_.size()});
      else
        sides_.resize(first);
    }
}

}  // namespace polyleaf
