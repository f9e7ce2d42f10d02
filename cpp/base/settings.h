// What a user sets, in the form that the core reads: how a tree grows, what makes a split good,
// what bounds the step of a leaf. No field has a default: parameters are declared in Python, once,
// and a field that nobody sets is an error of whoever builds the struct (by field name, never by
// position).
//
// Owns: the meaning of these fields. Must not know: who reads them.
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
  int block_size;  // full Hessian: outputs that a node solves for, those of largest gradient; 0:
                   // all
  int leaf_k;      // sparse leaves: outputs of a leaf; 0: all
  bool shared_support;  // sparse leaves: the two children of a node hold the same outputs

  // As many outputs as there are is a dense leaf.
  bool is_topk(int n_outputs) const { return leaf_k > 0 && leaf_k < n_outputs; }
};

struct GrowConfig {
  SplitConfig split;
  int32_t max_leaves;
  int32_t max_depth;  // -1: no limit
  bool level_wise;
  bool post_prune;  // split whatever the gain, and cut back at the end
  double colsample_bynode;
  uint64_t seed;
  size_t histogram_memory;     // bytes of kept histograms
  std::vector<float> factors;  // of what features gain, where they compete; empty: all 1

  // What the best split on a feature, whose children are worth `sum`, competes by with those of
  // others; of_node: what the node is worth by itself.
  template <class T>
  T penalised_gain(int feature, T sum, T of_node) const {
    return factors.empty()
               ? sum
               : polyleaf::penalised_gain(static_cast<T>(factors[feature]), sum, of_node);
  }
};

struct LeafConfig {
  double reg_lambda, reg_alpha, max_delta_step, learning_rate;
  int block_size;  // full Hessian: outputs that a leaf solves for, those of largest gradient; 0:
                   // all
};

// Of leaves that are linear in some features.
struct LinearLeafConfig {
  double reg_lambda;     // on the intercept
  double linear_lambda;  // on slopes, per standard deviation of the feature
  double learning_rate;
  int32_t max_regressors;  // features that a leaf may be linear in
  bool clip;               // hold payloads within those of the leaf's own rows
};

// Of splits that look ahead to such leaves.
struct LinearConfig {
  bool full;               // false: half-additive
  int32_t max_regressors;  // as in LinearLeafConfig
  double linear_lambda;    // as in LinearLeafConfig
};

}  // namespace polyleaf
