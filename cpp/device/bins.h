// Bins in GPU memory: the words of `Bins` (data/bins.h), tile after tile, and the positions of
// features. Words are copied from host memory or computed on the GPU.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "data/bins.h"
#include "device/binning.h"
#include "device/device.h"
#include "device/kernels/kernel_args.h"

namespace polyleaf {

class DeviceBins {
 public:
  // Throws std::invalid_argument if features are stored sparse.
  DeviceBins(std::shared_ptr<const Device> device, const Bins& bins);
  // Bin numbers on the GPU; `layout`: positions of codes in words.
  DeviceBins(const DeviceArray& numbers, const BinTable& table, std::unique_ptr<const Bins> layout);

  const std::shared_ptr<const Device>& device() const { return device_; }
  const Bins& host() const { return bins_; }

  const uint64_t* words() const { return words_.data(); }  // (n_tiles, n_rows)
  const on_device::DeviceTile* tiles() const { return tiles_.data(); }
  const on_device::DeviceFeature* features() const { return features_.data(); }
  const int32_t* places() const { return places_.data(); }  // per feature: 8 * tile + slot
  // Number of bins of all tiles, including the bins of missing values.
  int64_t n_bins() const { return n_bins_; }
  int64_t first_bin(int tile) const { return first_bin_[tile]; }
  bool has_categories() const { return has_categories_; }

  // Copy the codes (n_features, n_rows) to host memory; 255 is missing.
  void unpack(uint8_t* codes) const;

 private:
  // Exactly one of the two is given.
  DeviceBins(const std::shared_ptr<const Device>& device, const Bins* borrowed,
             std::unique_ptr<const Bins> owned);

  const std::shared_ptr<const Device> device_;
  const std::unique_ptr<const Bins> owned_;
  const Bins& bins_;
  DeviceBuffer<uint64_t> words_;
  DeviceBuffer<on_device::DeviceTile> tiles_;
  DeviceBuffer<on_device::DeviceFeature> features_;
  DeviceBuffer<int32_t> places_;
  int64_t n_bins_ = 0;
  std::vector<int64_t> first_bin_;
  bool has_categories_ = false;
};

}  // namespace polyleaf
