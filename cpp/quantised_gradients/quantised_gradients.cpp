#include "quantised_gradients/quantised_gradients.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "base/inline.h"
#include "base/parallel.h"

namespace polyleaf {
namespace {

constexpr int64_t kBlock = 2048;
// 2 / pi: share of the squares of many normal numbers.
constexpr double kBestCut = 0.6366197723675814;

}  // namespace

ChannelLayout ChannelLayout::make(int n_outputs, HessianKind hessian, int regressors) {
  ChannelLayout layout;
  layout.n_outputs = n_outputs;
  layout.hessian = hessian;
  layout.regressors = regressors;
  const int without_count = n_outputs + layout.n_hessian() + layout.n_products();
  if (without_count < 8 && hessian != HessianKind::full) {
    layout.lanes = without_count < 4 ? 4 : 8;
    layout.count_lane = without_count;
  } else {
    layout.lanes = round_up(without_count, 16);
    layout.count_lane = without_count < layout.lanes ? without_count : -1;
  }
  layout.hessian_offset = hessian == HessianKind::unit ? -1 : n_outputs;
  return layout;
}

void QuantisedGradients::quantise(const float* g, const float* h, int n_outputs,
                                  HessianKind hessian, const RowSample& sample,
                                  const Context& context) {
  const ChannelLayout before = layout_;
  layout_ = ChannelLayout::make(n_outputs, hessian);
  sample_ = sample;
  if (sample.rows != nullptr) {
    rows_.assign(sample.rows, sample.rows + sample.n_rows);
    sample_.rows = non_null_data(rows_.data(), rows_.size());
  }
  sample_.multiplier = nullptr;
  if (sample.multiplier != nullptr) {
    multiplier_.assign(sample.multiplier, sample.multiplier + sample.n_all);
    sample_.multiplier = non_null_data(multiplier_.data(), multiplier_.size());
  }
  const size_t size = static_cast<size_t>(sample.n_all) * layout_.lanes;
  const bool fresh = size > data_.size() || before != layout_;
  data_.reserve(size);
  if (fresh) clear(context);
  totals_.assign(layout_.lanes + 16, 0);
  max_magnitudes_.assign(layout_.lanes + 16, 0);
  if (layout_.count_lane >= 0) max_magnitudes_[layout_.count_lane] = 1;
  n_used_ = context.allreduce_sum(sample_.n_used());
  if (layout_.count_lane >= 0) totals_[layout_.count_lane] = static_cast<int32_t>(n_used_);
  const bool unit = hessian == HessianKind::unit;
  quantise_part(g, n_outputs, 0, unit ? layout_.count_lane : -1, gradient_step_, context);
  hessian_step_.assign(layout_.n_hessian() + 16, 0.0f);
  if (!unit)
    quantise_part(h, layout_.n_hessian(), layout_.hessian_offset, layout_.count_lane, hessian_step_,
                  context);
}

// Lanes that no column fills must be zero; nothing else is written there afterwards.
void QuantisedGradients::clear(const Context& context) {
  parallel_for(context, Block::count(sample_.n_all, kBlock), [&](int64_t task, int) {
    const Block rows(sample_.n_all, kBlock, task);
    std::memset(data_.data() + rows.begin * layout_.lanes, 0,
                sizeof(int16_t) * static_cast<size_t>(rows.end - rows.begin) * layout_.lanes);
  });
}

void check_finite(float largest) {
  if (!std::isfinite(largest))
    throw std::invalid_argument(
        "A gradient or Hessian is not finite; check the objective, the targets, the weights and "
        "the "
        "learning rate.");
}

std::vector<float> compute_max_magnitudes(const float* values, int n_columns,
                                          const RowSample& sample, const Context& context) {
  const int64_t n_used = sample.n_used();
  const int padded = round_up(n_columns, 16) + 16;
  std::vector<float> largest(static_cast<size_t>(context.n_threads) * padded, 0.0f);
  parallel_for(context, Block::count(n_used, kBlock), [&](int64_t task, int thread) {
    const Block rows(n_used, kBlock, task);
    POLYLEAF_SELECT(quantise_kernels)
        .max_magnitudes(values, n_columns, sample, rows.begin, rows.end,
                        largest.data() + thread * padded);
  });
  for (int t = 0; t < context.n_threads; ++t)
    for (int j = 0; j < n_columns; ++j) {
      const float x = largest[t * padded + j];
      check_finite(x);  // before any comparison, which a NaN would lose
      largest[j] = std::max(largest[j], x);
    }
  largest.resize(padded);
  if (context.is_distributed()) {
    std::vector<double> maxima(largest.begin(), largest.end());
    context.allreduce_max(maxima);
    std::copy(maxima.begin(), maxima.end(), largest.begin());
  }
  return largest;
}

namespace {

// Sum over all ranks, in one message.
void allreduce_sums(std::vector<int64_t>& size, std::vector<int64_t>& total, int n,
                    const Context& context) {
  std::vector<int64_t> both(size.begin(), size.begin() + n);
  both.insert(both.end(), total.begin(), total.begin() + n);
  context.allreduce_sum(both);
  std::copy_n(both.begin(), n, size.begin());
  std::copy_n(both.begin() + n, n, total.begin());
}

}  // namespace

// Quantise one group of columns. The scale of a column is 32767 / max, halved until no sum over any
// rows can overflow int32.
void QuantisedGradients::quantise_part(const float* values, int n_columns, int offset,
                                       int count_lane, std::vector<float>& step,
                                       const Context& context) {
  const QuantiseKernels& kernels = POLYLEAF_SELECT(quantise_kernels);
  const int64_t n_used = sample_.n_used();
  const int64_t n_blocks = Block::count(n_used, kBlock);
  const std::vector<float> largest = compute_max_magnitudes(values, n_columns, sample_, context);
  const int padded = static_cast<int>(largest.size());
  Scales scales(largest, n_columns);
  std::vector<int64_t> size, total;
  const auto run = [&] {
    size.assign(static_cast<size_t>(context.n_threads) * padded, 0);
    total.assign(static_cast<size_t>(context.n_threads) * padded, 0);
    parallel_for(context, n_blocks, [&](int64_t task, int thread) {
      const Block rows(n_used, kBlock, task);
      kernels.quantise(values, n_columns, sample_, rows.begin, rows.end, scales.inverse.data(),
                       data_.data(), layout_.lanes, offset, count_lane,
                       size.data() + thread * padded, total.data() + thread * padded);
    });
    for (int t = 1; t < context.n_threads; ++t)
      for (int j = 0; j < n_columns; ++j) {
        size[j] += size[t * padded + j];
        total[j] += total[t * padded + j];
      }
    if (context.is_distributed()) allreduce_sums(size, total, n_columns, context);
  };
  run();
  if (!scales.fit(size.data(), n_columns, n_used_)) run();
  for (int j = 0; j < n_columns; ++j) {
    totals_[offset + j] = static_cast<int32_t>(total[j]);
    // The row of largest magnitude has exactly this product, rounded in the same way.
    max_magnitudes_[offset + j] =
        static_cast<int32_t>(std::nearbyint(largest[j] * scales.inverse[j]));
  }
  step = std::move(scales.step);
}

// Exact: a square is below 2^30, and there are fewer than 2^31 rows.
std::vector<int64_t> sum_squares(const ChannelLayout& layout, const int16_t* channels,
                                 const RowSample& sample, const Context& context) {
  const int K = layout.n_outputs;
  const int64_t n = sample.n_used();
  std::vector<int64_t> sums(static_cast<size_t>(context.n_threads) * K, 0);
  parallel_for(context, Block::count(n, kBlock), [&](int64_t task, int thread) {
    const Block block(n, kBlock, task);
    for (int k = 0; k < K; ++k) {
      int64_t sum = 0;
      for (int64_t i = block.begin; i < block.end; ++i) {
        const int64_t channel = channels[sample.row(i) * layout.lanes + k];
        sum += channel * channel;
      }
      sums[static_cast<size_t>(thread) * K + k] += sum;
    }
  });
  for (size_t j = K; j < sums.size(); ++j) sums[j % K] += sums[j];
  sums.resize(K);
  context.allreduce_sum(sums);
  return sums;
}

// Means of categories vary most along the direction that is fitted to them: by (sqrt(n - 1) +
// sqrt(K - 1))^2 variances (Marchenko and Pastur, 1967), where a given direction has K - 1.
float CategoricalOverfit::expected_gain(int64_t n_categories) const {
  const double rest = static_cast<double>(n_categories - 1), others = std::max(width - 1.0, 0.0);
  return static_cast<float>(kBestCut * (rest + 2.0 * std::sqrt(rest * others)) * variance);
}

CategoricalOverfit estimate_categorical_overfit(const GradientSums& sums,
                                                const std::vector<int64_t>& squares) {
  const ChannelLayout& layout = *sums.layout;
  double sum = 0, squared = 0;
  for (int k = 0; k < layout.n_outputs; ++k) {
    double hessian = static_cast<double>(sums.count);
    if (layout.hessian != HessianKind::unit) {
      const int own = layout.hessian_index(k);
      hessian = static_cast<double>(sums.totals[layout.hessian_offset + own]) *
                static_cast<double>(sums.hessian_step[own]);
    }
    if (!(hessian > 0)) continue;
    const double step = sums.gradient_step[k];
    const double variance = static_cast<double>(squares[k]) * (step * step) / hessian;
    sum += variance;
    squared += variance * variance;
  }
  if (!(sum > 0 && squared > 0)) return {};
  return {squared / sum, sum * sum / squared};
}

}  // namespace polyleaf
