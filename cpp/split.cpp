#include "split.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "histogram.h"

namespace polyleaf {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

// Sums of the left child of a numeric split, added up again once the best is known: cheaper than keeping
// every prefix.
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
      kernels.add_bins(feature.bin(*node.layout, first), lanes, last - first + 1, split.left.data());
    }
  };
  add(0, split.bin);
  if (split.missing_left) add(feature.missing, feature.missing);
  split.left_count = static_cast<int32_t>(count);
}

void begin_search(const ScanNode& node, TileSplit& best) {
  best.sum = kNone;
  best.feature = -1;
  best.left.assign(node.layout->lanes + 16, 0);
}

// Where nothing was missing in a node, missing values follow the larger child.
void follow_larger_child(const ScanNode& node, TileSplit& split) {
  split.missing_left = split.left_count >= node.count - split.left_count;
}

// What the slopes of the winner will be solved from.
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
      const int own = layout.curvature == Curvature::diagonal ? k
                      : layout.curvature == Curvature::full   ? packed(k, k)
                                                              : 0;
      const double h = layout.curvature == Curvature::unit
                           ? static_cast<double>(categories[i].count)
                           : static_cast<double>(at[layout.curvature_offset + own]) *
                                 static_cast<double>(node.curvature_step[own]);
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
    const float sum = scores_of(node_).candidate_sum(node_, left_.data(), count_);
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

size_t moment_doubles(const ChannelLayout& layout) {
  // Rows of 272 candidates: a product with x for every gradient, curvature and regressor, a sum for every
  // lane.
  return layout.linear() ? 272 * static_cast<size_t>(layout.n_regressor_products() + 16 + layout.lanes) : 0;
}

size_t workspace_floats(const ChannelLayout& layout, const SplitConfig& config) {
  if (layout.linear()) return layout.lanes + 16;
  // Sixteen candidates: their sums as rows, the largest terms of both sides. Of one candidate: all terms.
  if (config.keeps_few(layout.n_outputs))
    return 16 * (static_cast<size_t>(layout.lanes) + 2 * static_cast<size_t>(layout.n_outputs)) +
           layout.lanes + 3 * static_cast<size_t>(layout.n_outputs) + 96;
  if (layout.curvature != Curvature::full) return 0;
  const size_t k = layout.n_outputs, lanes = layout.lanes;
  // Sixteen candidates: their sums as rows and by lane, and one system of equations with its solution.
  return 16 * (2 * lanes + k * (k + 1) / 2 + 3 * k) + lanes + k + 64;
}

void best_split_of_tile(const Bins& bins, int tile, const TileHistogram& histogram, const ScanNode& node,
                        const Slots& allowed, ScanScratch& scratch, TileSplit& best) {
  const Tile& t = bins.tile(tile);
  const ScoreKernels& scores = scores_of(node);
  const auto feature_of = [&](int slot) {
    const int64_t first = static_cast<int64_t>(slot) * t.stride();
    return ScanFeature{histogram.rows == nullptr ? histogram.sums + first * node.layout->lanes : nullptr,
                       histogram.counts != nullptr ? histogram.counts + first : nullptr,
                       histogram.touched != nullptr ? histogram.touched + slot * 4 : nullptr,
                       bins.n_bins(t.features[slot]),
                       t.missing(),
                       histogram.rows != nullptr ? histogram.rows + slot : nullptr,
                       node.linear != nullptr && node.linear->joins[t.features[slot]]
                           ? node.linear->table->means(t.features[slot])
                           : nullptr};
  };
  begin_search(node, best);
  int best_slot = -1;
  for (int s = 0; s < t.n_features; ++s) {  // in ascending order of feature: ties keep the first
    if (!allowed[s]) continue;
    const int f = t.features[s];
    const ScanFeature feature = feature_of(s);
    if (bins.is_categorical(f)) {
      CategoricalScan(node, feature, f, best).run();
      if (best.feature == f) best_slot = s;
      continue;
    }
    NumericBest numeric;
    scores.scan_numeric(node, feature, scratch, &numeric);
    if (!(numeric.sum > best.sum)) continue;
    best.sum = numeric.sum;
    best.feature = f;
    best.bin = numeric.bin;
    best.missing_left = numeric.missing_left != 0;
    best_slot = s;
  }
  if (best_slot < 0) return;
  const ScanFeature feature = feature_of(best_slot);
  if (best.bin >= 0) {
    best.set = {};
    std::fill(best.left.begin(), best.left.end(), 0);
    add_left(node, feature, best);
  }
  if (feature.count(*node.layout, feature.missing) == 0) follow_larger_child(node, best);
  if (node.linear != nullptr) keep_products(node, feature, best);
}

void SparseHistogram::reserve(int lanes) {
  sums_.reserve(static_cast<size_t>(kMissingCode + 1) * lanes + 16);
  all_.reserve(lanes + 16);
  if (counts_.size() > 0) return;
  counts_.reserve(kMissingCode + 1 + 16);
  std::fill_n(counts_.data(), counts_.size(), 0u);
}

// Features in ascending order: ties keep the first.
class SparseScan {
 public:
  SparseScan(const Bins& bins, const int16_t* channels, const ScanNode& node, ScanScratch& scratch,
             SparseHistogram& histogram, TileSplit& best)
      : bins_(bins),
        lanes_(node.layout->lanes),
        channels_(channels),
        node_(node),
        scores_(scores_of(node)),
        kernels_(POLYLEAF_SELECT(histogram_kernels)),
        scratch_(scratch),
        histogram_(histogram),
        best_(best) {}

  void consider(int64_t number, const SparseEntry* entries, int64_t n) {
    const int f = bins_.sparse().feature(number), n_bins = bins_.n_bins(f);
    uint64_t touched[4] = {};
    build(number, entries, n, touched);
    const ScanFeature feature{histogram_.sums_.data(), histogram_.counts_.data(), touched, n_bins, n_bins};
    NumericBest found;
    scores_.scan_numeric(node_, feature, scratch_, &found);
    clear(touched);
    if (!(found.sum > best_.sum)) return;
    best_.sum = found.sum;
    best_.feature = f;
    best_.bin = found.bin;
    best_.missing_left = found.missing_left != 0;
    best_number_ = number;
    best_entries_ = entries;
    best_n_ = n;
  }

  // The exact sums of the left child.
  void finish() {
    if (best_.feature < 0) return;
    best_.set = {};
    const SparseEntry* end = best_entries_ + best_n_;
    const auto from = [&](int code) {
      return std::lower_bound(best_entries_, end, SparseEntry::key_of(best_number_, code),
                              [](const SparseEntry& entry, uint32_t key) { return entry.key < key; });
    };
    const SparseEntry* after = from(best_.bin + 1);
    const SparseEntry* missing = from(kMissingCode);
    int64_t count = 0;
    if (bins_.sparse().common(best_number_) <= best_.bin) {  // all, less those that entries name
      std::fill_n(histogram_.all_.data(), lanes_, 0);
      add(best_entries_, best_n_, histogram_.all_.data());
      for (int j = 0; j < lanes_; ++j) best_.left[j] = node_.totals[j] - histogram_.all_[j];
      count = node_.count - best_n_;
    }
    add(best_entries_, after - best_entries_, best_.left.data());
    count += after - best_entries_;
    if (best_.missing_left) {
      add(missing, end - missing, best_.left.data());
      count += end - missing;
    }
    best_.left_count = static_cast<int32_t>(count);
    if (missing == end) follow_larger_child(node_, best_);
  }

 private:
  // The bins of one feature: those that entries name, and the common one, which holds all other rows.
  void build(int64_t number, const SparseEntry* entries, int64_t n, uint64_t* touched) {
    const int common = bins_.sparse().common(number), missing = bins_.n_bins(bins_.sparse().feature(number));
    int32_t* sums = histogram_.sums_.data();
    int32_t* all = histogram_.all_.data();
    std::fill_n(sums, lanes_, 0);  // scans read the first bin in any case
    std::fill_n(sums + static_cast<size_t>(missing) * lanes_, lanes_, 0);
    std::fill_n(all, lanes_, 0);
    kernels_.build_sparse(entries, n, channels_, lanes_, missing, sums, histogram_.counts_.data(), all,
                          touched);
    int32_t* rest = sums + static_cast<size_t>(common) * lanes_;
    for (int j = 0; j < lanes_; ++j) rest[j] = node_.totals[j] - all[j];
    histogram_.counts_[common] = static_cast<uint32_t>(node_.count - n);
    touched[common >> 6] |= uint64_t{1} << (common & 63);
  }

  void clear(const uint64_t* touched) {
    for (int word = 0; word < 4; ++word)
      for (uint64_t bits = touched[word]; bits != 0; bits &= bits - 1)
        histogram_.counts_[word * 64 + __builtin_ctzll(bits)] = 0;
  }

  void add(const SparseEntry* entries, int64_t n, int32_t* out) {
    uint64_t touched[4] = {};
    if (n == 0) return;
    kernels_.build_sparse(entries, n, channels_, lanes_, kMissingCode, histogram_.sums_.data(),
                          histogram_.counts_.data(), out, touched);
    clear(touched);
  }

  const Bins& bins_;
  const int lanes_;
  const int16_t* channels_;
  const ScanNode& node_;
  const ScoreKernels& scores_;
  const HistogramKernels& kernels_;
  ScanScratch& scratch_;
  SparseHistogram& histogram_;
  TileSplit& best_;
  int64_t best_number_ = -1, best_n_ = 0;
  const SparseEntry* best_entries_ = nullptr;
};

void best_split_of_entries(const Bins& bins, const SparseEntry* entries, int64_t n, const int16_t* channels,
                           const ScanNode& node, const uint8_t* allowed, ScanScratch& scratch,
                           SparseHistogram& histogram, TileSplit& best) {
  begin_search(node, best);
  SparseScan scan(bins, channels, node, scratch, histogram, best);
  const int64_t least = std::max(1, node.config->min_child_samples);
  for (const SparseEntry *at = entries, *end = entries + n, *next; at != end; at = next) {
    const int32_t number = at->number();
    next = at + 1;
    while (next != end && next->number() == number) ++next;
    // One child of every split has none but rows that entries name.
    if (next - at >= least && allowed[bins.sparse().feature(number)]) scan.consider(number, at, next - at);
  }
  scan.finish();
}

}  // namespace polyleaf
