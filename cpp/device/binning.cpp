#include "device/binning.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace polyleaf {

DeviceArray::DeviceArray(std::shared_ptr<const Device> device, const DeviceView& view)
    : device_(device), own_(std::move(device)), view_(view) {
  if (view.n_rows > 0 && view.n_columns > 0) device_->check_owns(view.data);
}

DeviceArray::DeviceArray(std::shared_ptr<const Device> device, int64_t n_rows, int64_t n_columns)
    : device_(device), own_(std::move(device)), view_{} {
  own_.reserve(static_cast<size_t>(n_rows * n_columns));
  constexpr ptrdiff_t kSize = sizeof(double);
  view_ = {reinterpret_cast<DeviceAddress>(own_.data()), ValueType::f64, n_rows, n_columns,
           static_cast<ptrdiff_t>(n_columns) * kSize,    kSize};
}

size_t DeviceArray::item_size() const {
  return value_size(view_.type);
}

on_device::Numbers DeviceArray::rows(int64_t begin, int64_t end) const {
  const auto* const data = reinterpret_cast<const char*>(view_.data);
  return {data + begin * view_.row_stride,
          end - begin,
          view_.row_stride,
          view_.column_stride,
          static_cast<int32_t>(view_.n_columns),
          static_cast<int32_t>(view_.type)};
}

void DeviceArray::read(const int64_t* rows, int64_t n, void* to) const {
  const auto row_bytes = std::max<int64_t>(1, view_.n_columns * static_cast<int64_t>(item_size()));
  const int64_t block_rows = std::max<int64_t>(1, kTransferBytes / row_bytes);
  DeviceBuffer<char> gathered(device_);
  DeviceBuffer<int64_t> chosen(device_);
  for (int64_t begin = 0; begin < n; begin += block_rows) {
    const int64_t m = std::min(block_rows, n - begin);
    gathered.reserve(static_cast<size_t>(m * row_bytes));
    if (rows != nullptr) chosen.write(rows + begin, static_cast<size_t>(m));
    device_->launch(
        device_->grid_for(m * std::max<int64_t>(1, view_.n_columns)),
        on_device::GatherRows{rows != nullptr ? numbers() : this->rows(begin, begin + m),
                              rows != nullptr ? chosen.data() : nullptr, m,
                              static_cast<int32_t>(item_size()), gathered.data()});
    gathered.read(static_cast<char*>(to) + begin * row_bytes,
                  static_cast<size_t>(m * view_.n_columns) * item_size());
  }
}

int64_t DeviceArray::find_infinity() const {
  if (view_.type != ValueType::f32 && view_.type != ValueType::f64) return -1;
  DeviceBuffer<uint64_t> first(device_);
  first.write({~uint64_t{0}});
  device_->launch(device_->grid_for(view_.n_rows * view_.n_columns),
                  on_device::FindInfinity{numbers(), first.data()});
  return static_cast<int64_t>(first.read(1)[0]);
}

DeviceBinTable::DeviceBinTable(const std::shared_ptr<const Device>& device, const BinTable& table,
                               const std::vector<CategoryValues>& categories)
    : device_(device),
      n_features_(table.n_features()),
      features_(device),
      float32_(device),
      float64_(device),
      known_(device),
      known_codes_(device) {
  std::vector<on_device::SearchedFeature> features;
  for (const BinTable::Feature& f : table.features())
    features.push_back({static_cast<int64_t>(f.offset),
                        f.is_float64 ? on_device::kFloat64 : on_device::kFloat32, f.n_fine_rows});
  std::vector<double> known;
  std::vector<uint8_t> codes;
  for (const CategoryValues& c : categories) {
    features[c.feature] = {static_cast<int64_t>(known.size()), on_device::kKnown,
                           static_cast<int32_t>(c.values.size())};
    known.insert(known.end(), c.values.begin(), c.values.end());
    codes.insert(codes.end(), c.codes.begin(), c.codes.end());
  }
  features_.write(features);
  float32_.write(table.float32_table());
  float64_.write(table.float64_table());
  known_.write(known);
  known_codes_.write(codes);
}

on_device::BinSearch DeviceBinTable::search() const {
  return {features_.data(), float32_.data(), float64_.data(), known_.data(), known_codes_.data()};
}

void DeviceBinTable::pack(const on_device::Numbers& rows, int n_tiles,
                          const on_device::DeviceTile* tiles, uint64_t* words) const {
  if (n_tiles == 0) return;
  Device::Grid grid = device_->grid_for(rows.n_rows);
  grid.y = n_tiles;
  device_->launch(grid, on_device::PackCodes{rows, search(), tiles, words});
}

void DeviceBinTable::find_codes(const on_device::Numbers& rows, const int32_t* selected,
                                int32_t n_selected, uint8_t* codes) const {
  if (n_selected == 0) return;
  Device::Grid grid = device_->grid_for(rows.n_rows);
  grid.y = n_selected;
  device_->launch(grid, on_device::FindCodes{rows, search(), selected, codes});
}

void encode_device_array(const BinTable& table, const DeviceArray& array, uint8_t* codes) {
  const DeviceBinTable device_table(array.device(), table);
  const int64_t n_rows = array.view().n_rows, n_features = table.n_features();
  const int64_t block_rows =
      std::max<int64_t>(1, kTransferBytes / std::max<int64_t>(1, n_features));
  DeviceBuffer<uint8_t> found(array.device());
  std::vector<uint8_t> host_codes;
  for (int64_t begin = 0; begin < n_rows; begin += block_rows) {
    const int64_t n = std::min(block_rows, n_rows - begin);
    found.reserve(static_cast<size_t>(n * n_features));
    device_table.find_codes(array.rows(begin, begin + n), nullptr, static_cast<int32_t>(n_features),
                            found.data());
    if (n == n_rows) return found.read(codes, static_cast<size_t>(n * n_features));
    host_codes = found.read(static_cast<size_t>(n * n_features));
    for (int64_t f = 0; f < n_features; ++f)
      std::memcpy(codes + f * n_rows + begin, host_codes.data() + f * n, static_cast<size_t>(n));
  }
}

}  // namespace polyleaf
