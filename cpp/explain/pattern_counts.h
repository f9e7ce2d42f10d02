// How many rows of a background hold which features of a leaf's path, and the coefficients that
// follow.
//
// A row of the background and the row to be explained decide together whether a mixture of both is
// in the leaf: the mixture has to take from the explained row what only that holds, and from the
// other what only that holds. So a coefficient is a sum over the patterns of the background.
// Patterns are counted by size first; counts are integers, so a table of all patterns and a walk
// through those that occur give the same bits.
//
// Owns: the counts. Must not know: leaf_values, features by name, tiles.
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
  // One row of the background.
  void add(uint64_t pattern) {
    ++n_rows_;
    if (n_features_ <= kTableBits)
      ++counts_[pattern];
    else
      patterns_.push_back(pattern);
  }
  // After the last row, before anything below.
  void finish();

  int64_t n_patterns() const { return static_cast<int64_t>(patterns_.size()); }
  // Coefficients of a row with this pattern: the term t at coefficients[t * step].
  void coefficients(uint64_t pattern, bool pairs, const ShapleyWeights& weights,
                    float* coefficients, int64_t step) const;
  // The same for every pattern: the term t of pattern p at table[t * step + p].
  void fill_table(bool pairs, const ShapleyWeights& weights, float* table, int64_t step) const;

 private:
  // Rows of the background that hold all features of a set, by the number of features that they
  // hold.
  struct SupersetTotals {
    std::vector<int64_t> absent_counts;  // the features that the explained row does not hold
    // [... * (n_features + 1) + number]: these and feature i; these and i and j (i < j). Only of
    // features that it holds.
    std::vector<int64_t> single_counts, pair_counts;
  };
  uint64_t all_features() const;
  SupersetTotals count(uint64_t pattern, bool pairs) const;

  int32_t n_features_;
  int64_t n_rows_;
  std::vector<uint64_t> patterns_;  // that occur, ascending; until closed: of all rows, or none
  std::vector<int64_t> counts_;     // of these; until closed: of all patterns there can be, or none
};

}  // namespace polyleaf
