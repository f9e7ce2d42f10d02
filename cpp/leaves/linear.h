// Linear leaves: one Newton step per leaf, linear in a few raw features (GBDT-PL eq. 6), from sums
// that do not depend on the order or distribution of rows (fixed_point.h).
//
// Regressors are centred on the leaf's own rows, so the intercept equals the value of a constant
// leaf: with an infinite penalty on slopes a linear leaf is the constant leaf. A regressor that is
// nearly determined by the previous ones is dropped.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "base/context.h"
#include "base/matrix_view.h"
#include "base/settings.h"
#include "data/linear_table.h"
#include "data/sample.h"
#include "grower/tree.h"
#include "leaves/leaf_kinds.h"

namespace polyleaf {

// Regressors of every leaf, in the order in which its path from the root splits on them.
struct Regressors {
  std::vector<int64_t> begin;  // leaf l: features[begin[l]] .. features[begin[l + 1] - 1]
  std::vector<int32_t> features;
  int64_t count(int64_t leaf) const { return begin[leaf + 1] - begin[leaf]; }
};

// Return the first distinct features on each leaf's path that can be regressors, at most
// `max_regressors` (section 4.2).
Regressors path_regressors(const Tree& tree, const LinearTable& table, int32_t max_regressors);

// g, h and features of all rows; h: 1 column, or one per output; none: Hessian 1.
std::shared_ptr<LinearLeaves> fit_linear_leaves(
    MatrixView<const float> g, MatrixView<const float> h, const RowSample& sample,
    const int32_t* leaf_of_row, const Tree& tree, const FeatureMatrix& features,
    const LinearTable& table, const LinearLeafConfig& config, const Context& context);

}  // namespace polyleaf
