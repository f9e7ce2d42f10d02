#include "pattern_counts.h"

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

// Counts of the supersets of every pattern, by their size: [size][pattern].
class SupersetCounts {
 public:
  SupersetCounts(int32_t n_features, const std::vector<uint64_t>& patterns,
                 const std::vector<int64_t>& counts)
      : size_(size_t{1} << n_features), counts_((n_features + 1) * size_, 0) {
    for (size_t i = 0; i < patterns.size(); ++i)
      counts_[std::popcount(patterns[i]) * size_ + patterns[i]] = counts[i];
    for (int32_t number = 0; number <= n_features; ++number) {
      int64_t* of = counts_.data() + number * size_;
      for (size_t bit = 1; bit < size_; bit <<= 1)
        for (size_t p = 0; p < size_; ++p)
          if ((p & bit) == 0) of[p] += of[p | bit];
    }
  }
  int64_t operator()(int32_t number, uint64_t pattern) const { return counts_[number * size_ + pattern]; }

 private:
  size_t size_;
  std::vector<int64_t> counts_;
};

}  // namespace

PatternCounts::PatternCounts(int32_t n_features) : n_features_(n_features), n_rows_(0) {
  if (n_features <= kTableBits) counts_.assign(size_t{1} << n_features, 0);
}

void PatternCounts::close() {
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

uint64_t PatternCounts::everything() const {
  return n_features_ == 64 ? ~uint64_t{0} : (uint64_t{1} << n_features_) - 1;
}

double PatternCounts::share_of_all() const {
  const bool held = !patterns_.empty() && patterns_.back() == everything();
  return held ? static_cast<double>(counts_.back()) / static_cast<double>(n_rows_) : 0.0;
}

void PatternCounts::count(uint64_t pattern, bool pairs, Mixable& found) const {
  const int32_t n = n_features_, sizes = n + 1;
  found.all.assign(sizes, 0);
  found.without.assign(static_cast<size_t>(n) * sizes, 0);
  if (pairs) found.without_both.assign(static_cast<size_t>(n) * (n - 1) / 2 * sizes, 0);
  const uint64_t needed = everything() & ~pattern;
  for (size_t row = 0; row < patterns_.size(); ++row) {
    if ((patterns_[row] & needed) != needed) continue;
    const int32_t number = std::popcount(patterns_[row]);
    found.all[number] += counts_[row];
    for (uint64_t left = pattern & ~patterns_[row]; left != 0; left &= left - 1) {
      const int32_t i = std::countr_zero(left);
      found.without[i * sizes + number] += counts_[row];
      for (uint64_t other = pairs ? left & (left - 1) : 0; other != 0; other &= other - 1)
        found.without_both[pair_index(i, std::countr_zero(other), n) * sizes + number] += counts_[row];
    }
  }
}

void PatternCounts::write(uint64_t pattern, bool pairs, const CoalitionWeights& weights, const Mixable& found,
                          float* coefficients, int64_t step) const {
  const int32_t n = n_features_, sizes = n + 1, out = n - std::popcount(pattern);
  // Of a row of the background that holds `number` features, n - number are the explained row's alone.
  const auto sum = [&](const int64_t* counts, int32_t fewer_in, int32_t fewer_out) {
    double total = 0.0;
    for (int32_t number = out; number <= n; ++number)
      total += static_cast<double>(counts[number]) * weights(n - number - fewer_in, out - fewer_out);
    return total / static_cast<double>(n_rows_);
  };
  const double of_absent = -sum(found.all.data(), 0, 1);
  for (int32_t i = 0; i < n; ++i)
    coefficients[i * step] =
        static_cast<float>(has(pattern, i) ? sum(found.without.data() + i * sizes, 1, 0) : of_absent);
  if (!pairs) return;
  const double of_absent_pair = sum(found.all.data(), 0, 2);
  float* to = coefficients + n * step;
  for (int32_t i = 0; i < n; ++i)
    for (int32_t j = i + 1; j < n; ++j, to += step) {
      double value = of_absent_pair;
      if (has(pattern, i) && has(pattern, j))
        value = sum(found.without_both.data() + pair_index(i, j, n) * sizes, 2, 0);
      else if (has(pattern, i) || has(pattern, j))
        value = -sum(found.without.data() + (has(pattern, i) ? i : j) * sizes, 1, 1);
      *to = static_cast<float>(value);
    }
}

void PatternCounts::coefficients(uint64_t pattern, bool pairs, const CoalitionWeights& weights,
                                 float* coefficients, int64_t step) const {
  Mixable found;
  count(pattern, pairs, found);
  write(pattern, pairs, weights, found, coefficients, step);
}

void PatternCounts::fill_table(bool pairs, const CoalitionWeights& weights, float* table,
                               int64_t step) const {
  const int32_t n = n_features_, sizes = n + 1;
  const SupersetCounts supersets(n, patterns_, counts_);
  Mixable found;
  found.all.resize(sizes);
  found.without.resize(static_cast<size_t>(n) * sizes);
  if (pairs) found.without_both.resize(static_cast<size_t>(n) * (n - 1) / 2 * sizes);
  for (uint64_t pattern = 0; pattern <= everything(); ++pattern) {
    const uint64_t needed = everything() & ~pattern;
    for (int32_t number = 0; number <= n; ++number) {
      const auto with = [&](uint64_t more) { return supersets(number, needed | more); };
      const int64_t all = found.all[number] = with(0);
      for (int32_t i = 0; i < n; ++i) {
        const uint64_t bit = uint64_t{1} << i;
        found.without[i * sizes + number] = all - with(bit);
        for (int32_t j = i + 1; pairs && j < n; ++j) {
          const uint64_t other = uint64_t{1} << j;
          found.without_both[pair_index(i, j, n) * sizes + number] =
              all - with(bit) - with(other) + with(bit | other);
        }
      }
    }
    write(pattern, pairs, weights, found, table + pattern, step);
  }
}

}  // namespace polyleaf
