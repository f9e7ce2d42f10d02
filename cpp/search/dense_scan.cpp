#include "search/dense_scan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "data/linear_table.h"

namespace polyleaf {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

// Sum up the left child of the best numeric split: cheaper than keeping every prefix.
void add_left(const ScanNode& node, const ScanFeature& feature, TileSplit& split) {
  const int lanes = node.layout->lanes;
  const SumKernels& kernels = POLYLEAF_SELECT(sum_kernels);
  int64_t count = 0;
  const auto add = [&](int first, int last) {  // bins first .. last
    for (int b = first; b <= last; ++b) count += feature.count(*node.layout, b);
    kernels.add_bins(feature.bin(*node.layout, first), lanes, last - first + 1, split.left.data());
  };
  add(0, split.bin);
  if (split.missing_left) add(feature.missing, feature.missing);
  split.left_count = static_cast<int32_t>(count);
}

// Set the sums of the left child of the best split of a slot whose rows were sorted.
void set_left(const ScanNode& node, const SortedRows& sorted, int slot, TileSplit& split) {
  const ChannelLayout& layout = *node.layout;
  std::fill(split.left.begin(), split.left.end(), 0);
  sorted.write_left(slot, layout.n_outputs + layout.n_hessian(), split.left.data());
  split.left[layout.count_lane] = split.left_count = sorted.splits[slot].left_count();
}

// Keep the products from which the slopes of the best split are solved.
void keep_products(const ScanNode& node, const ScanFeature& feature, TileSplit& split) {
  const ChannelLayout& layout = *node.layout;
  const int32_t* absent = feature.bin(layout, feature.missing);
  split.absent.assign(absent, absent + layout.lanes);
  split.n_absent = static_cast<int32_t>(feature.count(layout, feature.missing));
  const bool joins = split.bin >= 0 && feature.means != nullptr;
  const size_t n = joins ? static_cast<size_t>(layout.n_regressor_products()) + 8 : 0;
  split.left_products.assign(n, 0.0);
  split.products.assign(n, 0.0);
  if (joins)
    POLYLEAF_SELECT(linear_kernels)
        .products(node, feature, split.bin, split.left_products.data(), split.products.data());
}

// Scan of sets of categories; the sums of the best set are left in `best`.
class CategoricalScan {
 public:
  CategoricalScan(const ScanNode& node, const ScanFeature& feature, int feature_id,
                  ScanScratch& scratch, TileSplit& best)
      : node_(node), feature_(feature), feature_id_(feature_id), scratch_(scratch), best_(best) {}

  void run() {
    const int n = list_categories();
    if (n < 2) return;
    is_sorted_ = n > node_.config->max_cat_to_onehot;
    if (is_sorted_) {
      correction_ = node_.categorical_overfit.expected_gain(n);
      sort(n);
    }
    find_best(is_sorted_ ? n - 1 : n);
  }

 private:
  // List the bins with rows; return how many there are.
  int list_categories() {
    const ChannelLayout& layout = *node_.layout;
    const bool in_lane = feature_.counts == nullptr;
    const auto* counts = in_lane
                             ? reinterpret_cast<const uint32_t*>(feature_.sums) + layout.count_lane
                             : feature_.counts;
    const int64_t step = in_lane ? layout.lanes : 1;
    int n = 0;
    const auto add = [&](int bin) {
      const auto count = static_cast<int32_t>(counts[bin * step]);
      bins_[n] = bin;
      counts_[n] = count;
      n += count != 0;
    };
    for (int b = 0; b < feature_.n_bins; ++b) add(b);
    add(feature_.missing);
    return n;
  }

  void sort(int n) {
    const size_t size = CategoryKernels::workspace_doubles(n, node_.layout->n_outputs);
    if (scratch_.category_deviations.size() < size) scratch_.category_deviations.resize(size);
    double positions[256];
    kernels_.position(node_, feature_, bins_, counts_, n, scratch_.category_deviations.data(),
                      positions);
    int32_t order[256], bins[256], counts[256];
    kernels_.order(positions, n, order);
    std::copy_n(bins_, n, bins);
    std::copy_n(counts_, n, counts);
    for (int i = 0; i < n; ++i) {
      bins_[i] = bins[order[i]];
      counts_[i] = counts[order[i]] + (i > 0 ? counts_[i - 1] : 0);
    }
  }

  // Find the best of n candidates: the first categories, or one of them.
  void find_best(int n) {
    const int64_t lanes = node_.layout->lanes;
    const size_t size = n * lanes + 256;
    if (scratch_.category_sums.size() < size) scratch_.category_sums.resize(size);
    int32_t* const rows = scratch_.category_sums.data();
    kernels_.list_sums(feature_.sums, node_.layout->lanes, bins_, n, is_sorted_, rows);
    const ScoreKernels& scores = select_score_kernels(node_);
    float* const sums = scratch_.sums[0];
    if (scores.candidate_sums != nullptr)
      scores.candidate_sums(node_, rows, counts_, n, sums);
    else
      for (int i = 0; i < n; ++i)
        sums[i] = scores.candidate_sum(node_, copy_row(rows + i * lanes), counts_[i]);
    const int found = kernels_.find_best(node_, counts_, n, sums);
    if (found < 0) return;
    const float gain = node_.penalised_gain(sums[found], correction_);
    if (!(gain > best_.penalised_gain)) return;
    best_.sum = sums[found];
    best_.penalised_gain = gain;
    best_.feature = feature_id_;
    best_.bin = -1;
    best_.set = {};
    for (int i = is_sorted_ ? 0 : found; i <= found; ++i) {
      const int bin = bins_[i], code = bin == feature_.missing ? kMissingCode : bin;
      best_.set[code >> 6] |= uint64_t{1} << (code & 63);
    }
    best_.missing_left = contains(best_.set, kMissingCode);
    best_.left_count = counts_[found];
    std::copy_n(rows + found * lanes, lanes, best_.left.begin());
  }

  // Return a candidate's sums, followed by zeros.
  const int32_t* copy_row(const int32_t* row) {
    left_.assign(node_.layout->lanes + 16, 0);
    std::copy_n(row, node_.layout->lanes, left_.begin());
    return left_.data();
  }

  const ScanNode& node_;
  const ScanFeature& feature_;
  const int feature_id_;
  ScanScratch& scratch_;
  TileSplit& best_;
  const CategoryKernels& kernels_ = POLYLEAF_SELECT(category_kernels);
  // Bins and row counts of the categories with rows. Sorting puts them in the order of candidates
  // and replaces the counts by those of the left child.
  int32_t bins_[272], counts_[272];
  bool is_sorted_ = false;
  float correction_ = 0;
  std::vector<int32_t> left_;
};

}  // namespace

void TileSplit::reset(const ScanNode& node) {
  sum = penalised_gain = kNone;
  feature = -1;
  left.assign(node.layout->lanes + 16, 0);
}

bool TileSplit::update_if_better(const NumericBest& found, int split_feature, float gain) {
  if (!(gain > penalised_gain)) return false;
  sum = found.sum;
  penalised_gain = gain;
  feature = split_feature;
  bin = found.bin;
  missing_left = found.missing_left != 0;
  return true;
}

void TileSplit::send_missing_to_larger_child(const ScanNode& node) {
  missing_left = left_count >= node.count - left_count;
}

ScanNode TileSplit::candidate_node(const ScanNode& node, const Bins& bins) const {
  const bool separates_missing = bin == bins.n_bins(feature) - 1 && !missing_left;
  return separates_missing ? node.unconstrained() : node.select_feature(feature);
}

// Find the best split of a tile whose rows were sorted; none has constraints.
static void find_best_sorted(const Tile& tile, const SortedRows& sorted, const ScanNode& node,
                             const Slots& allowed, TileSplit& best) {
  int best_slot = -1;
  for (int s = 0; s < tile.n_features; ++s) {
    if (!allowed[s]) continue;
    const int f = tile.features[s];
    const NumericBest& found = sorted.splits[s].best;
    const float gain = node.factors == nullptr ? node.penalised_gain(found.sum)
                                               : node.select_feature(f).penalised_gain(found.sum);
    if (best.update_if_better(found, f, gain)) best_slot = s;
  }
  if (best_slot < 0) return;
  best.set = {};
  set_left(node, sorted, best_slot, best);
  if (sorted.splits[best_slot].n_missing == 0) best.send_missing_to_larger_child(node);
}

void find_best_tile_split(const Bins& bins, int tile, const TileHistogram& histogram,
                          const ScanNode& node, const Slots& allowed, ScanScratch& scratch,
                          TileSplit& best) {
  const Tile& t = bins.tile(tile);
  const ScoreKernels& scores = select_score_kernels(node);
  const auto get_feature = [&](int slot) {
    const int64_t first = static_cast<int64_t>(slot) * t.stride();
    return ScanFeature{
        histogram.sums != nullptr ? histogram.sums + first * node.layout->lanes : nullptr,
        histogram.counts != nullptr ? histogram.counts + first : nullptr,
        histogram.touched != nullptr ? histogram.touched + slot * 4 : nullptr,
        bins.n_bins(t.features[slot]),
        t.missing(),
        node.linear != nullptr && node.linear->joins[t.features[slot]]
            ? node.linear->table->means(t.features[slot])
            : nullptr};
  };
  best.reset(node);
  if (histogram.sorted != nullptr)
    return find_best_sorted(t, *histogram.sorted, node, allowed, best);
  int best_slot = -1;
  for (int s = 0; s < t.n_features; ++s) {
    if (!allowed[s]) continue;
    const int f = t.features[s];
    const ScanFeature feature = get_feature(s);
    const ScanNode split_on = node.select_feature(f);
    if (bins.is_categorical(f)) {
      CategoricalScan(split_on, feature, f, scratch, best).run();
      if (best.feature == f) best_slot = s;
      continue;
    }
    NumericBest numeric;
    if (node.factors != nullptr) scratch.best_so_far = kNone;  // the largest sum need not win
    scores.scan_numeric(split_on, feature, scratch, &numeric);
    if (best.update_if_better(numeric, f, split_on.penalised_gain(numeric.sum))) best_slot = s;
  }
  if (best_slot < 0) return;
  const ScanFeature feature = get_feature(best_slot);
  if (best.bin >= 0) {
    best.set = {};
    std::fill(best.left.begin(), best.left.end(), 0);
    add_left(node, feature, best);
  }
  if (feature.count(*node.layout, feature.missing) == 0) best.send_missing_to_larger_child(node);
  if (node.linear != nullptr) keep_products(node, feature, best);
}

}  // namespace polyleaf
