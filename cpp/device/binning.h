// Binning on a GPU: thresholds in GPU memory, with the same codes as BinTable (data/binning.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "data/binning.h"
#include "data/bins.h"
#include "device/device.h"
#include "device/kernels/kernel_args.h"

namespace polyleaf {

// Arrays in GPU memory: a view of another library's memory, or memory of its own for results.

// A matrix in GPU memory; strides in bytes.
struct DeviceView {
  DeviceAddress data;
  ValueType type;
  int64_t n_rows, n_columns;
  ptrdiff_t row_stride, column_stride;
};

class DeviceArray {
 public:
  // A view; the owner must keep the memory alive. Throws DeviceError unless it is on this device.
  DeviceArray(std::shared_ptr<const Device> device, const DeviceView& view);
  // Allocate doubles (n_rows, n_columns).
  DeviceArray(std::shared_ptr<const Device> device, int64_t n_rows, int64_t n_columns);

  const std::shared_ptr<const Device>& device() const { return device_; }
  const DeviceView& view() const { return view_; }
  size_t item_size() const;
  on_device::Numbers rows(int64_t begin, int64_t end) const;
  on_device::Numbers numbers() const { return rows(0, view_.n_rows); }
  double* doubles() const { return own_.data(); }  // only for arrays that own their memory

  // Copy `n` rows (all if `rows` is null) to (n, n_columns) in C order.
  void read(const int64_t* rows, int64_t n, void* to) const;
  // Return row * n_columns + column of the first infinity; -1 if there is none.
  int64_t find_infinity() const;

 private:
  const std::shared_ptr<const Device> device_;
  DeviceBuffer<double> own_;
  DeviceView view_;
};

class DeviceBinTable {
 public:
  // `categories`: values of categorical features; without them all features are numeric.
  DeviceBinTable(const std::shared_ptr<const Device>& device, const BinTable& table,
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
  DeviceBuffer<float> float32_;
  DeviceBuffer<double> float64_, known_;
  DeviceBuffer<uint8_t> known_codes_;
};

// Compute the codes (n_features, n_rows) in host memory.
void encode_device_array(const BinTable& table, const DeviceArray& array, uint8_t* codes);

}  // namespace polyleaf
