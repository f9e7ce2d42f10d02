#include "search/sparse_scan.h"

#include <algorithm>
#include <limits>

#include "search/packed_histogram.h"

namespace polyleaf {

void SparseHistogram::reserve(int lanes) {
  sums.reserve(static_cast<size_t>(kMissingCode + 1) * lanes + 16);
  totals.reserve(lanes + 16);
  if (counts.size() > 0) return;
  counts.reserve(kMissingCode + 1 + 16);
  std::fill_n(counts.data(), counts.size(), 0u);
}

namespace {

// Scans one feature after another.
class SparseScan {
 public:
  SparseScan(const Bins& bins, const int16_t* channels, const ScanNode& node, ScanScratch& scratch,
             SparseHistogram& histogram)
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

  void run(const SparseScanInput& input) {
    shared_ = input.shared;
    if (!shared_.empty())
      visit_shared(input);
    else if (input.lists->is_indexed(input.list))
      visit_features(input);
    else
      visit_lists(input);
  }

  // Write the best split of each feature group, the best of all first; ties go to the first
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
  // Scan the features whose bound is high enough.
  void visit_features(const SparseScanInput& input) {
    if (input.bounds == nullptr) {
      for (int64_t number = input.first; number < input.last; ++number)
        if (is_allowed(input, number))
          score_feature(number, input.lists->range(input.list, number, number + 1));
      return;
    }
    const SparseGainBounds::NodeSums sums = SparseGainBounds::sum_node(node_);
    const int64_t n = input.last - input.first;
    histogram_.candidates.reserve(static_cast<size_t>(n));
    int32_t* candidates = histogram_.candidates.data();
    const int64_t n_candidates = input.bounds->select_candidates(input.first, input.last, sums,
                                                                 scratch_.best_so_far, candidates);
    for (int64_t i = 0; i < n_candidates; ++i) {
      const int64_t number = candidates[i];
      int32_t unused;  // the score may have risen since
      if (!is_allowed(input, number) ||
          input.bounds->select_candidates(number, number + 1, sums, scratch_.best_so_far,
                                          &unused) == 0)
        continue;
      const float sum = score_feature(number, input.lists->range(input.list, number, number + 1));
      input.bounds->set_gain(number, sum, max_hessian_, sums);
      scratch_.best_so_far = std::max(scratch_.best_so_far, sum);
    }
  }

  bool is_allowed(const SparseScanInput& input, int64_t number) const {
    return input.allowed[bins_.sparse_columns().feature(number)] != 0;
  }

  // Scan short lists, which have no index of features.
  void visit_lists(const SparseScanInput& input) {
    const EntryRange all = input.lists->range(input.list, input.first, input.last);
    for (const SparseEntry *at = all.begin, *next; at != all.end; at = next) {
      const int32_t number = at->number();
      next = at + 1;
      while (next != all.end && next->number() == number) ++next;
      if (is_allowed(input, number)) score_feature(number, {at, next});
    }
  }

  // Scan the features that have bins of any rank.
  void visit_shared(const SparseScanInput& input) {
    next_.clear();
    for (const SparseBinList& bins : shared_) next_.push_back(bins.find(input.first));
    for (;;) {
      int64_t number = input.last;
      for (size_t r = 0; r < shared_.size(); ++r)
        if (next_[r] < shared_[r].size())
          number = std::min<int64_t>(number, shared_[r].key(next_[r]) >> 8);
      if (number == input.last) return;
      uint64_t touched[4] = {};
      const int64_t n = build_shared(number, touched);
      // One child of every split has only rows with nonzeros.
      if (is_allowed(input, number) && n >= std::max(1, node_.config->min_child_samples))
        scan(number, touched, {});
      clear(touched);
    }
  }

  // Return the score of the best split on a feature; -inf: none.
  float score_feature(int64_t number, const EntryRange& entries) {
    const EntryRange present = get_present(entries);
    max_hessian_ = 0;
    // One child of every split has only rows with nonzeros.
    if (present.size() < std::max(1, node_.config->min_child_samples))
      return -std::numeric_limits<float>::infinity();
    if (has_one_threshold(present)) return score_one_threshold(number, entries, present);
    uint64_t touched[4] = {};
    build(number, present.begin, present.size(), touched);
    const float sum = scan(number, touched, entries);
    clear(touched);
    max_hessian_ = get_max_hessian(present.size());
    return sum;
  }

  // Return the score of the best split in the histogram of a feature; -inf: none.
  float scan(int64_t number, const uint64_t* touched, const EntryRange& entries) {
    NumericBest found{-std::numeric_limits<float>::infinity(), -1, 0};
    const int f = bins_.sparse_columns().feature(number), n_bins = bins_.n_bins(f);
    const ScanFeature feature{histogram_.sums.data(), histogram_.counts.data(), touched, n_bins,
                              n_bins};
    const ScanNode split_on = node_.select_feature(f);
    if (node_.factors != nullptr)
      scratch_.best_so_far = -std::numeric_limits<float>::infinity();  // as in the dense scan
    scores_.scan_numeric(split_on, feature, scratch_, &found);
    if (found.sum > -std::numeric_limits<float>::infinity())
      histogram_.found.push_back({found, split_on.penalised_gain(found.sum), f, number, entries});
    return found.sum;
  }

  // Return whether all entries have one value, so that there is one split: these entries, and all
  // other rows.
  bool has_one_threshold(const EntryRange& present) const {
    const uint32_t key = present.begin->key;
    return is_separable_ && key == (present.end - 1)->key && (key & 255) != kMissingCode;
  }

  // Score the only threshold, without a histogram.
  float score_one_threshold(int64_t number, const EntryRange& entries, const EntryRange& present) {
    const float none = -std::numeric_limits<float>::infinity();
    const int32_t n = static_cast<int32_t>(present.size());
    if (node_.count - n < node_.config->min_child_samples) return none;
    int32_t* left = histogram_.totals.data();
    std::fill_n(left, lanes_, 0);
    kernels_.sum_sparse(present.begin, n, channels_, lanes_, left);
    max_hessian_ = get_max_hessian(n);
    const int common = bins_.sparse_columns().common(number), code = present.begin->code();
    if (common < code)
      for (int j = 0; j < lanes_; ++j) left[j] = node_.totals[j] - left[j];
    const int f = bins_.sparse_columns().feature(number);
    const ScanNode split_on = node_.select_feature(f);
    const float sum = scores_.candidate_sum(split_on, left, common < code ? node_.count - n : n);
    if (!(sum > none)) return none;                             // also if NaN
    if (node_.factors != nullptr) scratch_.best_so_far = none;  // as in the dense scan
    histogram_.found.push_back(
        {{sum, std::min(common, code), 0}, split_on.penalised_gain(sum), f, number, entries});
    return sum;
  }

  // Return the entries of rows that are in the node, with their positions.
  EntryRange get_present(const EntryRange& entries) {
    if (entries.positions == nullptr) return entries;
    histogram_.present.reserve(static_cast<size_t>(entries.size()));
    SparseEntry* to = histogram_.present.data();
    for (const SparseEntry* e = entries.begin; e != entries.end; ++e) {
      const uint32_t place = entries.positions[e->row];
      *to = {place, e->key};
      to += place != EntryRange::kRemoved;
    }
    return {histogram_.present.data(), to};
  }

  // Return the largest Hessian of an output in the entries that were summed.
  double get_max_hessian(int64_t n_entries) const {
    const ChannelLayout& layout = *node_.layout;
    double weight = layout.hessian == HessianKind::unit ? static_cast<double>(n_entries) : 0.0;
    for (int j = 0; j < layout.n_hessian(); ++j)
      weight = std::max(weight, static_cast<double>(histogram_.totals[layout.hessian_offset + j]) *
                                    static_cast<double>(node_.hessian_step[j]));
    return weight;
  }

  // Write the split, with the exact sums of its left child.
  void finish(const FoundSplit& found, TileSplit& best) {
    best.update_if_better(found.best, found.feature, found.penalised_gain);
    best.set = {};
    if (!shared_.empty()) return finish_shared(found.number, best);
    const auto [begin, end, places] = get_present(found.entries);
    const auto from = [&, first = begin, last = end](int code) {
      return std::lower_bound(
          first, last, SparseEntry::make_key(found.number, code),
          [](const SparseEntry& entry, uint32_t key) { return entry.key < key; });
    };
    const SparseEntry* after = from(best.bin + 1);
    const SparseEntry* missing = from(kMissingCode);
    int64_t count = 0;
    if (bins_.sparse_columns().common(found.number) <= best.bin) {  // all rows without the entries
      std::fill_n(histogram_.totals.data(), lanes_, 0);
      add(begin, end - begin, histogram_.totals.data());
      for (int j = 0; j < lanes_; ++j) best.left[j] = node_.totals[j] - histogram_.totals[j];
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

  // Write the sums of the left child of a split on a shared feature.
  void finish_shared(int64_t number, TileSplit& best) {
    next_.clear();
    for (const SparseBinList& bins : shared_) next_.push_back(bins.find(number));
    uint64_t touched[4] = {};
    build_shared(number, touched);
    const int missing = get_missing_bin(number);
    std::fill(best.left.begin(), best.left.end(), 0);
    best.left_count = 0;
    for (int bin = 0; bin <= missing; ++bin) {
      if (histogram_.counts[bin] == 0 || (bin == missing ? !best.missing_left : bin > best.bin))
        continue;
      kernels_.add(best.left.data(), get_sums(bin), lanes_);
      best.left_count += static_cast<int32_t>(histogram_.counts[bin]);
    }
    const bool has_missing = histogram_.counts[missing] != 0;
    clear(touched);
    if (!has_missing) best.send_missing_to_larger_child(node_);
  }

  int get_missing_bin(int64_t number) const {
    return bins_.n_bins(bins_.sparse_columns().feature(number));
  }
  int32_t* get_sums(int bin) { return histogram_.sums.data() + static_cast<size_t>(bin) * lanes_; }

  // Build the bins of one feature: those of the entries, and the common one, which holds all other
  // rows.
  void build(int64_t number, const SparseEntry* entries, int64_t n, uint64_t* touched) {
    begin_bins(number);
    kernels_.build_sparse(entries, n, channels_, lanes_, get_missing_bin(number), get_sums(0),
                          histogram_.counts.data(), histogram_.totals.data(), touched);
    set_common_bin(number, n, touched);
  }

  // Build the bins of one feature from the next bins of all ranks; return how many entries they
  // have.
  int64_t build_shared(int64_t number, uint64_t* touched) {
    begin_bins(number);
    const ChannelLayout& layout = *node_.layout;
    int64_t n = 0;
    for (size_t r = 0; r < shared_.size(); ++r) {
      const SparseBinList& bins = shared_[r];
      for (int64_t& i = next_[r]; i < bins.size() && bins.key(i) >> 8 == number; ++i) {
        const int code = static_cast<int>(bins.key(i) & 255);
        const int bin = code == kMissingCode ? get_missing_bin(number) : code;
        int32_t* sums = get_sums(bin);
        uint64_t& word = touched[bin >> 6];
        if ((word >> (bin & 63) & 1) == 0) std::fill_n(sums, lanes_, 0);
        word |= uint64_t{1} << (bin & 63);
        kernels_.add(sums, bins.sums(i), layout.n_used());
        kernels_.add(histogram_.totals.data(), bins.sums(i), layout.n_used());
        const uint32_t count = layout.count_lane < 0
                                   ? bins.count(i)
                                   : static_cast<uint32_t>(bins.sums(i)[layout.count_lane]);
        histogram_.counts[bin] += count;
        n += count;
      }
    }
    set_common_bin(number, n, touched);
    return n;
  }

  void begin_bins(int64_t number) {
    std::fill_n(get_sums(0), lanes_, 0);  // the scan always reads the first bin
    std::fill_n(get_sums(get_missing_bin(number)), lanes_, 0);
    std::fill_n(histogram_.totals.data(), lanes_, 0);
  }

  void set_common_bin(int64_t number, int64_t n, uint64_t* touched) {
    const int common = bins_.sparse_columns().common(number);
    for (int j = 0; j < lanes_; ++j) get_sums(common)[j] = node_.totals[j] - histogram_.totals[j];
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
    kernels_.build_sparse(entries, n, channels_, lanes_, kMissingCode, histogram_.sums.data(),
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
  SparseHistogram& histogram_;
  const bool is_separable_;
  double max_hessian_ = 0;  // of the entries that were summed last
  std::span<const SparseBinList> shared_;
  std::vector<int64_t> next_;  // next bin of each rank
};

}  // namespace

void find_best_sparse_splits(const Bins& bins, const SparseScanInput& input, const ScanNode& node,
                             ScanScratch& scratch, SparseHistogram& histogram, TileSplit* best,
                             int n_best) {
  for (int i = 0; i < n_best; ++i) best[i].reset(node);
  SparseScan scan(bins, input.channels, node, scratch, histogram);
  scan.run(input);
  scan.choose(best, n_best);
}

}  // namespace polyleaf
