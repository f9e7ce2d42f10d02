// Base of the searches over sparse gradients: exact sums over rows, and gains over the k outputs
// that gain most (GBDT-SPARSE, section 4.1; GBDT-MO, Algorithm 3). Neither a histogram nor anything
// kept per node is as large as the number of outputs.
//
//   ExactSearch every feature, thresholds at every s-th row (GBDT-SPARSE, Algorithm 1)
//   VerifiedSearch a histogram search over a count-sketch of the gradients proposes splits; exact
//   sums decide
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/context.h"
#include "base/settings.h"
#include "data/sparse_rows.h"
#include "grower/host_row_partitioner.h"
#include "grower/search.h"
#include "leaves/newton.h"
#include "quantised_gradients/sparse_target_sums.h"

namespace polyleaf {

// Gain of the Newton step of a set of rows if a leaf holds k of very many outputs (GBDT-SPARSE eq.
// 20, GBDT-MO eq. 20), from exact sums: the same numbers as for the leaves (leaves/topk.cpp).

// The k largest of positive magnitudes that are offered one by one.
class LargestMagnitudes {
 public:
  void start(int32_t k) {
    k_ = static_cast<size_t>(k);
    min_key_ = 0;
    keys_.clear();
  }
  void offer(int64_t key) {
    if (key > min_key_) add(key);
  }
  // Return them in descending order.
  const std::vector<int64_t>& sorted() {
    shrink();
    std::sort(keys_.begin(), keys_.end(), std::greater<int64_t>());
    return keys_;
  }

 private:
  void add(int64_t key) {
    keys_.push_back(key);
    if (keys_.size() < 2 * k_ + 16) return;
    shrink();
    min_key_ = keys_[k_ - 1];  // equal keys change nothing
  }
  void shrink() {
    if (keys_.size() <= k_) return;
    std::nth_element(keys_.begin(), keys_.begin() + k_ - 1, keys_.end(), std::greater<int64_t>());
    keys_.resize(k_);
  }

  size_t k_ = 1;
  int64_t min_key_ = 0;
  std::vector<int64_t> keys_;
};

// Return the sum of the gains of the k outputs of largest |sum|, from the largest on.
inline double sum_largest_gains(LargestMagnitudes& magnitudes, double unit, double hessian,
                                const LeafConfig& config) {
  double gain = 0;
  for (int64_t magnitude : magnitudes.sorted())
    gain += NewtonStep(static_cast<double>(magnitude) * unit, hessian, config).gain;
  return gain;
}

class SparseTargetSearch : public Search {
 public:
  const RowSample& sample() const override { return sample_; }
  int n_outputs() const override { return 0; }  // gains are not split by output
  double cover(int32_t node) const override { return hessian_[node]; }
  const Context& context() const { return context_; }

 protected:
  SparseTargetSearch(const Bins& bins, const Context& context);

  // Set the gradients of the next tree. weight: Hessian of rows, nullptr: 1. step, leaf_k: limits
  // of the steps of leaves, and the number of outputs of a leaf.
  void use(const SparseRows& gradients, const float* weight, const RowSample& sample,
           const LeafConfig& step, int32_t leaf_k);
  void begin(const TreeContext& tree);

  // Return whether rows have no weights: then the Hessian is their number.
  bool counts_rows() const { return weight_ == nullptr && sample_.multiplier == nullptr; }
  // Return the Hessian of a row in units of `hessian_unit()`.
  int64_t row_hessian(int64_t row) const {
    if (counts_rows()) return 1;
    return fixed_weight_((weight_ != nullptr ? weight_[row] : 1.0f) * sample_.factor(row));
  }
  double hessian_unit() const { return counts_rows() ? 1.0 : fixed_weight_.unit; }
  // Return whether a split with score `sum` is admissible, and its gain.
  bool is_admissible(double sum, double parent, double& gain) const;
  // Record the split found for a node by the Hessian of its left child.
  void record_choice(int32_t node, double left_hessian);
  void record_split(int32_t parent, int32_t left, int32_t right);

  const Bins& bins_;
  const Context context_;
  const TreeContext* tree_ = nullptr;
  const SparseRows* gradients_ = nullptr;
  RowSample sample_;
  LeafConfig step_{};
  int32_t leaf_k_ = 0;
  FixedPoint fixed_;

 private:
  const float* weight_ = nullptr;
  FixedPoint fixed_weight_;
  std::vector<double> hessian_;       // per node
  std::vector<double> left_hessian_;  // of the left child of each node's split
};

}  // namespace polyleaf
