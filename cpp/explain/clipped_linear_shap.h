// SHAP values of a linear leaf for a row whose value may be clipped at the leaf's bounds.
//
// An unknown regressor counts as the leaf's centre, like a missing one, and the sum over the known
// ones is clipped to the bounds. If the bounds are reached for some sets of known regressors, the
// value is no longer additive, so all 2^m sets of the m regressors present in the row are
// evaluated.
#pragma once
#include <cstdint>
#include <vector>

#include "explain/kernels/shap_kernels.h"

namespace polyleaf {

constexpr int32_t kMaxClippedRegressors = 16;

// Value of one output: clip(intercept + sum of the slopes of known regressors, lower, upper).
struct ClippedLinearFunction {
  double intercept, lower, upper;
  std::vector<double>
      slopes;  // weight times distance from the centre, for the regressors passed to set_row
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
  std::vector<int32_t> regressors_,
      feature_bits_;                  // bit of each feature in set numbers; -1: not a regressor
  std::vector<double> coefficients_;  // [term][set]
  std::vector<double> factors_, sets_, others_, leaf_values_;
};

}  // namespace polyleaf
