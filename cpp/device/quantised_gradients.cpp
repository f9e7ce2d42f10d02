#include "device/quantised_gradients.h"

#include <cmath>

#include "quantised_gradients/quantised_gradients.h"

namespace polyleaf {

DeviceSample::DeviceSample(const std::shared_ptr<const Device>& device)
    : device_(device), rows_on_device_(device), multiplier_(device), largest_(device) {}

void DeviceSample::set(const RowSample& sample) {
  sample_ = sample;
  if (sample.rows != nullptr) {
    rows_.assign(sample.rows, sample.rows + sample.n_rows);
    sample_.rows = non_null_data(rows_.data(), rows_.size());
    rows_on_device_.write(rows_);
  }
  if (sample.multiplier != nullptr)
    multiplier_.write(sample.multiplier, static_cast<size_t>(sample.n_all));
}

on_device::Sample DeviceSample::at() const {
  return {sample_.rows != nullptr ? rows_on_device_.data() : nullptr, sample_.n_used(),
          sample_.multiplier != nullptr ? multiplier_.data() : nullptr};
}

std::vector<float> DeviceSample::compute_max_magnitudes(const float* values, int n_columns) {
  largest_.clear(n_columns);
  device_->launch(device_->grid_for(std::max<int64_t>(sample_.n_used() * n_columns, n_columns)),
                  on_device::LargestMagnitudes{values, n_columns, at(), largest_.data()});
  std::vector<float> largest((n_columns + 15) / 16 * 16 + 16, 0.0f);
  const std::vector<int32_t> bits = largest_.read(n_columns);
  for (int j = 0; j < n_columns; ++j) {
    largest[j] = __builtin_bit_cast(float, bits[j]);
    check_finite(largest[j]);
  }
  return largest;
}

DeviceQuantisedGradients::DeviceQuantisedGradients(const std::shared_ptr<const Device>& device)
    : device_(device),
      sample_(device),
      data_(device),
      inverse_(device),
      gradient_steps_(device),
      hessian_steps_(device),
      sums_(device) {}

void DeviceQuantisedGradients::quantise(const DeviceMatrix& g, const DeviceMatrix* h,
                                        HessianKind hessian, const RowSample& sample) {
  const ChannelLayout before = layout_;
  layout_ = ChannelLayout::make(static_cast<int>(g.n_columns), hessian);
  sample_.set(sample);
  const size_t size = static_cast<size_t>(sample.n_all) * layout_.lanes;
  // Unused lanes must be zero; they are never written afterwards.
  if (size > data_.size() || before != layout_) data_.clear(size);
  totals_.assign(layout_.lanes + 16, 0);
  if (layout_.count_lane >= 0) totals_[layout_.count_lane] = static_cast<int32_t>(sample.n_used());
  gradient_step_ = quantise_part(g, 0, layout_.count_lane);
  hessian_step_.assign(layout_.n_hessian() + 16, 0.0f);
  if (h != nullptr) hessian_step_ = quantise_part(*h, layout_.hessian_offset, -1);
  gradient_steps_.write(gradient_step_);
  hessian_steps_.write(hessian_step_);
}

// Quantise some columns and return their steps.
std::vector<float> DeviceQuantisedGradients::quantise_part(const DeviceMatrix& values, int offset,
                                                           int count_lane) {
  const int n_columns = static_cast<int>(values.n_columns);
  const int64_t n_used = sample().n_used();
  Scales scales(sample_.compute_max_magnitudes(values.data(), n_columns), n_columns);
  const auto run = [&] {
    inverse_.write(scales.inverse);
    sums_.clear(2 * n_columns);
    device_->launch(device_->grid_for(std::max<int64_t>(n_used * n_columns, n_columns)),
                    on_device::Quantise{values.data(), n_columns, sample_.at(), inverse_.data(),
                                        data_.data(), layout_.lanes, offset, count_lane,
                                        sums_.data(), sums_.data() + n_columns});
    return sums_.read(2 * static_cast<size_t>(n_columns));
  };
  std::vector<int64_t> sums = run();
  if (!scales.fit(sums.data(), n_columns, n_used)) sums = run();
  for (int j = 0; j < n_columns; ++j)
    totals_[offset + j] = static_cast<int32_t>(sums[n_columns + j]);
  return scales.step;
}

CategoricalOverfit DeviceQuantisedGradients::categorical_overfit() const {
  const int n_columns = layout_.n_outputs;
  DeviceBuffer<int64_t> squares(device_);
  squares.clear(n_columns);
  const int64_t n_used = sample().n_used();
  device_->launch(
      device_->grid_for(std::max<int64_t>(n_used * n_columns, n_columns)),
      on_device::SumSquares{data_.data(), n_columns, layout_.lanes, sample_.at(), squares.data()});
  return estimate_categorical_overfit(
      {&layout_, totals_.data(), n_used, gradient_step_.data(), hessian_step_.data()},
      squares.read(n_columns));
}

}  // namespace polyleaf
