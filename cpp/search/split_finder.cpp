#include "search/split_finder.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace polyleaf {
const TileSplit* find_best(const std::vector<TileSplit>& splits) {
  const TileSplit* best = nullptr;
  for (const TileSplit& split : splits) {
    if (split.feature < 0) continue;
    if (best == nullptr || split.comes_before(*best)) best = &split;
  }
  return best;
}

std::vector<const TileSplit*> find_best_of_groups(const std::vector<TileSplit>& splits,
                                                  const Bins& bins, size_t n) {
  std::vector<const TileSplit*> found;
  for (const TileSplit& split : splits)
    if (split.feature >= 0 && std::isfinite(split.sum)) found.push_back(&split);
  std::sort(found.begin(), found.end(),
            [](const TileSplit* a, const TileSplit* b) { return a->comes_before(*b); });
  std::vector<const TileSplit*> best;
  for (const TileSplit* split : found) {
    if (best.size() == n) break;
    const int group = bins.feature_group(split->feature);
    if (std::none_of(best.begin(), best.end(), [&](const TileSplit* other) {
          return bins.feature_group(other->feature) == group;
        }))
      best.push_back(split);
  }
  return best;
}

SplitInfo to_split_info(const TileSplit& split, double gain) {
  return {gain, split.feature, split.bin, split.missing_left, split.set, split.left_count};
}

SplitInfo validate_gain(const TileSplit* best, float node_sum, int n_outputs,
                        const GrowConfig& config) {
  if (best == nullptr || !std::isfinite(best->sum)) return SplitInfo();
  const double sum = best->sum, difference = sum - node_sum;
  const double gain = 0.5 * difference / n_outputs;
  const bool is_large = gain > config.split.min_split_gain && difference > kMinRelativeGain * sum;
  return config.post_prune || is_large ? to_split_info(*best, gain) : SplitInfo();
}

SplitFinder::SplitFinder(const Bins& bins, const Context& context) : bins_(bins) {
  scratch_.resize(context.n_threads);
}

void SplitFinder::start(const TreeContext& tree, const ChannelLayout& layout) {
  tree_ = &tree;
  check_monotone_constraints(constraints_, layout, tree.config().split);
  layout_ = layout;
  for (Scratch& s : scratch_) {
    s.reserve(layout_);
    s.workspace.reserve(workspace_floats(layout_, tree.config().split) + 16);
  }
}

void SplitFinder::Scratch::reserve(const ChannelLayout& layout) {
  lanes.reserve(32 * ((layout.n_outputs + 15) / 16) + 16);
  scan.lanes = lanes.data();
  moments.reserve(moment_doubles(layout) + 16);
  scan.moments = moments.data();
  sparse.reserve(layout.lanes);
  if (layout.lanes <= kMaxSortedLanes) sorted_rows.reserve(layout);
}

ScanNode SplitFinder::scan_node(const HistogramNode& node, int thread) const {
  ScanNode scanned{&tree_->config().split,
                   node.view.layout,
                   node.view.gradient_step,
                   node.view.hessian_step,
                   node.totals.data(),
                   static_cast<int32_t>(node.at.count),
                   scratch_[thread].workspace.data(),
                   node.view.linear,
                   node.prune_bound};
  scanned.categorical_overfit = overfit_;
  if (constraints_.any()) scanned = scanned.constrain(constraints_, node.output_bounds);
  return apply_gain_factors(scanned, tree_->config());
}

Slots SplitFinder::get_allowed_slots(const HistogramNode& node, const Tile& tile) const {
  const std::vector<uint8_t>& allowed = get_allowed(node);
  Slots slots = {};
  for (int s = 0; s < tile.n_features; ++s) slots[s] = allowed[tile.features[s]];
  return slots;
}

void SplitFinder::set_prune_bound(HistogramNode& node, int thread) const {
  const GrowConfig& config = tree_->config();
  // Score above the node's own that an admissible split needs.
  const double min_rise = 2.0 * layout_.n_outputs * config.split.min_split_gain;
  const ScanNode scanned = scan_node(node, thread);
  node.prune_bound = scores().prune_bound(scanned);
  // Where gains are corrected or penalised, the largest sum need not win.
  node.best_so_far =
      config.post_prune || overfit_.variance > 0 || !config.factors.empty()
          ? -std::numeric_limits<float>::infinity()
          : static_cast<float>((scores().node_sum(scanned) + min_rise) * (1.0 - kMinRelativeGain));
}

void SplitFinder::set_gain_bounds(HistogramNode& node, bool has_fixed_gradients) const {
  if (part_size_ > 1 || !has_fixed_gradients || !SparseGainBounds::are_valid(scan_node(node)) ||
      !tree_->partition().sparse_partition().is_indexed(node.at.rows.entry_list)) {
    node.gain_bounds.reset();
    return;
  }
  node.best_so_far = -std::numeric_limits<float>::infinity();
  if (node.gain_bounds != nullptr) return;
  node.gain_bounds = std::make_unique<SparseGainBounds>();
  node.gain_bounds->reset(bins_.sparse_columns().n_features());
}

void SplitFinder::pass_gain_bounds(HistogramNode& parent, HistogramNode& left, HistogramNode& right,
                                   const FixedGradients& gradients) const {
  std::unique_ptr<SparseGainBounds> bounds = std::move(parent.gain_bounds);
  const int32_t list = parent.at.rows.entry_list;
  if (bounds == nullptr || (left.at.rows.entry_list != list && right.at.rows.entry_list != list))
    return;
  HistogramNode& keeper = left.at.rows.entry_list == list ? left : right;
  const RowRange& others = (left.at.rows.entry_list == list ? right : left).at.rows;
  const ScanNode node = scan_node(keeper);
  const uint32_t* ids = tree_->partition().ids(others);
  for (int64_t i = 0; i < others.size(); ++i) {
    const SparseGainBounds::RowSums row = SparseGainBounds::sum_row(node, gradients.row(ids[i]));
    for (const uint32_t key : bins_.sparse_columns().row_keys(ids[i]))
      bounds->remove_row(key >> 8, row);
  }
  bounds->update(SparseGainBounds::sum_node(node));
  keeper.gain_bounds = std::move(bounds);
}

void SplitFinder::propagate_output_bounds(const HistogramNode& parent, HistogramNode& left,
                                          HistogramNode& right) const {
  if (!constraints_.any()) return;
  const TileSplit& best = parent.best;
  propagate_bounds(best.candidate_node(scan_node(parent), bins_), best.feature, best.left.data(),
                   best.left_count, left.output_bounds, right.output_bounds);
}

// Call find(scratch) with the best score sum that any thread has found in the node. It only makes
// scans faster: the best split does not depend on it.
template <class Find>
void SplitFinder::find_with_pruning(HistogramNode& node, int thread, const Find& find) {
  ScanScratch& scratch = scratch_[thread].scan;
  float found;  // std::atomic_ref needs libc++ 19
  __atomic_load(&node.best_so_far, &scratch.best_so_far, __ATOMIC_RELAXED);
  find(scratch);
  __atomic_load(&node.best_so_far, &found, __ATOMIC_RELAXED);
  while (scratch.best_so_far > found &&
         !__atomic_compare_exchange(&node.best_so_far, &found, &scratch.best_so_far, true,
                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

void SplitFinder::scan_sorted_rows(HistogramNode& node, int tile, const uint64_t* words,
                                   const int16_t* channels, const Slots& slots, int thread,
                                   TileSplit* out) {
  SortedRows& rows = scratch_[thread].sorted_rows;
  const ScanNode scanned = scan_node(node, thread);
  POLYLEAF_SELECT(sorted_row_kernels)
      .scan(scanned, words, channels, static_cast<int>(node.n_rows()), bins_.tile(tile).missing(),
            rows);
  const TileHistogram found{nullptr, nullptr, nullptr, &rows};
  if (part_size_ > 1) return scan_tile(node, tile, found, slots, thread, out);
  find_best_tile_split(bins_, tile, found, scanned, slots, scratch_[thread].scan, *out);
}

void SplitFinder::scan_tile(HistogramNode& node, int t, const TileHistogram& histogram,
                            const Slots& slots, int thread, TileSplit* out) {
  const Tile& tile = bins_.tile(t);
  find_with_pruning(node, thread, [&](ScanScratch& scratch) {
    if (part_size_ == 1)
      return find_best_tile_split(bins_, t, histogram, scan_node(node, thread), slots, scratch,
                                  *out);
    for (int first = 0, last; first < tile.n_features; first = last, ++out) {
      const int group = bins_.feature_group(tile.features[first]);
      Slots group_slots = {};
      for (last = first;
           last < tile.n_features && bins_.feature_group(tile.features[last]) == group; ++last)
        group_slots[last] = slots[last];
      find_best_tile_split(bins_, t, histogram, scan_node(node, thread), group_slots, scratch,
                           *out);
    }
  });
}

void SplitFinder::scan_sparse(HistogramNode& node, int group, const int16_t* channels, int thread,
                              TileSplit* out) {
  const SparseScanInput input{&tree_->partition().sparse_partition(),
                              node.at.rows.entry_list,
                              bins_.sparse_columns().group_begin(group),
                              bins_.sparse_columns().group_begin(group + 1),
                              channels,
                              get_allowed(node).data(),
                              node.gain_bounds.get()};
  scan_sparse(node, input, thread, out);
}

void SplitFinder::scan_shared(HistogramNode& node, int64_t first, int64_t last,
                              std::span<const SparseBinList> bins, int thread, TileSplit* out) {
  const uint8_t* allowed = get_allowed(node).data();
  scan_sparse(node, {nullptr, -1, first, last, nullptr, allowed, nullptr, bins}, thread, out);
}

void SplitFinder::scan_sparse(HistogramNode& node, const SparseScanInput& input, int thread,
                              TileSplit* out) {
  find_with_pruning(node, thread, [&](ScanScratch& scratch) {
    find_best_sparse_splits(bins_, input, scan_node(node, thread), scratch, scratch_[thread].sparse,
                            out, part_size_);
  });
}

SplitInfo SplitFinder::choose(const HistogramNode& node, const TileSplit* best) const {
  const float node_sum = best == nullptr ? 0.0f : scores().node_sum(scan_node(node));
  return validate_gain(best, node_sum, layout_.n_outputs, tree_->config());
}

void SplitFinder::write_output_gains(const HistogramNode& node, float* output_gain) const {
  scores().output_terms(node.best.candidate_node(scan_node(node), bins_), node.best.left.data(),
                        node.best.left_count, output_gain);
}

}  // namespace polyleaf
