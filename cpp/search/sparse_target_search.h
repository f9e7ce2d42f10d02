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
#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/context.h"
#include "base/settings.h"
#include "data/sparse_rows.h"
#include "grower/search.h"
#include "leaves/newton.h"
#include "quantised_gradients/sparse_target_sums.h"

namespace polyleaf {

// What the Newton step of a set of rows is worth where a leaf holds k of very many outputs
// (GBDT-SPARSE eq. 20, GBDT-MO eq. 20), from exact sums. The same numbers as those of the leaves
// (leaves/topk.cpp).
//
// Owns: the choice of the k outputs and the order in which their worths are added. Must not know:
// rows, splits.

// The k largest of positive magnitudes offered one by one.
class Largest {
 public:
  void start(int32_t k) {
    k_ = static_cast<size_t>(k);
    floor_ = 0;
    keys_.clear();
  }
  void offer(int64_t key) {
    if (key > floor_) take(key);
  }
  // In descending order.
  const std::vector<int64_t>& sorted() {
    shrink();
    std::sort(keys_.begin(), keys_.end(), std::greater<int64_t>());
    return keys_;
  }

 private:
  void take(int64_t key) {
    keys_.push_back(key);
    if (keys_.size() < 2 * k_ + 16) return;
    shrink();
    floor_ = keys_[k_ - 1];  // keys like it change nothing
  }
  void shrink() {
    if (keys_.size() <= k_) return;
    std::nth_element(keys_.begin(), keys_.begin() + k_ - 1, keys_.end(), std::greater<int64_t>());
    keys_.resize(k_);
  }

  size_t k_ = 1;
  int64_t floor_ = 0;
  std::vector<int64_t> keys_;
};

// Sum over the k outputs of largest |sum|, from the largest on, of what their steps are worth.
inline double worth_of_largest(Largest& magnitudes, double unit, double hessian,
                               const LeafConfig& config) {
  double worth = 0;
  for (int64_t magnitude : magnitudes.sorted())
    worth += NewtonStep(static_cast<double>(magnitude) * unit, hessian, config).gain;
  return worth;
}

class SparseTargetSearch : public Search {
 public:
  const RowSample& sample() const override { return sample_; }
  int n_outputs() const override { return 0; }  // gains are not told apart by output
  double cover(int32_t node) const override { return hessian_[node]; }
  const Context& context() const { return context_; }

 protected:
  SparseTargetSearch(const Bins& bins, const Context& context);

  // What the next tree is judged by. weight: Hessian of rows, nullptr: 1. step, leaf_k: what
  // bounds the steps of leaves, and the outputs that a leaf holds.
  void use(const SparseRows& gradients, const float* weight, const RowSample& sample,
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
  const Context context_;
  const TreeContext* scope_ = nullptr;
  const SparseRows* gradients_ = nullptr;
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
