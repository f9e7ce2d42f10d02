#include "device/channels.h"

namespace polyleaf {

DeviceChannels::DeviceChannels(std::shared_ptr<const Device> device)
    : device_(device),
      sample_(device),
      data_(device),
      inverse_(device),
      gradient_steps_(device),
      hessian_steps_(device),
      sums_(device) {}

void DeviceChannels::quantise(const DeviceMatrix& g, const DeviceMatrix* h, HessianKind hessian,
                              const RowSample& sample) {
  const int lanes_before = layout_.lanes;
  layout_ = ChannelLayout::make(static_cast<int>(g.n_columns), hessian);
  sample_.take(sample);
  const size_t size = static_cast<size_t>(sample.n_all) * layout_.lanes;
  // Lanes that no column fills must be zero; nobody writes anything else there afterwards.
  if (size > data_.size() || lanes_before != layout_.lanes) data_.clear(size);
  totals_.assign(layout_.lanes + 16, 0);
  if (layout_.count_lane >= 0) totals_[layout_.count_lane] = static_cast<int32_t>(sample.n_used());
  gradient_step_ = quantise_part(g, 0, layout_.count_lane);
  hessian_step_.assign(layout_.n_hessian() + 16, 0.0f);
  if (h != nullptr) hessian_step_ = quantise_part(*h, layout_.hessian_offset, -1);
  gradient_steps_.write(gradient_step_);
  hessian_steps_.write(hessian_step_);
}

// Returns the steps.
std::vector<float> DeviceChannels::quantise_part(const DeviceMatrix& values, int offset,
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

CategoricalOverfit DeviceChannels::categorical_overfit() const {
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
