// Counts of background rows by pattern (the set of path features that they satisfy), and the
// coefficients that follow.
//
// The explained row and a background row together decide which mixtures reach the leaf: a mixture
// must take from each row what only that row satisfies. So a coefficient is a sum over the
// background's patterns. Counts are integers grouped by size, so a table of all patterns and a loop
// over occurring patterns give the same bits.
#pragma once
#include <cstdint>
#include <vector>

#include "explain/kernels/shap_kernels.h"
#include "explain/shapley_weights.h"

namespace polyleaf {

constexpr int32_t kMaxPatternFeatures = 64;  // bits of a pattern

class PatternCounts {
 public:
  explicit PatternCounts(int32_t n_features);
  // Add one background row.
  void add(uint64_t pattern) {
    ++n_rows_;
    if (n_features_ <= kTableBits)
      ++counts_[pattern];
    else
      patterns_.push_back(pattern);
  }
  // Finish counting; required before the functions below.
  void finish();

  int64_t n_patterns() const { return static_cast<int64_t>(patterns_.size()); }
  // Write the coefficients of a row with this pattern: term t at coefficients[t * step].
  void coefficients(uint64_t pattern, bool pairs, const ShapleyWeights& weights,
                    float* coefficients, int64_t step) const;
  // Same for every pattern: term t of pattern p at table[t * step + p].
  void fill_table(bool pairs, const ShapleyWeights& weights, float* table, int64_t step) const;

 private:
  // Counts of background rows that satisfy all features of a set, by the number of features they
  // satisfy.
  struct SupersetTotals {
    std::vector<int64_t> absent_counts;  // features that the explained row does not satisfy
    // [... * (n_features + 1) + number]: additionally feature i, or i and j (i < j), among
    // those that the explained row satisfies.
    std::vector<int64_t> single_counts, pair_counts;
  };
  uint64_t all_features() const;
  SupersetTotals count(uint64_t pattern, bool pairs) const;

  int32_t n_features_;
  int64_t n_rows_;
  // occurring patterns, ascending; before finish(): of all rows, or none
  std::vector<uint64_t> patterns_;
  std::vector<int64_t> counts_;  // their counts; before finish(): of all possible patterns, or none
};

}  // namespace polyleaf
