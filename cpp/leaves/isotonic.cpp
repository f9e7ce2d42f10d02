#include "leaves/isotonic.h"

#include <algorithm>
#include <cmath>

namespace polyleaf {
namespace {

using Pairs = std::vector<std::pair<int32_t, int32_t>>;

constexpr double kRounding = 1.0 / (int64_t{1} << 40);     // of the sum of magnitudes
constexpr double kLeastWeight = 1.0 / (int64_t{1} << 40);  // of the largest

// The upper set of largest sum, where nodes have an excess (the sum of all is 0) and a chosen a brings every
// b of (a, b) with it: what is reached from excess that no flow can take upwards to a lack of it.
class UpperSet {
 public:
  UpperSet(std::vector<double> excess, const Pairs& pairs)
      : excess_(std::move(excess)), pairs_(pairs), flow_(pairs.size(), 0.0), arcs_(excess_.size()) {
    for (size_t e = 0; e < pairs.size(); ++e) {
      arcs_[pairs[e].first].push_back(static_cast<int32_t>(e));
      arcs_[pairs[e].second].push_back(static_cast<int32_t>(e));
    }
    double sum = 0;
    for (double x : excess_) sum += std::fabs(x);
    least_ = kRounding * sum;
  }

  // Flags; all 0: no set has a sum above 0.
  std::vector<uint8_t> find() {
    int32_t lack;
    while ((lack = search()) >= 0) push_to(lack);
    return reached_;
  }

 private:
  // Nodes that residual arcs reach from those of excess, breadth first; the first that lacks some, or -1.
  int32_t search() {
    const size_t n = excess_.size();
    reached_.assign(n, 0);
    from_.assign(n, -1);
    std::vector<int32_t> queue;
    for (size_t i = 0; i < n; ++i)
      if (excess_[i] > least_) {
        reached_[i] = 1;
        queue.push_back(static_cast<int32_t>(i));
      }
    for (size_t at = 0; at < queue.size(); ++at) {
      const int32_t i = queue[at];
      for (int32_t e : arcs_[i]) {
        const bool forward = pairs_[e].first == i;
        const int32_t j = forward ? pairs_[e].second : pairs_[e].first;
        if (reached_[j] || (!forward && !(flow_[e] > 0))) continue;
        reached_[j] = 1;
        from_[j] = e;
        if (excess_[j] < 0) return j;
        queue.push_back(j);
      }
    }
    return -1;
  }

  // As much as the path to `lack` takes.
  void push_to(int32_t lack) {
    double amount = -excess_[lack];
    int32_t i = lack;
    for (; from_[i] >= 0; i = before(i))
      if (pairs_[from_[i]].first == i) amount = std::min(amount, flow_[from_[i]]);
    amount = std::min(amount, excess_[i]);
    excess_[i] -= amount;
    excess_[lack] += amount;
    for (i = lack; from_[i] >= 0; i = before(i))
      flow_[from_[i]] += pairs_[from_[i]].second == i ? amount : -amount;
  }

  int32_t before(int32_t i) const {
    const auto& [a, b] = pairs_[from_[i]];
    return a == i ? b : a;
  }

  std::vector<double> excess_;
  const Pairs& pairs_;
  std::vector<double> flow_;
  std::vector<std::vector<int32_t>> arcs_;  // of each node
  std::vector<uint8_t> reached_;
  std::vector<int32_t> from_;  // the pair by which a node was reached
  double least_ = 0;
};

// Members of one block, with the pairs among them in numbers of their own.
struct Block {
  std::vector<int32_t> members;
  Pairs pairs;

  bool keeps_to_order(const std::vector<float>& values) const {
    return std::all_of(pairs.begin(), pairs.end(), [&](const auto& pair) {
      return values[members[pair.first]] <= values[members[pair.second]];
    });
  }

  // The part of the block whose flag is `side`.
  Block part(const std::vector<uint8_t>& flags, uint8_t side) const {
    Block out;
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

double mean_of(const Block& block, const std::vector<double>& weights, const std::vector<float>& values) {
  double sum = 0, weight = 0;
  for (int32_t i : block.members) {
    sum += weights[i] * static_cast<double>(values[i]);
    weight += weights[i];
  }
  return sum / weight;
}

// Weights that all count: none is so small, beside the largest, that means would be lost in rounding.
std::vector<double> counting(const std::vector<double>& weights) {
  const double largest = *std::max_element(weights.begin(), weights.end());
  std::vector<double> out(weights);
  for (double& w : out) w = largest > 0 ? std::max(w, kLeastWeight * largest) : 1.0;
  return out;
}

}  // namespace

void make_isotonic(const Pairs& pairs, const std::vector<double>& weights, std::vector<float>& values) {
  std::vector<Block> blocks(1);
  for (size_t i = 0; i < values.size(); ++i) blocks[0].members.push_back(static_cast<int32_t>(i));
  blocks[0].pairs = pairs;
  if (blocks[0].keeps_to_order(values)) return;
  const std::vector<double> counted = counting(weights);
  while (!blocks.empty()) {
    const Block block = std::move(blocks.back());
    blocks.pop_back();
    if (block.keeps_to_order(values)) continue;
    const double mean = mean_of(block, counted, values);
    std::vector<double> excess;
    for (int32_t i : block.members) excess.push_back(counted[i] * (static_cast<double>(values[i]) - mean));
    const std::vector<uint8_t> upper = UpperSet(std::move(excess), block.pairs).find();
    const auto n = static_cast<size_t>(std::count(upper.begin(), upper.end(), 1));
    if (n == 0 || n == upper.size()) {
      for (int32_t i : block.members) values[i] = static_cast<float>(mean);
      continue;
    }
    blocks.push_back(block.part(upper, 0));
    blocks.push_back(block.part(upper, 1));
  }
  // What rounding of the means has left.
  for (const auto& [a, b] : pairs) values[b] = std::max(values[b], values[a]);
}

}  // namespace polyleaf
