#include "explain/pattern_counts.h"

#include <algorithm>
#include <bit>

namespace polyleaf {
namespace {

bool has(uint64_t pattern, int32_t feature) {
  return pattern >> feature & 1;
}

int32_t pair_index(int32_t i, int32_t j, int32_t n) {  // i < j
  return i * (2 * n - i - 1) / 2 + (j - i - 1);
}

// Consider a background row that satisfies `number` of n features, among them a set of `size`: it
// contributes a game with n - number players in and `size` players out, minus the players removed
// here.
struct RemovedPlayers {
  int32_t in, out;
};

constexpr RemovedPlayers kSingleTerms[] = {{1, 0}, {1, 1}, {0, 1}};
constexpr RemovedPlayers kPairTerms[] = {{2, 0}, {2, 1}, {2, 2}, {1, 2}, {0, 2}};

// Return the total weight of such rows; counts[number * step] of them satisfy `number` features.
double weigh(const int64_t* counts, int64_t step, int32_t n, int32_t size, RemovedPlayers fewer,
             const ShapleyWeights& weights) {
  double total = 0.0;
  for (int32_t number = size; number <= n; ++number)
    total += static_cast<double>(counts[number * step]) *
             weights(n - number - fewer.in, size - fewer.out);
  return total;
}

// Write the coefficients of a row with this pattern. sum(fewer, i, j) sums over the background rows
// that satisfy all features that the row does not satisfy, and also i and j (-1: none).
template <class Sum>
void write_terms(int32_t n, uint64_t pattern, bool pairs, double n_rows, const Sum& sum,
                 float* coefficients, int64_t step) {
  const double absent_counts = -sum(RemovedPlayers{0, 1}, -1, -1) / n_rows,
               all = sum(RemovedPlayers{1, 0}, -1, -1);
  for (int32_t i = 0; i < n; ++i)
    coefficients[i * step] = static_cast<float>(
        has(pattern, i) ? (all - sum(RemovedPlayers{1, 1}, i, -1)) / n_rows : absent_counts);
  if (!pairs) return;
  float* to = coefficients + n * step;
  for (int32_t i = 0; i < n; ++i)
    for (int32_t j = i + 1; j < n; ++j, to += step) {
      const int32_t held = has(pattern, i) ? i : j;
      double value;
      if (!has(pattern, held))
        value = sum(RemovedPlayers{0, 2}, -1, -1);
      else if (!has(pattern, i) || !has(pattern, j))
        value = sum(RemovedPlayers{1, 2}, held, -1) - sum(RemovedPlayers{1, 1}, -1, -1);
      else
        value = (sum(RemovedPlayers{2, 0}, -1, -1) - sum(RemovedPlayers{2, 1}, i, -1)) -
                (sum(RemovedPlayers{2, 1}, j, -1) - sum(RemovedPlayers{2, 2}, i, j));
      *to = static_cast<float>(value / n_rows);
    }
}

// Number of background rows that satisfy all features of a set, for every set, by the number of
// features they satisfy.
class SupersetCounts {
 public:
  SupersetCounts(int32_t n_features, const std::vector<uint64_t>& patterns,
                 const std::vector<int64_t>& counts)
      : size_(size_t{1} << n_features), counts_((n_features + 1) * size_, 0) {
    for (size_t i = 0; i < patterns.size(); ++i)
      counts_[std::popcount(patterns[i]) * size_ + patterns[i]] = counts[i];
    for (int32_t number = 0; number <= n_features; ++number) {
      int64_t* set_counts = counts_.data() + number * size_;
      for (size_t bit = 1; bit < size_; bit <<= 1)
        for (size_t set = 0; set < size_; ++set)
          if ((set & bit) == 0) set_counts[set] += set_counts[set | bit];
    }
  }
  // Counts by number of features, step() apart.
  const int64_t* get(uint64_t set) const { return counts_.data() + set; }
  int64_t step() const { return static_cast<int64_t>(size_); }

 private:
  size_t size_;
  std::vector<int64_t> counts_;
};

}  // namespace

PatternCounts::PatternCounts(int32_t n_features) : n_features_(n_features), n_rows_(0) {
  if (n_features <= kTableBits) counts_.assign(size_t{1} << n_features, 0);
}

void PatternCounts::finish() {
  std::vector<uint64_t> patterns;
  std::vector<int64_t> counts;
  for (size_t pattern = 0; pattern < counts_.size(); ++pattern)
    if (counts_[pattern] > 0) {
      patterns.push_back(pattern);
      counts.push_back(counts_[pattern]);
    }
  std::sort(patterns_.begin(), patterns_.end());
  for (uint64_t pattern : patterns_) {
    if (patterns.empty() || patterns.back() != pattern) {
      patterns.push_back(pattern);
      counts.push_back(0);
    }
    ++counts.back();
  }
  patterns_.swap(patterns);
  counts_.swap(counts);
}

uint64_t PatternCounts::all_features() const {
  return n_features_ == 64 ? ~uint64_t{0} : (uint64_t{1} << n_features_) - 1;
}

PatternCounts::SupersetTotals PatternCounts::count(uint64_t pattern, bool pairs) const {
  const int32_t n = n_features_, sizes = n + 1;
  SupersetTotals found;
  found.absent_counts.assign(sizes, 0);
  found.single_counts.assign(static_cast<size_t>(n) * sizes, 0);
  if (pairs) found.pair_counts.assign(static_cast<size_t>(n) * (n - 1) / 2 * sizes, 0);
  const uint64_t needed = all_features() & ~pattern;
  for (size_t row = 0; row < patterns_.size(); ++row) {
    if ((patterns_[row] & needed) != needed) continue;
    const int32_t number = std::popcount(patterns_[row]);
    found.absent_counts[number] += counts_[row];
    for (uint64_t held = pattern & patterns_[row]; held != 0; held &= held - 1) {
      const int32_t i = std::countr_zero(held);
      found.single_counts[i * sizes + number] += counts_[row];
      for (uint64_t other = pairs ? held & (held - 1) : 0; other != 0; other &= other - 1)
        found.pair_counts[pair_index(i, std::countr_zero(other), n) * sizes + number] +=
            counts_[row];
    }
  }
  return found;
}

void PatternCounts::coefficients(uint64_t pattern, bool pairs, const ShapleyWeights& weights,
                                 float* coefficients, int64_t step) const {
  const SupersetTotals found = count(pattern, pairs);
  const int32_t n = n_features_, sizes = n + 1, absent = n - std::popcount(pattern);
  const auto sum = [&](RemovedPlayers fewer, int32_t i, int32_t j) {
    if (i < 0) return weigh(found.absent_counts.data(), 1, n, absent, fewer, weights);
    if (j < 0)
      return weigh(found.single_counts.data() + i * sizes, 1, n, absent + 1, fewer, weights);
    return weigh(found.pair_counts.data() + pair_index(i, j, n) * sizes, 1, n, absent + 2, fewer,
                 weights);
  };
  write_terms(n, pattern, pairs, static_cast<double>(n_rows_), sum, coefficients, step);
}

void PatternCounts::fill_table(bool pairs, const ShapleyWeights& weights, float* table,
                               int64_t step) const {
  const int32_t n = n_features_;
  const SupersetCounts supersets(n, patterns_, counts_);
  std::vector<double> sums[9];  // sums of every set, for each kind that is needed
  const auto kind = [](RemovedPlayers fewer) { return 3 * fewer.in + fewer.out; };
  const auto find = [&](RemovedPlayers fewer) {
    for (uint64_t set = 0; set <= all_features(); ++set)
      sums[kind(fewer)].push_back(
          weigh(supersets.get(set), supersets.step(), n, std::popcount(set), fewer, weights));
  };
  for (RemovedPlayers fewer : kSingleTerms) find(fewer);
  for (RemovedPlayers fewer : kPairTerms)
    if (pairs) find(fewer);
  for (uint64_t pattern = 0; pattern <= all_features(); ++pattern) {
    const uint64_t absent = all_features() & ~pattern;
    const auto sum = [&](RemovedPlayers fewer, int32_t i, int32_t j) {
      return sums[kind(fewer)]
                 [absent | (i < 0 ? 0 : uint64_t{1} << i) | (j < 0 ? 0 : uint64_t{1} << j)];
    };
    write_terms(n, pattern, pairs, static_cast<double>(n_rows_), sum, table + pattern, step);
  }
}

}  // namespace polyleaf
