#include "device/sample.h"

#include <bit>
#include <cmath>

#include "quantised_gradients/quantised_gradients.h"

namespace polyleaf {

DeviceSample::DeviceSample(std::shared_ptr<const Device> device)
    : device_(device), rows_on_device_(device), multiplier_(device), largest_(device) {}

void DeviceSample::take(const RowSample& sample) {
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
    largest[j] = std::bit_cast<float>(bits[j]);
    check_finite(largest[j]);
  }
  return largest;
}

}  // namespace polyleaf
