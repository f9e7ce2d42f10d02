// Contributions by a linear leaf to a row whose leaf_value may leave the leaf's bounds.
//
// A regressor that is not known counts as the leaf's centre, as a missing one does, and whatever
// the known ones add up to is held within the bounds. Where the bounds are met for some of the sets
// of regressors that can be known, the leaf_value is no sum over regressors, and every such set is
// looked at: 2^m of them for the m regressors that the row holds.
//
// Owns: the sums over these sets. Must not know: outputs, tiles, whose row it is.
#pragma once
#include <cstdint>
#include <vector>

#include "explain/kernels/shap_kernels.h"

namespace polyleaf {

constexpr int32_t kMaxClippedRegressors = 16;

// Payloads of one output: clip(intercept + sum over the known regressors of slopes, lower, upper).
struct ClippedLinearFunction {
  double intercept, lower, upper;
  std::vector<double>
      slopes;  // of the regressors that set_row was given: weight times distance from the centre
};

class ClippedLinearShap {
 public:
  // A row that holds feature j where held[j] is set; regressors: features it holds whose slopes are
  // not 0. Throws std::invalid_argument where there are more than kMaxClippedRegressors.
  void set_row(const PathProduct& product, const std::vector<uint8_t>& held,
               const std::vector<int32_t>& regressors);
  // contributions[term]: of what known regressors change in the leaf_value.
  void find(const ClippedLinearFunction& leaf_value, std::vector<double>& contributions);

 private:
  void add_point(const PathProduct& product, double at, double weight);
  void multiply_others(const PathProduct& product);
  double* sums(int32_t term) { return coefficients_.data() + static_cast<size_t>(term) * n_sets_; }

  int32_t n_terms_ = 0;
  size_t n_sets_ = 0;
  std::vector<uint8_t> held_;
  std::vector<int32_t> regressors_,
      feature_bits_;  // bit of each feature in the numbers of sets; -1: no regressor
  std::vector<double> coefficients_;  // [term][set]
  std::vector<double> factors_, sets_, others_, leaf_values_;
};

}  // namespace polyleaf
