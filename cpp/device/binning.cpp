#include "device/binning.h"

#include <algorithm>
#include <cstring>

namespace polyleaf {
DeviceBinTable::DeviceBinTable(std::shared_ptr<const Device> device, const BinTable& table,
                               const std::vector<CategoryValues>& categories)
    : device_(device),
      n_features_(table.n_features()),
      features_(device),
      narrow_(device),
      wide_(device),
      known_(device),
      known_codes_(device) {
  std::vector<on_device::SearchedFeature> features;
  for (const BinTable::Feature& f : table.features())
    features.push_back({static_cast<int64_t>(f.offset),
                        f.wide ? on_device::kWide : on_device::kNarrow, f.n_fine_rows});
  std::vector<double> known;
  std::vector<uint8_t> codes;
  for (const CategoryValues& c : categories) {
    features[c.feature] = {static_cast<int64_t>(known.size()), on_device::kKnown,
                           static_cast<int32_t>(c.values.size())};
    known.insert(known.end(), c.values.begin(), c.values.end());
    codes.insert(codes.end(), c.codes.begin(), c.codes.end());
  }
  features_.write(features);
  narrow_.write(table.narrow());
  wide_.write(table.wide());
  known_.write(known);
  known_codes_.write(codes);
}

on_device::BinSearch DeviceBinTable::search() const {
  return {features_.data(), narrow_.data(), wide_.data(), known_.data(), known_codes_.data()};
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
