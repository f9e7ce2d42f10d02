#include "search/sparse_gain_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace polyleaf {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Return the smallest float that is not below x.
float round_up(double x) {
  const auto nearest = static_cast<float>(x);
  return nearest < x ? std::nextafter(nearest, kInfinity) : nearest;
}

}  // namespace

bool SparseGainBounds::are_valid(const ScanNode& node) {
  const SplitConfig& config = *node.config;
  return are_separable(*node.layout, config) && node.constraints == nullptr &&
         node.factors == nullptr && config.reg_alpha == 0 && config.max_delta_step == 0 &&
         config.reg_lambda > 0;
}

void SparseGainBounds::reset(int64_t n) {
  for (Buffer<float>* column : {&gain_, &norm_, &hessian_}) {
    column->reserve(static_cast<size_t>(n));
    std::fill_n(column->data(), n, column == &gain_ ? kInfinity : 0.0f);
  }
  removed_.assign(static_cast<size_t>(n), {});
  pending_.clear();
}

SparseGainBounds::NodeSums SparseGainBounds::sum_node(const ScanNode& node) {
  const ChannelLayout& layout = *node.layout;
  NodeSums sums{};
  double squares = 0;
  for (int k = 0; k < layout.n_outputs; ++k) {
    const double g =
        static_cast<double>(node.totals[k]) * static_cast<double>(node.gradient_step[k]);
    squares += g * g;
  }
  sums.norm = std::sqrt(squares);
  sums.min_hessian = sums.max_hessian = node.count;
  for (int j = 0; j < layout.n_hessian(); ++j) {
    const double h = static_cast<double>(node.totals[layout.hessian_offset + j]) *
                     static_cast<double>(node.hessian_step[j]);
    sums.min_hessian = j == 0 ? h : std::min(sums.min_hessian, h);
    sums.max_hessian = j == 0 ? h : std::max(sums.max_hessian, h);
  }
  sums.lambda = static_cast<double>(static_cast<float>(node.config->reg_lambda));
  sums.min_hessian += sums.lambda;
  sums.max_hessian += sums.lambda;
  sums.min_side = sums.lambda;
  if (layout.hessian == HessianKind::unit)
    sums.min_side += std::max(1, node.config->min_child_samples);
  // Terms are rounded a few times each, and sixteen lanes of them are added one after another;
  // bounds are rounded too.
  sums.margin = 1.0 + (64.0 + layout.n_outputs / 16.0) / (1 << 20);
  return sums;
}

SparseGainBounds::RowSums SparseGainBounds::sum_row(const ScanNode& node, const int16_t* channels) {
  const ChannelLayout& layout = *node.layout;
  double squares = 0, largest = layout.hessian == HessianKind::unit ? 1 : 0;
  for (int k = 0; k < layout.n_outputs; ++k) {
    const double g = static_cast<double>(channels[k]) * static_cast<double>(node.gradient_step[k]);
    squares += g * g;
  }
  for (int j = 0; j < layout.n_hessian(); ++j)
    largest = std::max(largest, static_cast<double>(channels[layout.hessian_offset + j]) *
                                    static_cast<double>(node.hessian_step[j]));
  return {std::sqrt(squares), largest};
}

void SparseGainBounds::set_gain(int64_t number, float sum, double weight, const NodeSums& node) {
  Removed& removed = removed_[number] = {};
  if (!(sum >= 0)) {  // NaN never wins, here or below
    gain_[number] = sum == -kInfinity ? -kInfinity : kInfinity;
    return;
  }
  // The other side's score is at least this.
  const double bound = sum * node.margin;
  const double rest = std::max(0.0, node.norm - std::sqrt(bound * (weight + node.lambda)));
  removed.gain = std::max(0.0, bound - rest * rest / (node.max_hessian * node.margin));
  hessian_[number] = round_up(weight);
  set(number, removed.gain, node);
}

int64_t SparseGainBounds::select_candidates(int64_t first, int64_t last, const NodeSums& node,
                                            float best_so_far, int32_t* out) const {
  // If the other side may have almost no Hessian, the difference is dominated by rounding.
  const SparseGainLimit limit{round_up(node.norm), -round_up(-node.min_hessian),
                              static_cast<float>(node.min_hessian / 256),
                              static_cast<float>(node.margin), best_so_far};
  return POLYLEAF_SELECT(sparse_gain_kernels)
      .select_candidates({gain_.data(), norm_.data(), hessian_.data()}, first, last, limit, out);
}

void SparseGainBounds::update(const NodeSums& node) {
  const double min_side_root = std::sqrt(node.min_side);
  for (const int32_t number : pending_) {
    Removed& removed = removed_[number];
    removed.is_pending = false;
    if (!std::isfinite(gain_[number])) continue;
    const double root = std::sqrt(removed.gain * (1 + removed.weight / node.min_side)) +
                        removed.norm / min_side_root;
    set(number, root * root, node);
  }
  pending_.clear();
}

void SparseGainBounds::set(int64_t number, double gain, const NodeSums& node) {
  const Removed& removed = removed_[number];
  gain_[number] = round_up(gain);
  norm_[number] =
      round_up(std::sqrt(removed.gain * (hessian_[number] + node.lambda)) + removed.norm);
}

}  // namespace polyleaf
