// User parameters in the form that the core reads: tree growth, split scores, leaf steps. No field
// has a default: parameters are declared once, in Python. Structs are built by field name, never by
// position.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/penalised_gain.h"

namespace polyleaf {

struct SplitConfig {
  float reg_lambda, reg_alpha, max_delta_step, min_child_weight;
  int32_t min_child_samples;  // at least 1
  double min_split_gain;
  int max_cat_to_onehot;
  double cat_smooth;
  int block_size;  // full Hessian: outputs with the largest gradients that a node solves for; 0:
                   // all
  int leaf_k;      // sparse leaves: outputs of a leaf; 0: all
  bool shared_support;  // sparse leaves: both children of a node hold the same outputs

  // Return whether leaves hold fewer outputs than there are.
  bool is_topk(int n_outputs) const { return leaf_k > 0 && leaf_k < n_outputs; }
};

struct GrowConfig {
  SplitConfig split;
  int32_t max_leaves;
  int32_t max_depth;  // -1: no limit
  bool level_wise;
  bool post_prune;  // split whatever the gain, and prune at the end
  double colsample_bynode;
  uint64_t seed;
  size_t histogram_memory;     // bytes of kept histograms
  std::vector<float> factors;  // per feature, of the gain when features are compared; empty: all 1

  // Return the gain by which the best split on a feature is compared with those on other features.
  // sum: score of the children; node_sum: score of the node itself.
  template <class T>
  T penalised_gain(int feature, T sum, T node_sum) const {
    return factors.empty()
               ? sum
               : polyleaf::penalised_gain(static_cast<T>(factors[feature]), sum, node_sum);
  }
};

struct LeafConfig {
  double reg_lambda, reg_alpha, max_delta_step, learning_rate;
  int block_size;  // full Hessian: outputs with the largest gradients that a leaf solves for; 0:
                   // all
};

// Configuration of leaves that are linear in some features.
struct LinearLeafConfig {
  double reg_lambda;     // of the intercept
  double linear_lambda;  // of slopes, per standard deviation of the feature
  double learning_rate;
  int32_t max_regressors;  // features that a leaf may be linear in
  bool clip;               // clip leaf values to the range of the leaf's own rows
};

// Configuration of splits that anticipate linear leaves.
struct LinearConfig {
  bool full;               // false: half-additive
  int32_t max_regressors;  // see LinearLeafConfig
  double linear_lambda;    // see LinearLeafConfig
};

}  // namespace polyleaf
