// Interface of split scores: what they read of a node and a feature, and the functions they
// provide. Each family of scores has one table of functions, compiled once per instruction set.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/isa.h"
#include "base/packed.h"
#include "base/settings.h"
#include "quantised_gradients/quantised_gradients.h"
#include "split_gain/monotone_constraints.h"

namespace polyleaf {

class LinearTable;

// Additional data of linear scores.
struct LinearScan {
  double slope_ridge = 0;      // of the slope of a candidate's feature
  std::vector<double> ridge;   // of the slopes of the node's own regressors
  std::vector<double> noise;   // rounding error of their second moments, per row
  std::vector<float> step;     // per lane
  std::vector<uint8_t> joins;  // flags of features that become regressors of the children
  const LinearTable* table = nullptr;
};

// A node as kernels see it: its totals, and the steps of its channels.
struct ScanNode {
  const SplitConfig* config;
  const ChannelLayout* layout;
  const float* gradient_step;  // K floats, followed by zeros
  const float* hessian_step;   // one float per Hessian lane, followed by zeros
  const int32_t* totals;       // `lanes` sums, followed by 16 readable ints
  int32_t count;
  float* workspace;                    // workspace_floats() of the layout
  const LinearScan* linear = nullptr;  // nullptr: constant leaves
  float prune_bound = 0;               // sparse leaves: see ScoreKernels
  // Monotone constraints of all features, and of the feature at hand, readable to the next sixteen
  // outputs. nullptr: none.
  const MonotoneConstraints* constraints = nullptr;
  const float* feature_constraints = nullptr;
  const OutputBounds* bounds = nullptr;         // output bounds of the node
  CategoricalOverfit categorical_overfit = {};  // correction of the gain of sorted categories
  // Gain factors of all features, the node's own score, and the feature at hand. nullptr: no
  // factors.
  const GrowConfig* factors = nullptr;
  float node_sum = 0;
  int feature = -1;

  // Return the gain by which the best candidate of the feature at hand is compared with others.
  float penalised_gain(float sum, float correction = 0) const {
    return factors == nullptr ? sum - correction
                              : factors->penalised_gain(feature, sum - correction, node_sum);
  }
  // Return the node with monotone constraints and bounds.
  ScanNode constrain(const MonotoneConstraints& all, const OutputBounds& output_bounds) const {
    ScanNode node = *this;
    node.constraints = &all;
    node.feature_constraints = all.unconstrained_row();
    node.bounds = &output_bounds;
    return node;
  }
  // Return the node with the constraints and the gain factor of a feature.
  ScanNode select_feature(int feature) const {
    ScanNode node = *this;
    node.feature = feature;
    if (constraints != nullptr) node.feature_constraints = constraints->row(feature);
    return node;
  }
  // Return the node without monotone constraints between its children.
  ScanNode unconstrained() const {
    ScanNode node = *this;
    if (constraints != nullptr) node.feature_constraints = constraints->unconstrained_row();
    return node;
  }
};

// Histogram of one feature in a node.
struct ScanFeature {
  const int32_t* sums;
  const uint32_t* counts;   // nullptr: the count lane holds them
  const uint64_t* touched;  // 256 bits, bins that may be non-empty; nullptr: any
  int n_bins;
  int missing;                    // index of the missing bin
  const double* means = nullptr;  // bin means, if the feature becomes a regressor of the children

  uint32_t count(const ChannelLayout& layout, int bin) const {
    return counts != nullptr
               ? counts[bin]
               : static_cast<uint32_t>(
                     sums[static_cast<int64_t>(bin) * layout.lanes + layout.count_lane]);
  }
  const int32_t* bin(const ChannelLayout& layout, int bin) const {
    return sums + static_cast<int64_t>(bin) * layout.lanes;
  }
};

struct NumericBest {
  float sum;  // -inf: no admissible candidate
  int32_t bin;
  int32_t missing_left;
};

struct ScanScratch {
  alignas(64) int32_t count[272], hessian[272], gradient[272];
  alignas(64) float left[272], right[272], sums[2][272];
  int32_t bins[272];
  int32_t* lanes;   // running sums when they do not fit registers: 32 * ceil(n_outputs / 16) ints
  double* moments;  // running sums of linear leaves: moment_doubles() of the layout
  std::vector<int32_t> category_sums;       // of sets of categories, one row of lanes each
  std::vector<double> category_deviations;  // workspace of CategoryKernels
  float best_so_far;  // sparse leaves: lower sums need not be computed; raised as better ones are
                      // found
};

// Functions of a score: one table for scores that are separable by output, and one each for leaves
// of few outputs, for a full Hessian and for linear leaves.
struct ScoreKernels {
  void (*scan_numeric)(const ScanNode& node, const ScanFeature& feature, ScanScratch& scratch,
                       NumericBest* best);
  // Return the score sum of a candidate from the sums of its left child; -inf if a child is too
  // light.
  float (*candidate_sum)(const ScanNode& node, const int32_t* left, int32_t left_count);
  float (*node_sum)(const ScanNode& node);
  // Return the Hessian of the node: sum over rows, mean over outputs.
  float (*node_hessian)(const ScanNode& node);
  // Write what each output adds to half of sum(candidate) - sum(node).
  void (*output_terms)(const ScanNode& node, const int32_t* left, int32_t left_count, float* out);
  // Sparse leaves (nullptr otherwise): return the least part of a sum over all outputs that no
  // children of the node can hold. -inf: not known.
  float (*prune_bound)(const ScanNode& node) = nullptr;
  // Monotone constraints (nullptr if not supported): write the tied value of both children per
  // output; NaN where each child has its own. `out` is writable to the next sixteen.
  void (*tied_values)(const ScanNode& node, const int32_t* left, int32_t left_count,
                      float* out) = nullptr;
  // Write what candidate_sum returns for n candidates whose left children are rows of `lanes` sums,
  // readable to the next 256. nullptr: not faster than one by one.
  void (*candidate_sums)(const ScanNode& node, const int32_t* left, const int32_t* left_counts,
                         int n, float* sums) = nullptr;
};
POLYLEAF_DECLARE_KERNELS(ScoreKernels, separable_scores)
POLYLEAF_DECLARE_KERNELS(ScoreKernels, topk_scores)
POLYLEAF_DECLARE_KERNELS(ScoreKernels, full_scores)
POLYLEAF_DECLARE_KERNELS(ScoreKernels,
                         linear_scores)  // without output_terms: see LinearKernels::solve

// Return whether leaves have one value per output, each with its own step: then score sums have one
// term per output.
inline bool are_separable(const ChannelLayout& layout, const SplitConfig& config) {
  return !layout.linear() && layout.hessian != HessianKind::full &&
         !config.is_topk(layout.n_outputs);
}
inline const ScoreKernels& select_score_kernels(const ChannelLayout& layout,
                                                const SplitConfig& config) {
  if (are_separable(layout, config)) return POLYLEAF_SELECT(separable_scores);
  if (layout.linear()) return POLYLEAF_SELECT(linear_scores);
  return layout.hessian == HessianKind::full ? POLYLEAF_SELECT(full_scores)
                                             : POLYLEAF_SELECT(topk_scores);
}
inline const ScoreKernels& select_score_kernels(const ScanNode& node) {
  return select_score_kernels(*node.layout, *node.config);
}

// Return the node with gain factors, if there are any.
inline ScanNode apply_gain_factors(ScanNode node, const GrowConfig& config) {
  if (config.factors.empty()) return node;
  node.factors = &config;
  node.node_sum = select_score_kernels(node).node_sum(node);
  return node;
}

// Workspace of a layout's scores for one thread.
inline size_t moment_doubles(const ChannelLayout& layout) {
  // Rows of 272 candidates: a product with x for every gradient, Hessian and regressor, a sum for
  // every lane.
  return layout.linear()
             ? 272 * static_cast<size_t>(layout.n_regressor_products() + 16 + layout.lanes)
             : 0;
}

inline size_t workspace_floats(const ChannelLayout& layout, const SplitConfig& config) {
  if (layout.linear()) return layout.lanes + 16;
  // Sixteen candidates: their sums as rows, the largest terms of both sides. One candidate: all
  // terms.
  if (config.is_topk(layout.n_outputs))
    return 16 * (static_cast<size_t>(layout.lanes) + 2 * static_cast<size_t>(layout.n_outputs)) +
           layout.lanes + 3 * static_cast<size_t>(layout.n_outputs) + 96;
  if (layout.hessian != HessianKind::full) return 0;
  const size_t k = layout.n_outputs, lanes = layout.lanes;
  // Sixteen candidates: their sums as rows and by lane, and one system of equations with its
  // solution.
  return 16 * (2 * lanes + packed_size(k) + 3 * k) + lanes + k + 64;
}

// Slopes of the best split of a search for linear leaves.
struct LinearKernels {
  // Write sums of products with the bin means, in units of the channels: g of every output, h x and
  // h x^2 (of every output if the Hessian is diagonal), hz of every regressor; over the bins up to
  // `last`, and over all.
  void (*products)(const ScanNode& node, const ScanFeature& feature, int last, double* left,
                   double* whole);
  // Solve one side. slopes (1 + p, K): of the split feature, then of the node's regressors; middle
  // (K): the feature's mean; terms (K): what each output adds to the score. `there`: sums over rows
  // whose feature is not missing; products nullptr: the feature is no regressor. Sums and products
  // are readable to the next eight.
  void (*solve)(const ScanNode& node, const int32_t* lanes, int32_t count, const int32_t* there,
                int32_t count_there, const double* products, double* slopes, double* middle,
                double* terms);
};
POLYLEAF_DECLARE_KERNELS(LinearKernels, linear_kernels)

}  // namespace polyleaf
