// SHAP values of linear leaves.
#pragma once
#include <cstdint>
#include <vector>

#include "explain/kernels/shap_kernels.h"
#include "explain/shapley_weights.h"

namespace polyleaf {

// SHAP values of a linear leaf for a row whose value may be clipped at the leaf's bounds.
//
// An unknown regressor counts as the leaf's centre, like a missing one, and the sum over the known
// ones is clipped to the bounds. If the bounds are reached for some sets of known regressors, the
// value is no longer additive, so all 2^m sets of the m regressors present in the row are
// evaluated.

constexpr int32_t kMaxClippedRegressors = 16;

// Value of one output: clip(intercept + sum of the slopes of known regressors, lower, upper).
struct ClippedLinearFunction {
  double intercept, lower, upper;
  // Weight times distance from the centre, for the regressors passed to set_row.
  std::vector<double> slopes;
};

class ClippedLinearShap {
 public:
  // Set a row that satisfies feature j where held[j] is set; regressors: features with non-zero
  // slopes. Throws std::invalid_argument if there are more than kMaxClippedRegressors.
  void set_row(const PathProduct& product, const std::vector<uint8_t>& held,
               const std::vector<int32_t>& regressors);
  // contributions[term]: contribution of the known regressors' change of the leaf value.
  void find(const ClippedLinearFunction& leaf_value, std::vector<double>& contributions);

 private:
  void add_point(const PathProduct& product, double at, double weight);
  void multiply_others(const PathProduct& product);
  double* sums(int32_t term) { return coefficients_.data() + static_cast<size_t>(term) * n_sets_; }

  int32_t n_terms_ = 0;
  size_t n_sets_ = 0;
  std::vector<uint8_t> held_;
  // Bit of each feature in set numbers; -1: not a regressor.
  std::vector<int32_t> regressors_, feature_bits_;
  std::vector<double> coefficients_;  // [term][set]
  std::vector<double> factors_, sets_, others_, leaf_values_;
};

// SHAP values of a linear leaf against a background data set.
//
// A mixture of two rows takes some features from one and the rest from the other. A linear leaf
// evaluates the mixture's own values, so background rows cannot be grouped by pattern: each is
// combined with each set of regressors that both rows satisfy. Work grows with the number of
// explained rows times background rows.

// Values of one linear leaf for n_outputs outputs: weights [entry][output], bounds per output.
struct InterventionalLeaf {
  int32_t n_features, n_entries, n_outputs;
  const int32_t* regressors;  // path feature of each entry
  const float* centre;        // centre of each entry
  const float *weights, *intercept, *lower, *upper;
  int64_t stride;  // stride of the weights
};

// One row in one leaf: the pattern of satisfied features, and for each entry the value minus the
// centre (0 if missing).
struct LeafRow {
  uint64_t pattern;
  const double* shifts;
};

class InterventionalRows {
 public:
  // Add the contributions of mixtures of both rows to contributions[term * n_outputs + output].
  // `share`: weight of the background row. Throws std::invalid_argument if both rows satisfy too
  // many regressors.
  void add(const InterventionalLeaf& leaf, const LeafRow& explained, const LeafRow& other,
           double share, bool pairs, const ShapleyWeights& weights, double* contributions);

 private:
  void find_free_entries(const InterventionalLeaf& leaf, const LeafRow& explained,
                         const LeafRow& other);
  void compute_leaf_values(const InterventionalLeaf& leaf, const LeafRow& explained,
                           const LeafRow& other, size_t set);
  int32_t find_bit(int32_t entry) const;

  std::vector<int32_t> free_;  // entries of regressors that both rows satisfy
  std::vector<double> leaf_values_;
  std::vector<int8_t> side_;  // per feature: 1 must be known, -1 must be unknown, 0 does not matter
};

}  // namespace polyleaf
