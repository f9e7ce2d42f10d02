// SHAP values of a linear leaf against a background data set.
//
// A mixture of two rows takes some features from one and the rest from the other. A linear leaf
// evaluates the mixture's own values, so background rows cannot be grouped by pattern: each is
// combined with each set of regressors that both rows satisfy. Work grows with the number of
// explained rows times background rows.
#pragma once
#include <cstdint>
#include <vector>

#include "explain/shapley_weights.h"

namespace polyleaf {

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
