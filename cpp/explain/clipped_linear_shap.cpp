#include "explain/clipped_linear_shap.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "explain/shapley_weights.h"

namespace polyleaf {

void ClippedSlopes::set_row(const PathProduct& game, const std::vector<uint8_t>& held,
                            const std::vector<int32_t>& regressors) {
  if (regressors.size() > kMostClippedRegressors)
    throw std::invalid_argument(
        "A linear leaf has " + std::to_string(regressors.size()) +
        " regressors and bounds that a payload meets: its contributions take a look at every set "
        "of them, "
        "and " +
        std::to_string(kMostClippedRegressors) +
        " are the most. Train with fewer linear_features, or with linear_extrapolation=\"none\".");
  held_ = held;
  regressors_ = regressors;
  bit_of_.assign(game.n_features, -1);
  for (size_t i = 0; i < regressors.size(); ++i) bit_of_[regressors[i]] = static_cast<int32_t>(i);
  n_terms_ = n_terms(game.n_features, game.pairs);
  n_sets_ = size_t{1} << regressors.size();
  coefficients_.assign(n_terms_ * n_sets_, 0.0);
  for (int32_t q = 0; q < game.n_points; ++q) add_point(game, game.at[q], game.weight[q]);
}

// others_[term]: the product of the factors of all features that are neither the term's nor
// regressors, times what the term's own features change.
void ClippedSlopes::multiply_others(const PathProduct& game) {
  others_.assign(n_terms_, 1.0);
  const auto change = [&](int32_t j) {
    return bit_of_[j] >= 0 ? 1.0 : (held_[j] != 0 ? 1.0 : 0.0) - game.shares[j];
  };
  const auto product = [&](int32_t i, int32_t j) {
    double result = change(i) * (j < 0 ? 1.0 : change(j));
    for (int32_t f = 0; f < game.n_features; ++f)
      if (f != i && f != j && bit_of_[f] < 0) result *= factors_[f];
    return result;
  };
  int32_t term = 0;
  for (int32_t i = 0; i < game.n_features; ++i) others_[term++] = product(i, -1);
  if (!game.pairs) return;
  for (int32_t i = 0; i < game.n_features; ++i)
    for (int32_t j = i + 1; j < game.n_features; ++j) others_[term++] = product(i, j);
}

void ClippedSlopes::add_point(const PathProduct& game, double at, double weight) {
  factors_.resize(game.n_features);
  for (int32_t j = 0; j < game.n_features; ++j)
    factors_[j] = (1.0 - at) * game.shares[j] + (held_[j] != 0 ? at : 0.0);
  multiply_others(game);
  sets_.assign(n_sets_, weight);
  for (size_t set = 0; set < n_sets_; ++set)
    for (size_t i = 0; i < regressors_.size(); ++i)
      sets_[set] *= set >> i & 1 ? at : (1.0 - at) * game.shares[regressors_[i]];
  // How much likelier a set of known regressors becomes by a regressor's being known.
  const double grows = 1.0 / at, falls = -1.0 / (1.0 - at);
  const auto change = [&](int32_t bit, size_t set) {
    return bit < 0 ? 1.0 : set >> bit & 1 ? grows : falls;
  };
  int32_t term = 0;
  const auto add = [&](int32_t i, int32_t j) {
    const int32_t bit = bit_of_[i], other_bit = j < 0 ? -1 : bit_of_[j];
    double* to = sums(term);
    for (size_t set = 0; set < n_sets_; ++set)
      to[set] += others_[term] * sets_[set] * change(bit, set) * change(other_bit, set);
    ++term;
  };
  for (int32_t i = 0; i < game.n_features; ++i) add(i, -1);
  if (!game.pairs) return;
  for (int32_t i = 0; i < game.n_features; ++i)
    for (int32_t j = i + 1; j < game.n_features; ++j) add(i, j);
}

void ClippedSlopes::find(const ClippedPayload& payload, std::vector<double>& contributions) {
  const auto clip = [&](double value) {
    return std::min(std::max(value, payload.lower), payload.upper);
  };
  payloads_.assign(n_sets_, payload.intercept);
  for (size_t set = 0; set < n_sets_; ++set)
    for (size_t i = 0; i < regressors_.size(); ++i)
      if (set >> i & 1) payloads_[set] += payload.slopes[i];
  for (double& value : payloads_) value = clip(value) - clip(payload.intercept);
  contributions.assign(n_terms_, 0.0);
  for (int32_t term = 0; term < n_terms_; ++term)
    for (size_t set = 0; set < n_sets_; ++set)
      contributions[term] += sums(term)[set] * payloads_[set];
}

}  // namespace polyleaf
