// The row sample of a tree in GPU memory, and column maxima of derivatives over it.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "data/sample.h"
#include "device/device.h"
#include "device/kernels/kernel_args.h"

namespace polyleaf {

class DeviceSample {
 public:
  explicit DeviceSample(std::shared_ptr<const Device> device);

  // Copy the sample; the caller's arrays may be freed afterwards.
  void set(const RowSample& sample);
  const RowSample& host() const { return sample_; }
  on_device::Sample at() const;

  // Return the largest |value * multiplier| of every column, padded with zeros to a multiple of
  // 16 plus 16. Throws std::invalid_argument if a value is not finite.
  std::vector<float> largest_magnitudes(const float* values, int n_columns);

 private:
  const std::shared_ptr<const Device> device_;
  RowSample sample_;
  std::vector<uint32_t> rows_;
  DeviceBuffer<uint32_t> rows_on_device_;
  DeviceBuffer<float> multiplier_;
  DeviceBuffer<int32_t> largest_;
};

}  // namespace polyleaf
