// Quantised gradients in GPU memory: the same integers as
// quantised_gradients/quantised_gradients.h.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "data/sample.h"
#include "device/device.h"
#include "device/kernels/kernel_args.h"
#include "quantised_gradients/quantised_gradients.h"

namespace polyleaf {

// The row sample of a tree in GPU memory, and column maxima of derivatives over it.

class DeviceSample {
 public:
  explicit DeviceSample(const std::shared_ptr<const Device>& device);

  // Copy the sample; the caller's arrays may be freed afterwards.
  void set(const RowSample& sample);
  const RowSample& host() const { return sample_; }
  on_device::Sample at() const;

  // Return the largest |value * multiplier| of every column, padded with zeros to a multiple of
  // 16 plus 16. Throws std::invalid_argument if a value is not finite.
  std::vector<float> compute_max_magnitudes(const float* values, int n_columns);

 private:
  const std::shared_ptr<const Device> device_;
  RowSample sample_;
  std::vector<uint32_t> rows_;
  DeviceBuffer<uint32_t> rows_on_device_;
  DeviceBuffer<float> multiplier_;
  DeviceBuffer<int32_t> largest_;
};

class DeviceQuantisedGradients {
 public:
  explicit DeviceQuantisedGradients(const std::shared_ptr<const Device>& device);

  // g: (n_all, K); h: (n_all, 1 or K), nullptr for unit Hessians. Memory is reused. Throws
  // std::invalid_argument if a derivative is not finite.
  void quantise(const DeviceMatrix& g, const DeviceMatrix* h, HessianKind hessian,
                const RowSample& sample);

  const ChannelLayout& layout() const { return layout_; }
  const RowSample& sample() const { return sample_.host(); }
  const std::shared_ptr<const Device>& device() const { return device_; }
  const int16_t* data() const { return data_.data(); }  // (n_all, lanes)

  // Totals and steps in host memory, and the steps in GPU memory.
  const std::vector<int32_t>& totals() const { return totals_; }
  const std::vector<float>& gradient_step() const { return gradient_step_; }
  const std::vector<float>& hessian_step() const { return hessian_step_; }
  const float* gradient_steps() const { return gradient_steps_.data(); }
  const float* hessian_steps() const { return hessian_steps_.data(); }

  // Expected gain of random categories, for features with many categories.
  CategoricalOverfit categorical_overfit() const;

  std::vector<int16_t> read() const {
    return data_.read(static_cast<size_t>(sample().n_all) * layout_.lanes);
  }

 private:
  std::vector<float> quantise_part(const DeviceMatrix& values, int offset, int count_lane);

  const std::shared_ptr<const Device> device_;
  ChannelLayout layout_;
  DeviceSample sample_;
  DeviceBuffer<int16_t> data_;
  DeviceBuffer<float> inverse_, gradient_steps_, hessian_steps_;
  DeviceBuffer<int64_t> sums_;
  std::vector<int32_t> totals_;
  std::vector<float> gradient_step_, hessian_step_;
};

}  // namespace polyleaf
