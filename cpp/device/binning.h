// Binning on a GPU: thresholds in GPU memory, with the same codes as BinTable (data/binning.h).
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "data/binning.h"
#include "data/bins.h"
#include "device/array.h"
#include "device/device.h"
#include "device/kernels/kernel_args.h"

namespace polyleaf {

class DeviceBinTable {
 public:
  // `categories`: values of categorical features; without them all features are numeric.
  DeviceBinTable(std::shared_ptr<const Device> device, const BinTable& table,
                 const std::vector<CategoryValues>& categories = {});

  int32_t n_features() const { return n_features_; }
  // Pack rows into the words of Bins, tile after tile.
  void pack(const on_device::Numbers& rows, int n_tiles, const on_device::DeviceTile* tiles,
            uint64_t* words) const;
  // Find codes (n_features, rows) of the `selected` features (a GPU array), or of all.
  void find_codes(const on_device::Numbers& rows, const int32_t* selected, int32_t n_selected,
                  uint8_t* codes) const;

 private:
  on_device::BinSearch search() const;

  const std::shared_ptr<const Device> device_;
  const int32_t n_features_;
  DeviceBuffer<on_device::SearchedFeature> features_;
  DeviceBuffer<float> narrow_;
  DeviceBuffer<double> wide_, known_;
  DeviceBuffer<uint8_t> known_codes_;
};

// Compute the codes (n_features, n_rows) in host memory.
void encode_device_array(const BinTable& table, const DeviceArray& array, uint8_t* codes);

}  // namespace polyleaf
