// Decide which leaf nodes are expanded next: best-first or level-wise, with a limit on leaves.
// Returns batches of independent nodes.
//
// Best-first is GBDT-MO's Algorithm 5. When the leaf limit cannot bind, the order does not matter
// and whole levels are expanded at once.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace polyleaf {

struct ExpandEntry {
  int32_t node;
  double gain;
};

class ExpansionPolicy {
 public:
  // max_depth < 0: no limit.
  ExpansionPolicy(bool level_wise, int max_leaves, int max_depth)
      : expands_whole_frontier_(level_wise || (max_depth >= 0 && max_depth < 31 &&
                                               max_leaves >= (int64_t{1} << max_depth))),
        leaves_left_(max_leaves - 1) {}

  void push(int32_t node, double gain) { frontier_.push_back({node, gain}); }
  bool can_add_leaves() const { return leaves_left_ > 0; }

  // Return the nodes to split next, in order of id; empty when growth has ended. Every split adds
  // one leaf.
  std::vector<int32_t> next() {
    const auto better = [](const ExpandEntry& a, const ExpandEntry& b) {
      return a.gain > b.gain || (a.gain == b.gain && a.node < b.node);
    };
    const size_t limit =
        std::min<size_t>(expands_whole_frontier_ ? frontier_.size() : 1, std::max(leaves_left_, 0));
    const size_t n = std::min(limit, frontier_.size());
    if (n < frontier_.size())
      std::partial_sort(frontier_.begin(), frontier_.begin() + n, frontier_.end(), better);
    std::vector<int32_t> batch;
    for (size_t i = 0; i < n; ++i) batch.push_back(frontier_[i].node);
    std::sort(batch.begin(), batch.end());
    if (expands_whole_frontier_)
      frontier_.clear();
    else
      frontier_.erase(frontier_.begin(), frontier_.begin() + n);
    leaves_left_ -= static_cast<int>(n);
    return batch;
  }

 private:
  bool expands_whole_frontier_;
  int leaves_left_;
  std::vector<ExpandEntry> frontier_;
};

}  // namespace polyleaf
