#include "split.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace polyleaf {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

// Sums of the left child of a numeric candidate, added up again: cheaper than keeping every prefix.
void numeric_left(const ScanNode& node, const ScanFeature& feature, const NumericBest& best, TileSplit& out) {
  const ChannelLayout& layout = *node.layout;
  std::fill(out.left.begin(), out.left.end(), 0);
  int64_t count = 0;
  const auto add = [&](int b) {
    const int32_t* at = feature.bin(layout, b);
    for (int j = 0; j < layout.lanes; ++j) out.left[j] += at[j];
    count += feature.count(layout, b);
  };
  for (int b = 0; b <= best.bin; ++b) add(b);
  if (best.missing_left) add(feature.missing);
  out.left_count = static_cast<int32_t>(count);
}

// One category of a node: a non-empty bin, its place on the line that orders categories.
struct Category {
  int bin;
  int32_t count;
  double position = 0;
};

// Positions of the categories along the leading direction of their gradient means (docs/design.md section 4;
// for one output it is the mean itself, the order of Fisher 1958).
void place_categories(const ScanNode& node, const ScanFeature& feature, std::vector<Category>& categories) {
  const ChannelLayout& layout = *node.layout;
  const int K = layout.n_outputs;
  const size_t n = categories.size();
  std::vector<double> deviation(n * K), mean(K, 0.0);
  double rows = 0;
  for (const Category& c : categories) rows += c.count;
  for (size_t i = 0; i < n; ++i) {
    const int32_t* at = feature.bin(layout, categories[i].bin);
    for (int k = 0; k < K; ++k) {
      const int lane = layout.curvature == Curvature::diagonal ? layout.curvature_offset + k : layout.curvature_offset;
      const int step = layout.curvature == Curvature::diagonal ? k : 0;
      const double h = layout.curvature == Curvature::unit
                           ? static_cast<double>(categories[i].count)
                           : static_cast<double>(at[lane]) * static_cast<double>(node.curvature_step[step]);
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
  std::vector<double> direction(deviation.begin() + start * K, deviation.begin() + (start + 1) * K), next(K);
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

// Tries sets of categories; the sums of the best are left in `best`.
class CategoricalScan {
 public:
  CategoricalScan(const ScanNode& node, const ScanFeature& feature, int feature_id, TileSplit& best)
      : node_(node), feature_(feature), feature_id_(feature_id), best_(best), left_(node.layout->lanes + 16, 0) {}

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
        consider();
      }
      return;
    }
    place_categories(node_, feature_, categories_);
    std::stable_sort(categories_.begin(), categories_.end(),
                     [](const Category& a, const Category& b) { return a.position < b.position; });
    clear();
    for (size_t i = 0; i + 1 < categories_.size(); ++i) {
      add(categories_[i]);
      consider();
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
  void consider() {
    const int32_t least = node_.config->min_child_samples;
    if (count_ < least || node_.count - count_ < least) return;
    const float sum = POLYLEAF_SELECT(split_kernels).candidate_sum(node_, left_.data(), count_);
    if (!(sum > best_.sum)) return;
    best_.sum = sum;
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
};

}  // namespace

void best_split_of_tile(const Bins& bins, int tile, const TileHistogram& histogram, const ScanNode& node,
                        const uint8_t* allowed, ScanScratch& scratch, TileSplit& best) {
  const Tile& t = bins.tile(tile);
  const ChannelLayout& layout = *node.layout;
  const SplitKernels& kernels = POLYLEAF_SELECT(split_kernels);
  best.sum = kNone;
  best.feature = -1;
  best.left.assign(layout.lanes + 16, 0);
  const int64_t slot_bins = t.stride();
  for (int s = 0; s < t.n_features; ++s) {
    if (!allowed[s]) continue;
    const int f = t.features[s];
    const ScanFeature feature{histogram.sums + s * slot_bins * layout.lanes,
                              histogram.counts != nullptr ? histogram.counts + s * slot_bins : nullptr,
                              histogram.touched != nullptr ? histogram.touched + s * 4 : nullptr, bins.n_bins(f),
                              t.missing()};
    if (bins.is_categorical(f)) {
      CategoricalScan(node, feature, f, best).run();
      continue;
    }
    NumericBest numeric;
    kernels.scan_numeric(node, feature, scratch, &numeric);
    if (!(numeric.sum > best.sum)) continue;  // slots are in ascending order of feature: ties keep the first
    best.sum = numeric.sum;
    best.feature = f;
    best.bin = numeric.bin;
    best.missing_left = numeric.missing_left != 0;
    best.set = {};
    if (feature.count(layout, feature.missing) == 0) best.missing_left = false;
    numeric_left(node, feature, numeric, best);
    if (feature.count(layout, feature.missing) == 0)
      best.missing_left = best.left_count >= node.count - best.left_count;
  }
  if (best.feature >= 0 && best.bin < 0) {
    // A categorical split: where nothing was missing here, missing follows the larger child.
    const int s = bins.slot_of(best.feature);
    const ScanFeature feature{histogram.sums + s * slot_bins * layout.lanes,
                              histogram.counts != nullptr ? histogram.counts + s * slot_bins : nullptr, nullptr,
                              bins.n_bins(best.feature), t.missing()};
    if (feature.count(layout, feature.missing) == 0)
      best.missing_left = best.left_count >= node.count - best.left_count;
  }
}

}  // namespace polyleaf
