#include "search/exact_search.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/parallel.h"

namespace polyleaf {

ExactSearch::ExactSearch(const Bins& bins, const Context& context)
    : SparseTargetSearch(bins, context), scratch_(static_cast<size_t>(context_.n_threads)) {}

void ExactSearch::start(const TreeContext& tree, const SearchNode&) {
  begin(tree);
  output_index_.resize(std::max(output_index_.size(), static_cast<size_t>(gradients_->n_outputs())),
                       0);
}

void ExactSearch::evaluate(const std::vector<SearchNode>& nodes, bool,
                           std::vector<SplitInfo>& splits_out) {
  splits_out.assign(nodes.size(), SplitInfo());
  for (size_t i = 0; i < nodes.size(); ++i) {
    const SearchNode& node = nodes[i];
    if (!tree_->can_split(node)) continue;
    const std::vector<uint8_t> allowed = tree_->get_allowed_features(node);
    gather(node, allowed);
    Lists<Best> found(1, std::vector<Best>(static_cast<size_t>(bins_.n_features())));
    parallel_for(context_, bins_.n_features(), [&](int64_t f, int thread) {
      const int feature = static_cast<int>(f);
      if (allowed[f] && owns_feature(feature)) found[0][f] = scan(node, feature, scratch_[thread]);
    });
    allgather_lists(context_, found);
    Best best;
    for (Best& b : found[0]) {
      if (b.feature >= 0)
        b.penalised_gain = tree_->config().penalised_gain(b.feature, b.sum, entries_.gain);
      if (b.is_better(best)) best = b;
    }
    double gain = 0;
    if (best.feature < 0 || !is_admissible(best.sum, entries_.gain, gain)) continue;
    splits_out[i] = {gain, best.feature, best.bin, best.missing_left, {}, best.n_left};
    record_choice(node.id, static_cast<double>(best.left_hessian) * hessian_unit());
  }
}

void ExactSearch::gather(const SearchNode& node, const std::vector<uint8_t>& allowed) {
  const int64_t n = node.rows.size();
  const uint32_t* ids = tree_->partition().ids(node.rows);
  clear_entries();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t id = ids != nullptr ? ids[i] : node.rows.begin + i;
    const SparseRow row = gradients_->row(id);
    const float m = sample_.factor(id);
    for (int64_t e = 0; e < row.n; ++e) add_entry(row.outputs[e], fixed_(row.values[e] * m));
    end_row(row_hessian(id));
  }
  if (context_.is_distributed()) allgather_entries(node, allowed);
  Entries& entries = entries_;
  largest_.start(leaf_k_);
  for (int64_t total : entries.totals) largest_.offer(std::abs(total));
  entries.gain = gain(largest_, entries.total_hessian);
}

// Replace the entries of this rank's rows by those of all ranks' rows, and exchange the codes of
// features.
void ExactSearch::allgather_entries(const SearchNode& node, const std::vector<uint8_t>& allowed) {
  Lists<int32_t> entries(3);
  for (size_t i = 0; i + 1 < entries_.begin.size(); ++i)
    entries[0].push_back(static_cast<int32_t>(entries_.begin[i + 1] - entries_.begin[i]));
  for (const int32_t index : entries_.index) entries[1].push_back(outputs_[index]);
  entries[2] = entries_.value;
  allgather_lists(context_, entries);
  Lists<int64_t> hessian = {entries_.hessian};
  if (!counts_rows()) allgather_lists(context_, hessian);
  clear_entries();
  size_t e = 0;
  for (size_t i = 0; i < entries[0].size(); ++i) {
    for (const size_t end = e + static_cast<size_t>(entries[0][i]); e < end; ++e)
      add_entry(entries[1][e], entries[2][e]);
    end_row(counts_rows() ? 1 : hessian[0][i]);
  }

  const int n_features = bins_.n_features(), n_ranks = context_.communicator->size();
  std::vector<Lists<uint8_t>> codes(n_ranks, Lists<uint8_t>(static_cast<size_t>(n_features)));
  for (int f = 0; f < n_features; ++f) {
    if (!allowed[f]) continue;
    std::vector<uint8_t>& feature_codes = codes[f % n_ranks][f];
    feature_codes.resize(static_cast<size_t>(node.rows.size()));
    tree_->partition().codes(node.rows, f, feature_codes.data());
  }
  codes_ = alltoall_lists(context_, codes);
}

void ExactSearch::clear_entries() {
  for (int32_t output : outputs_) output_index_[output] = 0;
  outputs_.clear();
  entries_.begin.assign(1, 0);
  entries_.index.clear();
  entries_.value.clear();
  entries_.hessian.clear();
  entries_.totals.clear();
  entries_.total_hessian = 0;
}

double ExactSearch::gain(LargestMagnitudes& magnitudes, int64_t hessian) const {
  return sum_largest_gains(magnitudes, fixed_.unit, static_cast<double>(hessian) * hessian_unit(),
                           step_);
}

const uint8_t* ExactSearch::get_codes(const SearchNode& node, int feature, Scratch& s) const {
  if (context_.is_distributed()) return codes_[feature].data();
  s.codes.resize(static_cast<size_t>(node.rows.size()));
  tree_->partition().codes(node.rows, feature, s.codes.data());
  return s.codes.data();
}

ExactSearch::Best ExactSearch::scan(const SearchNode& node, int feature, Scratch& s) const {
  const Entries& entries = entries_;
  const SplitConfig& limits = tree_->config().split;
  const int64_t n = node.count;
  const uint8_t* codes = get_codes(node, feature, s);
  // Rows in the order of their bins; missing values come last.
  int64_t start[257] = {};
  for (int64_t i = 0; i < n; ++i) ++start[codes[i] + 1];
  for (int b = 0; b < 256; ++b) start[b + 1] += start[b];
  s.order.resize(static_cast<size_t>(n));
  {
    std::vector<int64_t> next(start, start + 256);
    for (int64_t i = 0; i < n; ++i) s.order[next[codes[i]]++] = static_cast<uint32_t>(i);
  }
  const int64_t n_missing = start[kMissingCode + 1] - start[kMissingCode],
                n_present = n - n_missing;
  const int64_t stride =
      std::max<int64_t>(1, static_cast<int64_t>(threshold_step_ * static_cast<double>(node.count)));
  const int64_t min_rows = std::max(1, limits.min_child_samples);
  const double min_hessian = limits.min_child_weight;
  const size_t m = entries.totals.size();

  Best best;
  for (const bool missing_left : {false, true}) {
    if (missing_left && n_missing == 0) break;
    s.sums.assign(m, 0);
    int64_t n_left = 0, hessian = 0;
    const auto add_bin = [&](int b) {
      for (int64_t i = start[b]; i < start[b + 1]; ++i) {
        const int64_t row = s.order[i];
        for (int64_t e = entries.begin[row]; e < entries.begin[row + 1]; ++e)
          s.sums[entries.index[e]] += entries.value[e];
        hessian += entries.hessian[row];
      }
      n_left += start[b + 1] - start[b];
    };
    if (missing_left) add_bin(kMissingCode);
    for (int b = 0; b < bins_.n_bins(feature); ++b) {
      const int64_t before = start[b], after = start[b + 1];  // present rows up to this bin
      if (after == before) continue;
      add_bin(b);
      if (after / stride == before / stride && after != n_present) continue;
      const double left_hessian = static_cast<double>(hessian) * hessian_unit();
      const double right_hessian =
          static_cast<double>(entries.total_hessian - hessian) * hessian_unit();
      if (n_left < min_rows || node.count - n_left < min_rows || left_hessian < min_hessian ||
          right_hessian < min_hessian)
        continue;
      s.left.start(leaf_k_);
      s.right.start(leaf_k_);
      for (size_t j = 0; j < m; ++j) {
        s.left.offer(std::abs(s.sums[j]));
        s.right.offer(std::abs(entries.totals[j] - s.sums[j]));
      }
      const double sum = gain(s.left, hessian) + gain(s.right, entries.total_hessian - hessian);
      if (best.feature >= 0 && (sum < best.sum || (sum == best.sum && best.bin <= b))) continue;
      best = {sum, feature, b, missing_left, n_left, hessian};
    }
  }
  // Missing values follow the larger child if the node has none.
  if (best.feature >= 0 && n_missing == 0)
    best.missing_left = best.n_left >= node.count - best.n_left;
  return best;
}

}  // namespace polyleaf
