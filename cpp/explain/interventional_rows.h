// Contributions by a linear leaf against the rows of a background.
//
// A mixture of two rows takes some features from the one and the rest from the other. A linear leaf
// pays out what the mixture's own values say, so rows of the background cannot be counted by
// pattern: each is looked at, with each set of regressors that both rows hold. The work grows with
// the number of rows explained times those of the background.
//
// Owns: mixtures of one row and those of the background in one leaf. Must not know: tiles, trees,
// outputs by name.
#pragma once
#include <cstdint>
#include <vector>

#include "explain/shapley_weights.h"

namespace polyleaf {

// Payloads of one linear leaf for n_outputs outputs: weights [entry][output], bounds a number an
// output.
struct InterventionalLeaf {
  int32_t n_features, n_entries, n_outputs;
  const int32_t* regressors;  // of each entry: which of the path's features it is
  const float* centre;        // of each entry
  const float *weights, *intercept, *lower, *upper;
  int64_t stride;  // of weights
};

// One row in one leaf: what it holds, and of each entry its value less the centre, 0 where that is
// missing.
struct LeafRow {
  uint64_t pattern;
  const double* shifts;
};

class InterventionalRows {
 public:
  // Adds to contributions[term * n_outputs + output] those of the explained row mixed with the
  // other. `share`: of the other row in the background. Throws std::invalid_argument where there
  // are too many regressors that both hold.
  void add(const InterventionalLeaf& leaf, const LeafRow& explained, const LeafRow& other,
           double share, bool pairs, const ShapleyWeights& weights, double* contributions);

 private:
  void find_free_entries(const InterventionalLeaf& leaf, const LeafRow& explained,
                         const LeafRow& other);
  void compute_leaf_values(const InterventionalLeaf& leaf, const LeafRow& explained,
                           const LeafRow& other, size_t set);
  int32_t find_bit(int32_t entry) const;

  std::vector<int32_t> free_;  // entries of the regressors that both rows hold
  std::vector<double> leaf_values_;
  std::vector<int8_t> side_;  // of each feature: 1 has to be known, -1 must not, 0 does not matter
};

}  // namespace polyleaf
