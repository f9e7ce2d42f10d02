#include "explain/interventional_rows.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "explain/clipped_linear_shap.h"

namespace polyleaf {

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
