#include "explain/linear_shap.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "explain/shapley_weights.h"

namespace polyleaf {

void ClippedLinearShap::set_row(const PathProduct& path, const std::vector<uint8_t>& held,
                                const std::vector<int32_t>& regressors) {
  if (regressors.size() > kMaxClippedRegressors)
    throw std::invalid_argument(
        "A linear leaf has " + std::to_string(regressors.size()) +
        " regressors and values that reach its bounds; SHAP values support at most " +
        std::to_string(kMaxClippedRegressors) +
        " of them. Train with fewer linear_features, or with linear_extrapolation=\"none\".");
  held_ = held;
  regressors_ = regressors;
  feature_bits_.assign(path.n_features, -1);
  for (size_t i = 0; i < regressors.size(); ++i)
    feature_bits_[regressors[i]] = static_cast<int32_t>(i);
  n_terms_ = n_terms(path.n_features, path.pairs);
  n_sets_ = size_t{1} << regressors.size();
  coefficients_.assign(n_terms_ * n_sets_, 0.0);
  for (int32_t q = 0; q < path.n_points; ++q) add_point(path, path.at[q], path.weight[q]);
}

// others_[term]: product of the factors of all features that are neither the term's nor regressors,
// times the change by the term's own features.
void ClippedLinearShap::multiply_others(const PathProduct& path) {
  others_.assign(n_terms_, 1.0);
  const auto change = [&](int32_t j) {
    return feature_bits_[j] >= 0 ? 1.0 : (held_[j] != 0 ? 1.0 : 0.0) - path.shares[j];
  };
  const auto product = [&](int32_t i, int32_t j) {
    double result = change(i) * (j < 0 ? 1.0 : change(j));
    for (int32_t f = 0; f < path.n_features; ++f)
      if (f != i && f != j && feature_bits_[f] < 0) result *= factors_[f];
    return result;
  };
  int32_t term = 0;
  for (int32_t i = 0; i < path.n_features; ++i) others_[term++] = product(i, -1);
  if (!path.pairs) return;
  for (int32_t i = 0; i < path.n_features; ++i)
    for (int32_t j = i + 1; j < path.n_features; ++j) others_[term++] = product(i, j);
}

void ClippedLinearShap::add_point(const PathProduct& path, double at, double weight) {
  factors_.resize(path.n_features);
  for (int32_t j = 0; j < path.n_features; ++j)
    factors_[j] = (1.0 - at) * path.shares[j] + (held_[j] != 0 ? at : 0.0);
  multiply_others(path);
  sets_.assign(n_sets_, weight);
  for (size_t set = 0; set < n_sets_; ++set)
    for (size_t i = 0; i < regressors_.size(); ++i)
      sets_[set] *= set >> i & 1 ? at : (1.0 - at) * path.shares[regressors_[i]];
  // Change of the probability of a set of known regressors when one more regressor is known.
  const double grows = 1.0 / at, falls = -1.0 / (1.0 - at);
  const auto change = [&](int32_t bit, size_t set) {
    return bit < 0 ? 1.0 : set >> bit & 1 ? grows : falls;
  };
  int32_t term = 0;
  const auto add = [&](int32_t i, int32_t j) {
    const int32_t bit = feature_bits_[i], other_bit = j < 0 ? -1 : feature_bits_[j];
    double* to = sums(term);
    for (size_t set = 0; set < n_sets_; ++set)
      to[set] += others_[term] * sets_[set] * change(bit, set) * change(other_bit, set);
    ++term;
  };
  for (int32_t i = 0; i < path.n_features; ++i) add(i, -1);
  if (!path.pairs) return;
  for (int32_t i = 0; i < path.n_features; ++i)
    for (int32_t j = i + 1; j < path.n_features; ++j) add(i, j);
}

void ClippedLinearShap::find(const ClippedLinearFunction& leaf_value,
                             std::vector<double>& contributions) {
  const auto clip = [&](double value) {
    return std::min(std::max(value, leaf_value.lower), leaf_value.upper);
  };
  leaf_values_.assign(n_sets_, leaf_value.intercept);
  for (size_t set = 0; set < n_sets_; ++set)
    for (size_t i = 0; i < regressors_.size(); ++i)
      if (set >> i & 1) leaf_values_[set] += leaf_value.slopes[i];
  for (double& value : leaf_values_) value = clip(value) - clip(leaf_value.intercept);
  contributions.assign(n_terms_, 0.0);
  for (int32_t term = 0; term < n_terms_; ++term)
    for (size_t set = 0; set < n_sets_; ++set)
      contributions[term] += sums(term)[set] * leaf_values_[set];
}

void InterventionalRows::find_free_entries(const InterventionalLeaf& leaf, const LeafRow& explained,
                                           const LeafRow& other) {
  free_.clear();
  const uint64_t both = explained.pattern & other.pattern;
  for (int32_t e = 0; e < leaf.n_entries; ++e)
    if ((both >> leaf.regressors[e] & 1) != 0 && explained.shifts[e] != other.shifts[e])
      free_.push_back(e);
  if (free_.size() > kMaxClippedRegressors)
    throw std::invalid_argument(
        "A linear leaf has " + std::to_string(free_.size()) +
        " regressors that differ between a row and one of the background; its contributions take a "
        "look at "
        "every set of them, and " +
        std::to_string(kMaxClippedRegressors) +
        " are the most. Train with fewer linear_features, or explain without a background.");
}

int32_t InterventionalRows::find_bit(int32_t entry) const {
  const auto at = std::find(free_.begin(), free_.end(), entry);
  return at == free_.end() ? -1 : static_cast<int32_t>(at - free_.begin());
}

// Compute the values of the mixture that takes the free regressors in `set` from the explained row.
void InterventionalRows::compute_leaf_values(const InterventionalLeaf& leaf,
                                             const LeafRow& explained, const LeafRow& other,
                                             size_t set) {
  leaf_values_.assign(leaf.intercept, leaf.intercept + leaf.n_outputs);
  for (int32_t e = 0; e < leaf.n_entries; ++e) {
    const int32_t bit = find_bit(e);
    const bool own =
        bit >= 0 ? (set >> bit & 1) != 0 : (explained.pattern >> leaf.regressors[e] & 1) != 0;
    const double shift = own ? explained.shifts[e] : other.shifts[e];
    const float* weights = leaf.weights + e * leaf.stride;
    for (int32_t k = 0; k < leaf.n_outputs; ++k)
      leaf_values_[k] += static_cast<double>(weights[k]) * shift;
  }
  for (int32_t k = 0; k < leaf.n_outputs; ++k)
    leaf_values_[k] = std::min(std::max(leaf_values_[k], static_cast<double>(leaf.lower[k])),
                               static_cast<double>(leaf.upper[k]));
}

void InterventionalRows::add(const InterventionalLeaf& leaf, const LeafRow& explained,
                             const LeafRow& other, double share, bool pairs,
                             const ShapleyWeights& weights, double* contributions) {
  const uint64_t everything =
      leaf.n_features == 64 ? ~uint64_t{0} : (uint64_t{1} << leaf.n_features) - 1;
  if ((explained.pattern | other.pattern) != everything) return;  // no mixture reaches the leaf
  find_free_entries(leaf, explained, other);
  side_.resize(leaf.n_features);
  for (size_t set = 0; set < size_t{1} << free_.size(); ++set) {
    for (int32_t j = 0; j < leaf.n_features; ++j)
      side_[j] = static_cast<int8_t>((explained.pattern >> j & 1) - (other.pattern >> j & 1));
    for (size_t i = 0; i < free_.size(); ++i)
      side_[leaf.regressors[free_[i]]] = set >> i & 1 ? 1 : -1;
    const auto in = static_cast<int32_t>(std::count(side_.begin(), side_.end(), 1));
    const auto out = static_cast<int32_t>(std::count(side_.begin(), side_.end(), -1));
    compute_leaf_values(leaf, explained, other, set);
    double* to = contributions;
    const auto add_term = [&](int32_t i, int32_t j) {
      const int sign = side_[i] * (j < 0 ? 1 : side_[j]);
      const int32_t fewer_in = (side_[i] > 0) + (j >= 0 && side_[j] > 0),
                    fewer_out = (j < 0 ? 1 : 2) - fewer_in;
      const double weight =
          sign == 0 ? 0.0 : share * sign * weights(in - fewer_in, out - fewer_out);
      if (weight != 0.0)
        for (int32_t k = 0; k < leaf.n_outputs; ++k) to[k] += weight * leaf_values_[k];
      to += leaf.n_outputs;
    };
    for (int32_t i = 0; i < leaf.n_features; ++i) add_term(i, -1);
    for (int32_t i = 0; pairs && i < leaf.n_features; ++i)
      for (int32_t j = i + 1; j < leaf.n_features; ++j) add_term(i, j);
  }
}

}  // namespace polyleaf
