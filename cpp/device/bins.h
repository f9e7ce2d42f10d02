// Codes of features on a device: the words of `Bins` (data/bins.h), tile after tile, and where
// features lie.
//
// Words come from memory of this machine, or are made there of numbers that lie there.
//
// Must not know: rows of nodes, derivatives.
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
  // Throws std::invalid_argument where features are held sparse.
  DeviceBins(std::shared_ptr<const Device> device, const Bins& bins);
  // Of numbers on a device; `layout`: where codes stand in words.
  DeviceBins(const DeviceArray& numbers, const BinTable& table, std::unique_ptr<const Bins> layout);

  const std::shared_ptr<const Device>& device() const { return device_; }
  const Bins& host() const { return bins_; }

  const uint64_t* words() const { return words_.data(); }  // (n_tiles, n_rows)
  const on_device::TileAt* tiles() const { return tiles_.data(); }
  const on_device::FeatureAt* features() const { return features_.data(); }
  const int32_t* places() const { return places_.data(); }  // of features: 8 * tile + slot
  // Bins of all tiles, one tile after another; of missing values too.
  int64_t n_bins() const { return n_bins_; }
  int64_t first_bin(int tile) const { return first_bin_[tile]; }
  bool has_categories() const { return has_categories_; }

  // The codes (n_features, n_rows), in memory of this machine; 255 is missing.
  void unpack(uint8_t* codes) const;

 private:
  // One of the two is there.
  DeviceBins(std::shared_ptr<const Device> device, const Bins* borrowed,
             std::unique_ptr<const Bins> owned);

  const std::shared_ptr<const Device> device_;
  const std::unique_ptr<const Bins> owned_;
  const Bins& bins_;
  DeviceBuffer<uint64_t> words_;
  DeviceBuffer<on_device::TileAt> tiles_;
  DeviceBuffer<on_device::FeatureAt> features_;
  DeviceBuffer<int32_t> places_;
  int64_t n_bins_ = 0;
  std::vector<int64_t> first_bin_;
  bool has_categories_ = false;
};

}  // namespace polyleaf
