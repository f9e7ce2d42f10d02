// What the searches over sparse gradients have in common: exact sums over rows, and gains over the
// k outputs that gain most (GBDT-SPARSE, section 4.1; GBDT-MO, Algorithm 3). No histogram, and
// nothing kept for a node, is as large as the number of outputs.
//
//   ExactSearch     every feature, thresholds at every s-th row in its order (GBDT-SPARSE,
//   Algorithm 1) VerifiedSearch  a histogram search over a count-sketch of the gradients proposes a
//   split for each tile
//                   of features; the best few of them are judged by exact sums
//
// Owns: statistics of rows and gains. Must not know: losses, sketches, the schedule, leaves.
#pragma once
#include <cstdint>
#include <vector>

#include "base/context.h"
#include "base/settings.h"
#include "data/sparse_labels.h"
#include "grower/search.h"
#include "leaves/newton.h"
#include "quantised_gradients/sparse_target_sums.h"
#include "search/sparse_leaf_gain.h"

namespace polyleaf {

class LabelSearch : public Search {
 public:
  const RowSample& sample() const override { return sample_; }
  int n_outputs() const override { return 0; }  // gains are not told apart by output
  double cover(int32_t node) const override { return hessian_[node]; }
  const Workers& workers() const { return workers_; }

 protected:
  LabelSearch(const Bins& bins, const Workers& workers);

  // What the next tree is judged by. weight: Hessian of rows, nullptr: 1. step, leaf_k: what
  // bounds the steps of leaves, and the outputs that a leaf holds.
  void use(const LabelRows& gradients, const float* weight, const RowSample& sample,
           const LeafConfig& step, int32_t leaf_k);
  void begin(const TreeContext& scope);

  // Whether nothing weighs rows: then Hessian counts them.
  bool counts_rows() const { return weight_ == nullptr && sample_.multiplier == nullptr; }
  // Hessian of a row in units of `hessian_unit()`.
  int64_t row_hessian(int64_t row) const {
    if (counts_rows()) return 1;
    return fixed_weight_((weight_ != nullptr ? weight_[row] : 1.0f) * sample_.factor(row));
  }
  double hessian_unit() const { return counts_rows() ? 1.0 : fixed_weight_.unit; }
  // Whether a split whose children are worth `sum` may be taken, and its gain.
  bool admits(double sum, double parent, double& gain) const;
  // The choice found for a node, and the Hessian of its left child.
  void note_choice(int32_t node, double left_hessian);
  void note_split(int32_t parent, int32_t left, int32_t right);

  const Bins& bins_;
  const Workers workers_;
  const TreeContext* scope_ = nullptr;
  const LabelRows* gradients_ = nullptr;
  RowSample sample_;
  LeafConfig step_{};
  int32_t leaf_k_ = 0;
  FixedPoint fixed_;

 private:
  const float* weight_ = nullptr;
  FixedPoint fixed_weight_;
  std::vector<double> hessian_;       // of nodes
  std::vector<double> left_hessian_;  // of the left children that their choices make
};

}  // namespace polyleaf
