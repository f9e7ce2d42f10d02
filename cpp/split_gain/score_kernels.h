// The contract of scores: what the scan tells them of a node and of a feature, and what they
// answer. One table of functions for each family of scores, compiled once for each instruction set.
//
// Owns: these records and tables, and which scores a node asks for. Must not know: where histograms
// come from, rows, trees.
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

// What linear scores know of a node besides its channels (docs/linear-leaves.md).
struct LinearScan {
  double slope_ridge = 0;      // on the slope of a candidate's feature
  std::vector<double> ridge;   // on those of the node's own regressors
  std::vector<double> noise;   // what rounding may have taken from their second moments, per row
  std::vector<float> step;     // of every lane
  std::vector<uint8_t> joins;  // features that are regressors of the children when split on
  const LinearTable* table = nullptr;
};

// A node as the scan sees it: its totals, and how channels are to be read.
struct ScanNode {
  const SplitConfig* config;
  const ChannelLayout* layout;
  const float* gradient_step;  // K floats, zeros after them
  const float* hessian_step;   // one float per Hessian lane, zeros after them
  const int32_t* totals;       // `lanes` sums; 16 readable ints follow
  int32_t count;
  float* workspace;                    // workspace_floats() of the layout
  const LinearScan* linear = nullptr;  // nullptr: constant leaves
  float prune_bound = 0;               // sparse leaves: see ScoreKernels
  // Where values must obey directions: those of all features, and those of the feature at hand, for
  // each output and readable to the next sixteen. nullptr: all are free.
  const MonotoneConstraints* constraints = nullptr;
  const float* feature_constraints = nullptr;
  const OutputBounds* bounds = nullptr;  // the same: of the node
  CategoricalOverfit categorical_overfit =
      {};  // what is taken off where categories are put in order
  // Where features have factors: those of all, what the node is worth by itself, and that of the
  // feature at hand.
  const GrowConfig* factors = nullptr;
  float node_sum = 0;
  int feature = -1;

  // What the best candidate of the feature at hand competes by with those of others.
  float penalised_gain(float sum, float by_chance = 0) const {
    return factors == nullptr ? sum - by_chance
                              : factors->penalised_gain(feature, sum - by_chance, node_sum);
  }
  // The same, where values must obey these directions within these bounds.
  ScanNode constrain(const MonotoneConstraints& all, const OutputBounds& of_node) const {
    ScanNode node = *this;
    node.constraints = &all;
    node.feature_constraints = all.unconstrained_row();
    node.bounds = &of_node;
    return node;
  }
  // The same, where candidates split on this feature.
  ScanNode select_feature(int feature) const {
    ScanNode node = *this;
    node.feature = feature;
    if (constraints != nullptr) node.feature_constraints = constraints->row(feature);
    return node;
  }
  // The same, where the children need not obey each other.
  ScanNode unconstrained() const {
    ScanNode node = *this;
    if (constraints != nullptr) node.feature_constraints = constraints->unconstrained_row();
    return node;
  }
};

// A small node's rows in order of one feature's bins, in place of a histogram: order[start[b] + i]
// is the i-th row of bin b, as an index into `channels`.
struct RowsByBin {
  const int16_t* channels;
  const uint16_t* order;
  const uint32_t* start;
};

// One feature's histogram of that node, or its rows by bin.
struct ScanFeature {
  const int32_t* sums;
  const uint32_t* counts;   // nullptr: the count lane holds them
  const uint64_t* touched;  // 256 bits, bins that may be non-empty; nullptr: any
  int n_bins;
  int missing;                      // index of the missing bin
  const RowsByBin* rows = nullptr;  // set: `sums` is not, `counts` is
  const double* means = nullptr;    // of the bins, where the feature is a regressor of the children

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
  double* moments;  // the same for linear leaves: moment_doubles() of the layout
  float floor;      // sparse leaves: sums below need not be known; raised as larger ones are found
};

// What reads sums: one table for scores whose terms are separate by output, others for leaves that
// keep few of them, for full Hessian and for linear leaves.
struct ScoreKernels {
  void (*scan_numeric)(const ScanNode& node, const ScanFeature& feature, ScanScratch& scratch,
                       NumericBest* best);
  // Score sum of a candidate whose left child has these sums; -inf where a child is too light.
  float (*candidate_sum)(const ScanNode& node, const int32_t* left, int32_t left_count);
  float (*node_sum)(const ScanNode& node);
  // Hessian of the node: summed over rows, mean over outputs.
  float (*node_hessian)(const ScanNode& node);
  // What each output adds to half of sum(candidate) - sum(node), for the candidate chosen.
  void (*output_terms)(const ScanNode& node, const int32_t* left, int32_t left_count, float* out);
  // Sparse leaves (nullptr otherwise): what of a sum over all outputs no children of the node can
  // hold, at least. -inf: nothing is known.
  float (*prune_bound)(const ScanNode& node) = nullptr;
  // Where values must obey (nullptr where they cannot): the one value of both children, for each
  // output; NaN where each has its own. `out` is writable to the next sixteen.
  void (*tied_values)(const ScanNode& node, const int32_t* left, int32_t left_count,
                      float* out) = nullptr;
};
POLYLEAF_DECLARE_KERNELS(ScoreKernels, separable_scores)
POLYLEAF_DECLARE_KERNELS(ScoreKernels, topk_scores)
POLYLEAF_DECLARE_KERNELS(ScoreKernels, full_scores)
POLYLEAF_DECLARE_KERNELS(ScoreKernels,
                         linear_scores)  // without output_terms: see LinearKernels::solve

// Whether leaves hold one value an output, each with its own step: sums are those of one term an
// output.
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

// The same node, whose features compete by their factors, where they have any.
inline ScanNode apply_gain_factors(ScanNode node, const GrowConfig& config) {
  if (config.factors.empty()) return node;
  node.factors = &config;
  node.node_sum = select_score_kernels(node).node_sum(node);
  return node;
}

// Floats, and doubles, that a layout's scores need for one thread.
inline size_t moment_doubles(const ChannelLayout& layout) {
  // Rows of 272 candidates: a product with x for every gradient, Hessian and regressor, a sum for
  // every lane.
  return layout.linear()
             ? 272 * static_cast<size_t>(layout.n_regressor_products() + 16 + layout.lanes)
             : 0;
}

inline size_t workspace_floats(const ChannelLayout& layout, const SplitConfig& config) {
  if (layout.linear()) return layout.lanes + 16;
  // Sixteen candidates: their sums as rows, the largest terms of both sides. Of one candidate: all
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

// What the winner of a search for linear leaves is asked for.
struct LinearKernels {
  // Sums of products with the bin means, in channels' integers: g of every output, h x and h x^2
  // (of every output, where Hessian is diagonal), hz of every regressor; over the bins up to
  // `last`, and over all.
  void (*products)(const ScanNode& node, const ScanFeature& feature, int last, double* left,
                   double* whole);
  // The slopes (1 + p, K) of one side: of the feature split on, then of the node's regressors; the
  // feature's mean (K); what each output adds to the score (K). `there`: sums over rows whose
  // feature is not missing; products nullptr: the feature is no regressor. Sums and products are
  // readable to the next eight.
  void (*solve)(const ScanNode& node, const int32_t* lanes, int32_t count, const int32_t* there,
                int32_t count_there, const double* products, double* slopes, double* middle,
                double* terms);
};
POLYLEAF_DECLARE_KERNELS(LinearKernels, linear_kernels)

}  // namespace polyleaf
