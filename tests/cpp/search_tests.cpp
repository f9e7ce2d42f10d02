// The grower takes counts from the search.
#include <array>
#include <cstdint>
#include <vector>

#include "check.h"
#include "data/bins.h"
#include "grower/grower.h"
#include "grower/search.h"
#include "problem.h"
#include "tests.h"

namespace polyleaf::tests {
namespace {

// Splits feature 0 in the middle of the codes of a node, and reports other counts than the local
// ones, as if other ranks had rows of the node.
class FixedCountSearch final : public Search {
 public:
  explicit FixedCountSearch(int64_t n) { sample_.n_all = n; }
  const RowSample& sample() const override { return sample_; }
  int n_outputs() const override { return 0; }
  void start(const TreeContext& tree, const SearchNode&) override {
    tree_ = &tree;
    codes_ = {{0, 255}};
  }
  void evaluate(const std::vector<SearchNode>& nodes, bool,
                std::vector<SplitInfo>& splits) override {
    splits.assign(nodes.size(), SplitInfo());
    for (size_t i = 0; i < nodes.size(); ++i)
      if (tree_->can_split(nodes[i])) splits[i] = {1.0, 0, middle(nodes[i].id), false, {}, 3};
  }
  void split(int32_t parent, const SearchNode& left, const SearchNode& right, float*) override {
    codes_.resize(right.id + 1);
    codes_[left.id] = {codes_[parent][0], middle(parent)};
    codes_[right.id] = {middle(parent) + 1, codes_[parent][1]};
  }
  double cover(int32_t) const override { return 0; }

 private:
  int32_t middle(int32_t node) const { return (codes_[node][0] + codes_[node][1]) / 2; }

  RowSample sample_;
  const TreeContext* tree_ = nullptr;
  std::vector<std::array<int32_t, 2>> codes_;  // first and last of each node
};

struct OneFeatureProblem {
  static constexpr int64_t n = 20000;
  std::vector<uint8_t> codes = std::vector<uint8_t>(n);
  const std::vector<uint8_t> categorical = {0};
  const std::vector<uint16_t> n_bins = {255};
  OneFeatureProblem() {
    for (int64_t i = 0; i < n; ++i) codes[i] = static_cast<uint8_t>(i * 7 % 255);
  }
  Bins bins(int n_threads) const {
    return {codes.data(), n, 1, n_bins.data(), categorical.data(), n_threads};
  }
};

}  // namespace

// Counts come from the search; the partition finds where rows go.
void test_counts_are_not_ranges() {
  const OneFeatureProblem p;
  GrowConfig config = grow_config();
  config.max_leaves = 4;
  config.split.min_child_samples = 2;
  for (int n_threads : {1, 3}) {
    const Bins bins = p.bins(n_threads);
    Grower grower(bins, n_threads);
    FixedCountSearch search(p.n);
    const Tree tree = grower.grow(search, config, nullptr);
    // The child of 3 rows cannot be split again, however many rows this rank has.
    CHECK((tree.count == std::vector<int64_t>{p.n, 3, p.n - 3, 3, p.n - 6, 3, p.n - 9}));
    for (int64_t i = 0; i < p.n; ++i) {
      int32_t node = 0;
      while (tree.left[node] >= 0)
        node = tree.goes_left(node, p.codes[i]) ? tree.left[node] : tree.right[node];
      CHECK(grower.leaf_of_row()[i] == tree.leaf[node]);
    }
  }
}

}  // namespace polyleaf::tests
