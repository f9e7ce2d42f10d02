#include "search/cell_scan.h"

#include <algorithm>

#include "search/histogram.h"

namespace polyleaf {

void CellHistogram::reserve(int lanes) {
  sums.reserve(static_cast<size_t>(kMissingCode + 1) * lanes + 16);
  all.reserve(lanes + 16);
  if (counts.size() > 0) return;
  counts.reserve(kMissingCode + 1 + 16);
  std::fill_n(counts.data(), counts.size(), 0u);
}

namespace {

// The scan of one feature after another, and the best of them.
class CellScan {
 public:
  CellScan(const Bins& bins, const int16_t* channels, const ScanNode& node, ScanScratch& scratch,
           CellHistogram& histogram, TileSplit& best)
      : bins_(bins),
        lanes_(node.layout->lanes),
        channels_(channels),
        node_(node),
        scores_(scores_of(node)),
        kernels_(POLYLEAF_SELECT(histogram_kernels)),
        scratch_(scratch),
        histogram_(histogram),
        best_(best) {}

  void consider(int64_t number, const Cell* entries, int64_t n) {
    const int f = bins_.cells().feature(number), n_bins = bins_.n_bins(f);
    uint64_t touched[4] = {};
    build(number, entries, n, touched);
    const ScanFeature feature{histogram_.sums.data(), histogram_.counts.data(), touched, n_bins, n_bins};
    NumericBest found;
    scores_.scan_numeric(node_, feature, scratch_, &found);
    clear(touched);
    if (!best_.take_if_better(found, f)) return;
    best_number_ = number;
    best_entries_ = entries;
    best_n_ = n;
  }

  // The exact sums of the left child.
  void finish() {
    if (best_.feature < 0) return;
    best_.set = {};
    const Cell* end = best_entries_ + best_n_;
    const auto from = [&](int code) {
      return std::lower_bound(best_entries_, end, Cell::key_of(best_number_, code),
                              [](const Cell& entry, uint32_t key) { return entry.key < key; });
    };
    const Cell* after = from(best_.bin + 1);
    const Cell* missing = from(kMissingCode);
    int64_t count = 0;
    if (bins_.cells().common(best_number_) <= best_.bin) {  // all, less those that entries name
      std::fill_n(histogram_.all.data(), lanes_, 0);
      add(best_entries_, best_n_, histogram_.all.data());
      for (int j = 0; j < lanes_; ++j) best_.left[j] = node_.totals[j] - histogram_.all[j];
      count = node_.count - best_n_;
    }
    add(best_entries_, after - best_entries_, best_.left.data());
    count += after - best_entries_;
    if (best_.missing_left) {
      add(missing, end - missing, best_.left.data());
      count += end - missing;
    }
    best_.left_count = static_cast<int32_t>(count);
    if (missing == end) best_.follow_larger_child(node_);
  }

 private:
  // The bins of one feature: those that entries name, and the common one, which holds all other rows.
  void build(int64_t number, const Cell* entries, int64_t n, uint64_t* touched) {
    const int common = bins_.cells().common(number), missing = bins_.n_bins(bins_.cells().feature(number));
    int32_t* sums = histogram_.sums.data();
    int32_t* all = histogram_.all.data();
    std::fill_n(sums, lanes_, 0);  // scans read the first bin in any case
    std::fill_n(sums + static_cast<size_t>(missing) * lanes_, lanes_, 0);
    std::fill_n(all, lanes_, 0);
    kernels_.build_few(entries, n, channels_, lanes_, missing, sums, histogram_.counts.data(), all, touched);
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

  void add(const Cell* entries, int64_t n, int32_t* out) {
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
  TileSplit& best_;
  int64_t best_number_ = -1, best_n_ = 0;
  const Cell* best_entries_ = nullptr;
};

}  // namespace

void best_split_of_entries(const Bins& bins, const Cell* entries, int64_t n, const int16_t* channels,
                           const ScanNode& node, const uint8_t* allowed, ScanScratch& scratch,
                           CellHistogram& histogram, TileSplit& best) {
  best.begin(node);
  CellScan scan(bins, channels, node, scratch, histogram, best);
  const int64_t least = std::max(1, node.config->min_child_samples);
  for (const Cell *at = entries, *end = entries + n, *next; at != end; at = next) {
    const int32_t number = at->number();
    next = at + 1;
    while (next != end && next->number() == number) ++next;
    // One child of every split has none but rows that entries name.
    if (next - at >= least && allowed[bins.cells().feature(number)]) scan.consider(number, at, next - at);
  }
  scan.finish();
}

}  // namespace polyleaf
