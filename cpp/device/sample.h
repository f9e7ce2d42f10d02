// The rows of a tree on a device, and what columns of derivatives come to over them.
//
// Must not know: what is done with either.
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

  // A copy: the caller's may be gone afterwards.
  void take(const RowSample& sample);
  const RowSample& host() const { return sample_; }
  on_device::Sample at() const;

  // Largest |value * multiplier| of every column, zeros behind them to a multiple of 16 and 16
  // more. Throws std::invalid_argument where a value is not finite.
  std::vector<float> compute_max_magnitudes(const float* values, int n_columns);

 private:
  const std::shared_ptr<const Device> device_;
  RowSample sample_;
  std::vector<uint32_t> rows_;
  DeviceBuffer<uint32_t> rows_on_device_;
  DeviceBuffer<float> multiplier_;
  DeviceBuffer<int32_t> largest_;
};

}  // namespace polyleaf
