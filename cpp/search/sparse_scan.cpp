#include "search/sparse_scan.h"

#include <algorithm>
#include <limits>

#include "search/packed_histogram.h"

namespace polyleaf {

void CellHistogram::reserve(int lanes) {
  sums.reserve(static_cast<size_t>(kMissingCode + 1) * lanes + 16);
  all.reserve(lanes + 16);
  if (counts.size() > 0) return;
  counts.reserve(kMissingCode + 1 + 16);
  std::fill_n(counts.data(), counts.size(), 0u);
}

namespace {

// The scan of one feature after another.
class CellScan {
 public:
  CellScan(const Bins& bins, const int16_t* channels, const ScanNode& node, ScanScratch& scratch,
           CellHistogram& histogram)
      : bins_(bins),
        lanes_(node.layout->lanes),
        channels_(channels),
        node_(node),
        scores_(select_score_kernels(node)),
        kernels_(POLYLEAF_SELECT(histogram_kernels)),
        scratch_(scratch),
        histogram_(histogram),
        is_separable_(are_separable(*node.layout, *node.config)) {
    histogram_.found.clear();
  }

  void run(const CellsToScan& cells) {
    if (cells.lists->is_indexed(cells.list))
      visit_features(cells);
    else
      visit_runs(cells);
  }

  // Writes the best of each group, the best of all first, and of equal sums that of the first
  // feature.
  void choose(TileSplit* best, int n_best) {
    std::vector<FoundSplit>& found = histogram_.found;
    const auto is_better = [](const FoundSplit& a, const FoundSplit& b) {
      return a.penalised_gain > b.penalised_gain ||
             (a.penalised_gain == b.penalised_gain && a.feature < b.feature);
    };
    if (n_best > 1)
      std::sort(found.begin(), found.end(), is_better);
    else if (!found.empty())
      std::iter_swap(found.begin(), std::min_element(found.begin(), found.end(), is_better));
    int n = 0;
    for (size_t i = 0; i < found.size() && n < n_best; ++i) {
      const int group = bins_.feature_group(found[i].feature);
      if (std::none_of(best, best + n,
                       [&](const TileSplit& b) { return bins_.feature_group(b.feature) == group; }))
        finish(found[i], best[n++]);
    }
  }

 private:
  // Features that a bound tells are worth too little are passed by.
  void visit_features(const CellsToScan& cells) {
    if (cells.bounds == nullptr) {
      for (int64_t number = cells.first; number < cells.last; ++number)
        if (is_allowed(cells, number))
          consider(number, cells.lists->range(cells.list, number, number + 1));
      return;
    }
    const CellBounds::NodeSums sums = CellBounds::sums_of(node_);
    const int64_t n = cells.last - cells.first;
    histogram_.reach.reserve(static_cast<size_t>(n));
    int32_t* reach = histogram_.reach.data();
    const int64_t n_reach =
        cells.bounds->reach(cells.first, cells.last, sums, scratch_.floor, reach);
    for (int64_t i = 0; i < n_reach; ++i) {
      const int64_t number = reach[i];
      int32_t still;  // what was found since may have raised the floor
      if (!is_allowed(cells, number) ||
          cells.bounds->reach(number, number + 1, sums, scratch_.floor, &still) == 0)
        continue;
      const float sum = consider(number, cells.lists->range(cells.list, number, number + 1));
      cells.bounds->found(number, sum, weight_, sums);
      scratch_.floor = std::max(scratch_.floor, sum);
    }
  }

  bool is_allowed(const CellsToScan& cells, int64_t number) const {
    return cells.allowed[bins_.sparse_columns().feature(number)] != 0;
  }

  // Lists of few cells do not know where features begin.
  void visit_runs(const CellsToScan& cells) {
    const CellRange all = cells.lists->range(cells.list, cells.first, cells.last);
    for (const SparseEntry *at = all.begin, *next; at != all.end; at = next) {
      const int32_t number = at->number();
      next = at + 1;
      while (next != all.end && next->number() == number) ++next;
      if (is_allowed(cells, number)) consider(number, {at, next});
    }
  }

  // What the best split on a feature is worth; -inf: there is none.
  float consider(int64_t number, const CellRange& cells) {
    NumericBest found{-std::numeric_limits<float>::infinity(), -1, 0};
    const CellRange there = there_of(cells);
    weight_ = 0;
    // One child of every split has none but rows that cells name.
    if (there.size() < std::max(1, node_.config->min_child_samples)) return found.sum;
    if (has_one_cut(there)) return consider_cut(number, cells, there);
    const int f = bins_.sparse_columns().feature(number), n_bins = bins_.n_bins(f);
    uint64_t touched[4] = {};
    build(number, there.begin, there.size(), touched);
    const ScanFeature feature{histogram_.sums.data(), histogram_.counts.data(), touched, n_bins,
                              n_bins};
    const ScanNode split_on = node_.select_feature(f);
    if (node_.factors != nullptr)
      scratch_.floor = -std::numeric_limits<float>::infinity();  // as tiles have it
    scores_.scan_numeric(split_on, feature, scratch_, &found);
    clear(touched);
    weight_ = weight_of(there.size());
    if (found.sum > -std::numeric_limits<float>::infinity())
      histogram_.found.push_back({found, split_on.penalised_gain(found.sum), f, number, cells});
    return found.sum;
  }

  // Whether cells all hold one value, so that there is one split: these cells, and all other rows.
  bool has_one_cut(const CellRange& there) const {
    const uint32_t key = there.begin->key;
    return is_separable_ && key == (there.end - 1)->key && (key & 255) != kMissingCode;
  }

  // The same without a histogram.
  float consider_cut(int64_t number, const CellRange& cells, const CellRange& there) {
    const float none = -std::numeric_limits<float>::infinity();
    const int32_t n = static_cast<int32_t>(there.size());
    if (node_.count - n < node_.config->min_child_samples) return none;
    int32_t* left = histogram_.all.data();
    std::fill_n(left, lanes_, 0);
    kernels_.sum_few(there.begin, n, channels_, lanes_, left);
    weight_ = weight_of(n);
    const int common = bins_.sparse_columns().common(number), code = there.begin->code();
    if (common < code)
      for (int j = 0; j < lanes_; ++j) left[j] = node_.totals[j] - left[j];
    const int f = bins_.sparse_columns().feature(number);
    const ScanNode split_on = node_.select_feature(f);
    const float sum = scores_.candidate_sum(split_on, left, common < code ? node_.count - n : n);
    if (!(sum > none)) return none;                       // NaN, too
    if (node_.factors != nullptr) scratch_.floor = none;  // as tiles have it
    histogram_.found.push_back(
        {{sum, std::min(common, code), 0}, split_on.penalised_gain(sum), f, number, cells});
    return sum;
  }

  // SparseColumns of rows that have not left, with their places.
  CellRange there_of(const CellRange& cells) {
    if (cells.positions == nullptr) return cells;
    histogram_.there.reserve(static_cast<size_t>(cells.size()));
    SparseEntry* to = histogram_.there.data();
    for (const SparseEntry* e = cells.begin; e != cells.end; ++e) {
      const uint32_t place = cells.positions[e->row];
      *to = {place, e->key};
      to += place != CellRange::kRemoved;
    }
    return {histogram_.there.data(), to};
  }

  // The largest Hessian that an output has in the cells whose sums were built.
  double weight_of(int64_t n_cells) const {
    const ChannelLayout& layout = *node_.layout;
    double weight = layout.hessian == HessianKind::unit ? static_cast<double>(n_cells) : 0.0;
    for (int j = 0; j < layout.n_hessian(); ++j)
      weight = std::max(weight, static_cast<double>(histogram_.all[layout.hessian_offset + j]) *
                                    static_cast<double>(node_.hessian_step[j]));
    return weight;
  }

  // The split, with the exact sums of its left child.
  void finish(const FoundSplit& found, TileSplit& best) {
    best.update_if_better(found.best, found.feature, found.penalised_gain);
    best.set = {};
    const auto [begin, end, places] = there_of(found.cells);
    const auto from = [&, first = begin, last = end](int code) {
      return std::lower_bound(
          first, last, SparseEntry::make_key(found.number, code),
          [](const SparseEntry& entry, uint32_t key) { return entry.key < key; });
    };
    const SparseEntry* after = from(best.bin + 1);
    const SparseEntry* missing = from(kMissingCode);
    int64_t count = 0;
    if (bins_.sparse_columns().common(found.number) <=
        best.bin) {  // all, less those that entries name
      std::fill_n(histogram_.all.data(), lanes_, 0);
      add(begin, end - begin, histogram_.all.data());
      for (int j = 0; j < lanes_; ++j) best.left[j] = node_.totals[j] - histogram_.all[j];
      count = node_.count - (end - begin);
    }
    add(begin, after - begin, best.left.data());
    count += after - begin;
    if (best.missing_left) {
      add(missing, end - missing, best.left.data());
      count += end - missing;
    }
    best.left_count = static_cast<int32_t>(count);
    if (missing == end) best.send_missing_to_larger_child(node_);
  }

  // The bins of one feature: those that entries name, and the common one, which holds all other
  // rows.
  void build(int64_t number, const SparseEntry* entries, int64_t n, uint64_t* touched) {
    const int common = bins_.sparse_columns().common(number),
              missing = bins_.n_bins(bins_.sparse_columns().feature(number));
    int32_t* sums = histogram_.sums.data();
    int32_t* all = histogram_.all.data();
    std::fill_n(sums, lanes_, 0);  // scans read the first bin in any case
    std::fill_n(sums + static_cast<size_t>(missing) * lanes_, lanes_, 0);
    std::fill_n(all, lanes_, 0);
    kernels_.build_few(entries, n, channels_, lanes_, missing, sums, histogram_.counts.data(), all,
                       touched);
    int32_t* rest = sums + static_cast<size_t>(common) * lanes_;
    for (int j = 0; j < lanes_; ++j) rest[j] = node_.totals[j] - all[j];
    histogram_.counts[common] = static_cast<uint32_t>(node_.count - n);
    touched[common >> 6] |= uint64_t{1} << (common & 63);
  }

  void clear(const uint64_t* touched) {
    for (int word = 0; word < 4; ++word)
      for (uint64_t bits = touched[word]; bits != 0; bits &= bits - 1)
        histogram_.counts[word * 64 + __builtin_ctzll(bits)] = 0;
  }

  void add(const SparseEntry* entries, int64_t n, int32_t* out) {
    uint64_t touched[4] = {};
    if (n == 0) return;
    kernels_.build_few(entries, n, channels_, lanes_, kMissingCode, histogram_.sums.data(),
                       histogram_.counts.data(), out, touched);
    clear(touched);
  }

  const Bins& bins_;
  const int lanes_;
  const int16_t* channels_;
  const ScanNode& node_;
  const ScoreKernels& scores_;
  const HistogramKernels& kernels_;
  ScanScratch& scratch_;
  CellHistogram& histogram_;
  const bool is_separable_;
  double weight_ = 0;  // of the cells that were looked at last
};

}  // namespace

void best_splits_of_cells(const Bins& bins, const CellsToScan& cells, const ScanNode& node,
                          ScanScratch& scratch, CellHistogram& histogram, TileSplit* best,
                          int n_best) {
  for (int i = 0; i < n_best; ++i) best[i].reset(node);
  CellScan scan(bins, cells.channels, node, scratch, histogram);
  scan.run(cells);
  scan.choose(best, n_best);
}

}  // namespace polyleaf
