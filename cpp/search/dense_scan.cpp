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
    if (feature.rows != nullptr) {
      const RowsByBin& rows = *feature.rows;
      kernels.add_rows(rows, lanes, rows.start[first], rows.start[last] + feature.counts[last],
                       split.left.data());
    } else {
      kernels.add_bins(feature.bin(*node.layout, first), lanes, last - first + 1,
                       split.left.data());
    }
  };
  add(0, split.bin);
  if (split.missing_left) add(feature.missing, feature.missing);
  split.left_count = static_cast<int32_t>(count);
}

// Set the sums of the left child of the best split of a slot whose rows were sorted.
void set_left(const ScanNode& node, const SortedSplit& sorted, TileSplit& split) {
  const ChannelLayout& layout = *node.layout;
  std::fill(split.left.begin(), split.left.end(), 0);
  split.left[0] = sorted.gradient;
  if (layout.hessian_offset >= 0) split.left[layout.hessian_offset] = sorted.hessian;
  split.left[layout.count_lane] = split.left_count = sorted.count;
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

// A non-empty category of a node, and its position in the sorted order.
struct Category {
  int bin;
  int32_t count;
  double position = 0;
};

// Compute the positions of the categories along the leading direction of their gradient means (for
// one output it is the mean itself, the order of Fisher 1958).
void position_categories(const ScanNode& node, const ScanFeature& feature,
                         std::vector<Category>& categories) {
  const ChannelLayout& layout = *node.layout;
  const int K = layout.n_outputs;
  const size_t n = categories.size();
  std::vector<double> deviation(n * K), mean(K, 0.0);
  double rows = 0;
  for (const Category& c : categories) rows += c.count;
  for (size_t i = 0; i < n; ++i) {
    const int32_t* at = feature.bin(layout, categories[i].bin);
    for (int k = 0; k < K; ++k) {
      const int own = layout.hessian_index(k);
      const double h = layout.hessian == HessianKind::unit
                           ? static_cast<double>(categories[i].count)
                           : static_cast<double>(at[layout.hessian_offset + own]) *
                                 static_cast<double>(node.hessian_step[own]);
      const double g = static_cast<double>(at[k]) * static_cast<double>(node.gradient_step[k]);
      const double denominator = h + node.config->cat_smooth;
      deviation[i * K + k] = denominator > 0 ? g / denominator : 0.0;
    }
  }
  for (int k = 0; k < K; ++k) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += categories[i].count * deviation[i * K + k];
    mean[k] = sum / rows;
  }
  for (size_t i = 0; i < n; ++i)
    for (int k = 0; k < K; ++k) deviation[i * K + k] -= mean[k];
  if (K == 1) {
    for (size_t i = 0; i < n; ++i) categories[i].position = deviation[i];
    return;
  }
  const auto dot = [&](size_t i, const std::vector<double>& u) {
    double sum = 0;
    for (int k = 0; k < K; ++k) sum += deviation[i * K + k] * u[k];
    return sum;
  };
  size_t start = 0;
  double largest = -1;
  for (size_t i = 0; i < n; ++i) {
    double squares = 0;
    for (int k = 0; k < K; ++k) squares += deviation[i * K + k] * deviation[i * K + k];
    const double weight = categories[i].count * squares;
    if (weight > largest) {
      largest = weight;
      start = i;
    }
  }
  std::vector<double> direction(deviation.begin() + start * K, deviation.begin() + (start + 1) * K),
      next(K);
  for (int round = 0; round < 8; ++round) {  // power iteration
    std::fill(next.begin(), next.end(), 0.0);
    for (size_t i = 0; i < n; ++i) {
      const double weight = categories[i].count * dot(i, direction);
      for (int k = 0; k < K; ++k) next[k] += weight * deviation[i * K + k];
    }
    double scale = 0;
    for (double x : next) scale = std::max(scale, std::fabs(x));
    if (scale == 0) break;
    for (int k = 0; k < K; ++k) direction[k] = next[k] / scale;
  }
  for (size_t i = 0; i < n; ++i) categories[i].position = dot(i, direction);
}

// Scan of sets of categories; the sums of the best set are left in `best`.
class CategoricalScan {
 public:
  CategoricalScan(const ScanNode& node, const ScanFeature& feature, int feature_id, TileSplit& best)
      : node_(node),
        feature_(feature),
        feature_id_(feature_id),
        best_(best),
        left_(node.layout->lanes + 16, 0) {}

  void run() {
    for (int b = 0; b <= feature_.missing; ++b) {
      if (b == feature_.n_bins) b = feature_.missing;
      const uint32_t count = feature_.count(*node_.layout, b);
      if (count != 0) categories_.push_back({b, static_cast<int32_t>(count)});
    }
    if (categories_.size() < 2) return;
    if (static_cast<int>(categories_.size()) <= node_.config->max_cat_to_onehot) {
      for (const Category& c : categories_) {
        clear();
        add(c);
        score_candidate();
      }
      return;
    }
    correction_ = node_.categorical_overfit.expected_gain(static_cast<int64_t>(categories_.size()));
    position_categories(node_, feature_, categories_);
    std::stable_sort(categories_.begin(), categories_.end(),
                     [](const Category& a, const Category& b) { return a.position < b.position; });
    clear();
    for (size_t i = 0; i + 1 < categories_.size(); ++i) {
      add(categories_[i]);
      score_candidate();
    }
  }

 private:
  void clear() {
    std::fill(left_.begin(), left_.end(), 0);
    count_ = 0;
    set_ = {};
  }
  void add(const Category& c) {
    const int32_t* at = feature_.bin(*node_.layout, c.bin);
    for (int j = 0; j < node_.layout->lanes; ++j) left_[j] += at[j];
    count_ += c.count;
    const int code = c.bin == feature_.missing ? kMissingCode : c.bin;
    set_[code >> 6] |= uint64_t{1} << (code & 63);
  }
  void score_candidate() {
    const int32_t min_rows = node_.config->min_child_samples;
    if (count_ < min_rows || node_.count - count_ < min_rows) return;
    const float sum = select_score_kernels(node_).candidate_sum(node_, left_.data(), count_);
    const float gain = node_.penalised_gain(sum, correction_);
    if (!(gain > best_.penalised_gain)) return;
    best_.sum = sum;
    best_.penalised_gain = gain;
    best_.feature = feature_id_;
    best_.bin = -1;
    best_.set = set_;
    best_.missing_left = contains(set_, kMissingCode);
    best_.left_count = count_;
    std::copy(left_.begin(), left_.begin() + node_.layout->lanes, best_.left.begin());
  }

  const ScanNode& node_;
  const ScanFeature& feature_;
  const int feature_id_;
  TileSplit& best_;
  std::vector<Category> categories_;
  std::vector<int32_t> left_;
  int32_t count_ = 0;
  CategorySet set_ = {};
  float correction_ = 0;
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
        histogram.rows != nullptr ? histogram.rows + slot : nullptr,
        node.linear != nullptr && node.linear->joins[t.features[slot]]
            ? node.linear->table->means(t.features[slot])
            : nullptr};
  };
  best.reset(node);
  int best_slot = -1;
  for (int s = 0; s < t.n_features; ++s) {
    if (!allowed[s]) continue;
    const int f = t.features[s];
    const ScanFeature feature = get_feature(s);
    const ScanNode split_on = node.select_feature(f);
    if (bins.is_categorical(f)) {
      CategoricalScan(split_on, feature, f, best).run();
      if (best.feature == f) best_slot = s;
      continue;
    }
    if (histogram.sorted != nullptr) {
      const NumericBest& found = histogram.sorted[s].best;
      if (best.update_if_better(found, f, split_on.penalised_gain(found.sum))) best_slot = s;
      continue;
    }
    NumericBest numeric;
    if (node.factors != nullptr) scratch.best_so_far = kNone;  // the largest sum need not win
    scores.scan_numeric(split_on, feature, scratch, &numeric);
    if (best.update_if_better(numeric, f, split_on.penalised_gain(numeric.sum))) best_slot = s;
  }
  if (best_slot < 0) return;
  if (histogram.sorted != nullptr) {
    best.set = {};
    set_left(node, histogram.sorted[best_slot], best);
    if (!histogram.sorted[best_slot].has_missing) best.send_missing_to_larger_child(node);
    return;
  }
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
