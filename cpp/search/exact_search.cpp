#include "search/exact_search.h"

#include <algorithm>
#include <cstdlib>

#include "base/parallel.h"

namespace polyleaf {

ExactSearch::ExactSearch(const Bins& bins, const Workers& workers)
    : LabelSearch(bins, workers), scratch_(static_cast<size_t>(workers_.n_threads)) {}

void ExactSearch::start(const SearchScope& scope, const SearchNode&) {
  begin(scope);
  number_of_.resize(std::max(number_of_.size(), static_cast<size_t>(gradients_->n_outputs())), 0);
}

void ExactSearch::evaluate(const std::vector<SearchNode>& nodes, bool, std::vector<Choice>& choices) {
  choices.assign(nodes.size(), Choice());
  for (size_t i = 0; i < nodes.size(); ++i) {
    const SearchNode& node = nodes[i];
    if (!scope_->can_split(node)) continue;
    gather(node);
    const std::vector<uint8_t> allowed = scope_->features_of(node);
    std::vector<Best> found(static_cast<size_t>(bins_.n_features()));
    parallel_for(workers_, bins_.n_features(), [&](int64_t f, int thread) {
      if (allowed[f]) found[f] = scan(node, static_cast<int>(f), scratch_[thread]);
    });
    Best best;
    for (const Best& b : found)  // ties keep the first feature
      if (b.feature >= 0 && (best.feature < 0 || b.sum > best.sum)) best = b;
    double gain = 0;
    if (best.feature < 0 || !admits(best.sum, entries_.worth, gain)) continue;
    choices[i] = {gain, best.feature, best.bin, best.missing_left, {}, best.n_left};
    note_choice(node.id, static_cast<double>(best.left_curvature) * curvature_unit());
  }
}

void ExactSearch::gather(const SearchNode& node) {
  Entries& entries = entries_;
  const int64_t n = node.rows.size();
  const uint32_t* ids = scope_->partition().ids(node.rows);
  entries.begin.assign(1, 0);
  entries.number.clear();
  entries.value.clear();
  entries.curvature.clear();
  entries.totals.clear();
  entries.total_curvature = 0;
  met_.clear();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t id = ids != nullptr ? ids[i] : node.rows.begin + i;
    const LabelRow row = gradients_->row(id);
    const float m = sample_.factor(id);
    for (int64_t e = 0; e < row.n; ++e) {
      int32_t& number = number_of_[row.outputs[e]];
      if (number == 0) {
        met_.push_back(row.outputs[e]);
        entries.totals.push_back(0);
        number = static_cast<int32_t>(met_.size());
      }
      const int32_t value = fixed_(row.values[e] * m);
      entries.number.push_back(number - 1);
      entries.value.push_back(value);
      entries.totals[number - 1] += value;
    }
    entries.begin.push_back(static_cast<int64_t>(entries.number.size()));
    entries.curvature.push_back(row_curvature(id));
    entries.total_curvature += entries.curvature.back();
  }
  for (int32_t output : met_) number_of_[output] = 0;
  largest_.start(leaf_k_);
  for (int64_t total : entries.totals) largest_.offer(std::abs(total));
  entries.worth = worth(largest_, entries.total_curvature);
}

double ExactSearch::worth(Largest& magnitudes, int64_t curvature) const {
  return worth_of_largest(magnitudes, fixed_.unit, static_cast<double>(curvature) * curvature_unit(), step_);
}

ExactSearch::Best ExactSearch::scan(const SearchNode& node, int feature, Scratch& s) const {
  const Entries& entries = entries_;
  const SplitConfig& limits = scope_->config().split;
  const int64_t n = node.rows.size();
  s.codes.resize(static_cast<size_t>(n));
  scope_->partition().codes(node.rows, feature, s.codes.data());
  // Rows in order of their bins; those without a value come last.
  int64_t start[257] = {};
  for (int64_t i = 0; i < n; ++i) ++start[s.codes[i] + 1];
  for (int b = 0; b < 256; ++b) start[b + 1] += start[b];
  s.order.resize(static_cast<size_t>(n));
  {
    std::vector<int64_t> next(start, start + 256);
    for (int64_t i = 0; i < n; ++i) s.order[next[s.codes[i]]++] = static_cast<uint32_t>(i);
  }
  const int64_t n_missing = start[kMissingCode + 1] - start[kMissingCode], n_present = n - n_missing;
  const int64_t stride =
      std::max<int64_t>(1, static_cast<int64_t>(threshold_step_ * static_cast<double>(node.count)));
  const int64_t least = std::max(1, limits.min_child_samples);
  const double least_curvature = limits.min_child_weight;
  const size_t m = entries.totals.size();

  Best best;
  for (const bool missing_left : {false, true}) {
    if (missing_left && n_missing == 0) break;
    s.sums.assign(m, 0);
    int64_t n_left = 0, curvature = 0;
    const auto add_bin = [&](int b) {
      for (int64_t i = start[b]; i < start[b + 1]; ++i) {
        const int64_t row = s.order[i];
        for (int64_t e = entries.begin[row]; e < entries.begin[row + 1]; ++e)
          s.sums[entries.number[e]] += entries.value[e];
        curvature += entries.curvature[row];
      }
      n_left += start[b + 1] - start[b];
    };
    if (missing_left) add_bin(kMissingCode);
    for (int b = 0; b < bins_.n_bins(feature); ++b) {
      const int64_t before = start[b], after = start[b + 1];  // present rows up to this bin
      if (after == before) continue;
      add_bin(b);
      if (after / stride == before / stride && after != n_present) continue;
      const double left_curvature = static_cast<double>(curvature) * curvature_unit();
      const double right_curvature =
          static_cast<double>(entries.total_curvature - curvature) * curvature_unit();
      if (n_left < least || node.count - n_left < least || left_curvature < least_curvature ||
          right_curvature < least_curvature)
        continue;
      s.left.start(leaf_k_);
      s.right.start(leaf_k_);
      for (size_t j = 0; j < m; ++j) {
        s.left.offer(std::abs(s.sums[j]));
        s.right.offer(std::abs(entries.totals[j] - s.sums[j]));
      }
      const double sum = worth(s.left, curvature) + worth(s.right, entries.total_curvature - curvature);
      if (best.feature >= 0 && (sum < best.sum || (sum == best.sum && best.bin <= b))) continue;
      best = {sum, feature, b, missing_left, n_left, curvature};
    }
  }
  // Where nothing was missing in this node, missing values follow the larger child.
  if (best.feature >= 0 && n_missing == 0) best.missing_left = best.n_left >= node.count - best.n_left;
  return best;
}

}  // namespace polyleaf
