#include "leaves/isotonic.h"

#include <algorithm>
#include <cmath>

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

}  // namespace polyleaf
