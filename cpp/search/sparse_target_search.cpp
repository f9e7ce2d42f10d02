#include "search/sparse_target_search.h"

#include <algorithm>
#include <cmath>

namespace polyleaf {

SparseTargetSearch::SparseTargetSearch(const Bins& bins, const Context& context)
    : bins_(bins), context_(context) {}

void SparseTargetSearch::use(const SparseRows& gradients, const float* weight,
                             const RowSample& sample, const LeafConfig& step, int32_t leaf_k) {
  gradients_ = &gradients;
  weight_ = weight;
  sample_ = sample;
  step_ = step;
  leaf_k_ = leaf_k;
  fixed_ = fixed_point(gradients, sample, context_);
  if (!counts_rows()) fixed_weight_ = fixed_point(weight, sample, context_);
}

void SparseTargetSearch::begin(const TreeContext& tree) {
  tree_ = &tree;
  int64_t sum = 0;
  for (int64_t i = 0; i < sample_.n_used(); ++i) sum += row_hessian(sample_.row(i));
  hessian_.assign(1, static_cast<double>(context_.allreduce_sum(sum)) * hessian_unit());
  left_hessian_.assign(1, 0.0);
}

bool SparseTargetSearch::is_admissible(double sum, double parent, double& gain) const {
  const double difference = sum - parent;
  gain = 0.5 * difference / static_cast<double>(gradients_->n_outputs());
  if (!std::isfinite(sum)) return false;
  return tree_->config().post_prune ||
         (gain > tree_->config().split.min_split_gain && difference > kMinRelativeGain * sum);
}

void SparseTargetSearch::record_choice(int32_t node, double left_hessian) {
  left_hessian_[node] = left_hessian;
}

void SparseTargetSearch::record_split(int32_t parent, int32_t left, int32_t right) {
  hessian_.resize(std::max<size_t>(hessian_.size(), right + 1));
  left_hessian_.resize(hessian_.size());
  hessian_[left] = left_hessian_[parent];
  hessian_[right] = hessian_[parent] - left_hessian_[parent];
}

}  // namespace polyleaf
