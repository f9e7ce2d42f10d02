#include "search/sparse_gain_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace polyleaf {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The least float that is not below x.
float rounded_up(double x) {
  const auto nearest = static_cast<float>(x);
  return nearest < x ? std::nextafter(nearest, kInfinity) : nearest;
}

}  // namespace

bool CellBounds::hold_for(const ScanNode& node) {
  const SplitConfig& config = *node.config;
  return are_separable(*node.layout, config) && node.constraints == nullptr &&
         node.factors == nullptr && config.reg_alpha == 0 && config.max_delta_step == 0 &&
         config.reg_lambda > 0;
}

void CellBounds::start(int64_t n) {
  for (Buffer<float>* column : {&own_, &norm_, &weight_}) {
    column->reserve(static_cast<size_t>(n));
    std::fill_n(column->data(), n, column == &own_ ? kInfinity : 0.0f);
  }
  since_.assign(static_cast<size_t>(n), {});
  waiting_.clear();
}

CellBounds::NodeSums CellBounds::sums_of(const ScanNode& node) {
  const ChannelLayout& layout = *node.layout;
  NodeSums sums{};
  double squares = 0;
  for (int k = 0; k < layout.n_outputs; ++k) {
    const double g =
        static_cast<double>(node.totals[k]) * static_cast<double>(node.gradient_step[k]);
    squares += g * g;
  }
  sums.norm = std::sqrt(squares);
  sums.least = sums.most = node.count;
  for (int j = 0; j < layout.n_hessian(); ++j) {
    const double h = static_cast<double>(node.totals[layout.hessian_offset + j]) *
                     static_cast<double>(node.hessian_step[j]);
    sums.least = j == 0 ? h : std::min(sums.least, h);
    sums.most = j == 0 ? h : std::max(sums.most, h);
  }
  sums.lambda = static_cast<double>(static_cast<float>(node.config->reg_lambda));
  sums.least += sums.lambda;
  sums.most += sums.lambda;
  sums.least_side = sums.lambda;
  if (layout.hessian == HessianKind::unit)
    sums.least_side += std::max(1, node.config->min_child_samples);
  // Terms are rounded a few times each, and sixteen lanes of them are added one after another;
  // bounds are rounded too.
  sums.margin = 1.0 + (64.0 + layout.n_outputs / 16.0) / (1 << 20);
  return sums;
}

CellBounds::RowSums CellBounds::row_of(const ScanNode& node, const int16_t* channels) {
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

void CellBounds::found(int64_t number, float sum, double weight, const NodeSums& node) {
  Since& since = since_[number] = {};
  if (!(sum >= 0)) {  // NaN never wins, here or below
    own_[number] = sum == -kInfinity ? -kInfinity : kInfinity;
    return;
  }
  // The other side is worth something too, at least this.
  const double most = sum * node.margin;
  const double rest = std::max(0.0, node.norm - std::sqrt(most * (weight + node.lambda)));
  since.own = std::max(0.0, most - rest * rest / (node.most * node.margin));
  weight_[number] = rounded_up(weight);
  set(number, since.own, node);
}

int64_t CellBounds::reach(int64_t first, int64_t last, const NodeSums& node, float floor,
                          int32_t* out) const {
  // Where the other side may have next to no Hessian, the difference is all rounding.
  const CellBoundLimit limit{rounded_up(node.norm), -rounded_up(-node.least),
                             static_cast<float>(node.least / 256), static_cast<float>(node.margin),
                             floor};
  return POLYLEAF_SELECT(cell_bound_kernels)
      .reach({own_.data(), norm_.data(), weight_.data()}, first, last, limit, out);
}

void CellBounds::renew(const NodeSums& node) {
  const double root_of_least = std::sqrt(node.least_side);
  for (const int32_t number : waiting_) {
    Since& since = since_[number];
    since.waits = false;
    if (!std::isfinite(own_[number])) continue;
    const double root =
        std::sqrt(since.own * (1 + since.weight / node.least_side)) + since.norm / root_of_least;
    set(number, root * root, node);
  }
  waiting_.clear();
}

void CellBounds::set(int64_t number, double own, const NodeSums& node) {
  const Since& since = since_[number];
  own_[number] = rounded_up(own);
  norm_[number] = rounded_up(std::sqrt(since.own * (weight_[number] + node.lambda)) + since.norm);
}

}  // namespace polyleaf
