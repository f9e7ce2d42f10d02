#include "quantised_gradients/quantised_gradients.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "base/parallel.h"

namespace polyleaf {
namespace {

constexpr int64_t kBlock = 2048;

int round_up(int n, int multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace

ChannelLayout ChannelLayout::make(int n_outputs, Hessian hessian, int regressors) {
  ChannelLayout layout;
  layout.n_outputs = n_outputs;
  layout.hessian = hessian;
  layout.regressors = regressors;
  const int without_count = n_outputs + layout.n_hessian() + layout.n_products();
  if (without_count < 8 && hessian != Hessian::full) {
    layout.lanes = without_count < 4 ? 4 : 8;
    layout.count_lane = without_count;
  } else {
    layout.lanes = round_up(without_count, 16);
    layout.count_lane = without_count < layout.lanes ? without_count : -1;
  }
  layout.hessian_offset = hessian == Hessian::unit ? -1 : n_outputs;
  return layout;
}

void Channels::quantise(const float* g, const float* h, int n_outputs, Hessian hessian,
                        const RowSample& sample, const Workers& workers) {
  const int lanes_before = layout_.lanes;
  layout_ = ChannelLayout::make(n_outputs, hessian);
  sample_ = sample;
  if (sample.rows != nullptr) {
    rows_.assign(sample.rows, sample.rows + sample.n_rows);
    sample_.rows = begin_of(rows_.data(), rows_.size());
  }
  sample_.multiplier = nullptr;
  if (sample.multiplier != nullptr) {
    multiplier_.assign(sample.multiplier, sample.multiplier + sample.n_all);
    sample_.multiplier = begin_of(multiplier_.data(), multiplier_.size());
  }
  const size_t size = static_cast<size_t>(sample.n_all) * layout_.lanes;
  const bool fresh = size > data_.size() || lanes_before != layout_.lanes;
  data_.reserve(size);
  if (fresh) clear(workers);
  totals_.assign(layout_.lanes + 16, 0);
  largest_.assign(layout_.lanes + 16, 0);
  if (layout_.count_lane >= 0) largest_[layout_.count_lane] = 1;
  n_used_ = workers.sum(sample_.n_used());
  if (layout_.count_lane >= 0) totals_[layout_.count_lane] = static_cast<int32_t>(n_used_);
  const bool unit = hessian == Hessian::unit;
  quantise_part(g, n_outputs, 0, unit ? layout_.count_lane : -1, gradient_step_, workers);
  hessian_step_.assign(layout_.n_hessian() + 16, 0.0f);
  if (!unit)
    quantise_part(h, layout_.n_hessian(), layout_.hessian_offset, layout_.count_lane, hessian_step_,
                  workers);
}

// Lanes that no column fills must be zero; nobody writes anything else there afterwards.
void Channels::clear(const Workers& workers) {
  parallel_for(workers, Block::count(sample_.n_all, kBlock), [&](int64_t task, int) {
    const Block rows(sample_.n_all, kBlock, task);
    std::memset(data_.data() + rows.begin * layout_.lanes, 0,
                sizeof(int16_t) * static_cast<size_t>(rows.end - rows.begin) * layout_.lanes);
  });
}

void check_finite(float largest) {
  if (!std::isfinite(largest))
    throw std::invalid_argument(
        "A derivative is not finite; check the objective, the targets, the weights and the "
        "learning rate.");
}

std::vector<float> largest_magnitudes(const float* values, int n_columns, const RowSample& sample,
                                      const Workers& workers) {
  const int64_t n_used = sample.n_used();
  const int padded = round_up(n_columns, 16) + 16;
  std::vector<float> largest(static_cast<size_t>(workers.n_threads) * padded, 0.0f);
  parallel_for(workers, Block::count(n_used, kBlock), [&](int64_t task, int thread) {
    const Block rows(n_used, kBlock, task);
    POLYLEAF_SELECT(channel_kernels)
        .largest(values, n_columns, sample, rows.begin, rows.end, largest.data() + thread * padded);
  });
  for (int t = 0; t < workers.n_threads; ++t)
    for (int j = 0; j < n_columns; ++j) {
      const float x = largest[t * padded + j];
      check_finite(x);  // before any comparison: a NaN would lose it
      largest[j] = std::max(largest[j], x);
    }
  largest.resize(padded);
  if (!workers.is_alone()) {
    std::vector<double> of_all(largest.begin(), largest.end());
    workers.largest(of_all);
    std::copy(of_all.begin(), of_all.end(), largest.begin());
  }
  return largest;
}

namespace {

// Sums of all ranks, in one message.
void add_ranks(std::vector<int64_t>& size, std::vector<int64_t>& total, int n,
               const Workers& workers) {
  std::vector<int64_t> both(size.begin(), size.begin() + n);
  both.insert(both.end(), total.begin(), total.begin() + n);
  workers.sum(both);
  std::copy_n(both.begin(), n, size.begin());
  std::copy_n(both.begin() + n, n, total.begin());
}

}  // namespace

// Quantises one group of columns. The scale of a column is 32767 / max, halved until no sum over
// any rows can leave int32.
void Channels::quantise_part(const float* values, int n_columns, int offset, int count_lane,
                             std::vector<float>& step, const Workers& workers) {
  const ChannelKernels& kernels = POLYLEAF_SELECT(channel_kernels);
  const int64_t n_used = sample_.n_used();
  const int64_t n_blocks = Block::count(n_used, kBlock);
  const std::vector<float> largest = largest_magnitudes(values, n_columns, sample_, workers);
  const int padded = static_cast<int>(largest.size());
  Scales scales(largest, n_columns);
  std::vector<int64_t> size, total;
  const auto run = [&] {
    size.assign(static_cast<size_t>(workers.n_threads) * padded, 0);
    total.assign(static_cast<size_t>(workers.n_threads) * padded, 0);
    parallel_for(workers, n_blocks, [&](int64_t task, int thread) {
      const Block rows(n_used, kBlock, task);
      kernels.quantise(values, n_columns, sample_, rows.begin, rows.end, scales.inverse.data(),
                       data_.data(), layout_.lanes, offset, count_lane,
                       size.data() + thread * padded, total.data() + thread * padded);
    });
    for (int t = 1; t < workers.n_threads; ++t)
      for (int j = 0; j < n_columns; ++j) {
        size[j] += size[t * padded + j];
        total[j] += total[t * padded + j];
      }
    if (!workers.is_alone()) add_ranks(size, total, n_columns, workers);
  };
  run();
  if (!scales.fit(size.data(), n_columns, n_used_)) run();
  for (int j = 0; j < n_columns; ++j) {
    totals_[offset + j] = static_cast<int32_t>(total[j]);
    // The row of largest magnitude has this very product, rounded likewise.
    largest_[offset + j] = static_cast<int32_t>(std::nearbyint(largest[j] * scales.inverse[j]));
  }
  step = std::move(scales.step);
}

}  // namespace polyleaf
