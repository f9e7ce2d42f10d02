#include "device/bins.h"

#include <algorithm>
#include <stdexcept>

namespace polyleaf {

DeviceBins::DeviceBins(const std::shared_ptr<const Device>& device, const Bins* borrowed,
                       std::unique_ptr<const Bins> owned)
    : device_(device),
      owned_(std::move(owned)),
      bins_(borrowed != nullptr ? *borrowed : *owned_),
      words_(device),
      tiles_(device),
      features_(device),
      places_(device) {
  const Bins& bins = bins_;
  if (bins.sparse_columns().n_features() > 0)
    throw std::invalid_argument("A device reads features that are held dense.");
  words_.reserve(static_cast<size_t>(bins.n_rows()) * bins.n_tiles());
  std::vector<on_device::DeviceTile> tiles(bins.n_tiles());
  std::vector<on_device::DeviceFeature> features(bins.n_features());
  std::vector<int32_t> places(bins.n_features());
  for (int t = 0; t < bins.n_tiles(); ++t) {
    const Tile& tile = bins.tile(t);
    first_bin_.push_back(n_bins_);
    tiles[t] = {static_cast<int32_t>(n_bins_), tile.log2_stride, tile.n_features, {}};
    std::copy(tile.features, tile.features + kTileFeatures, tiles[t].features);
    for (int s = 0; s < tile.n_features; ++s) {
      const int f = tile.features[s];
      features[f] = {static_cast<int32_t>(n_bins_ + static_cast<int64_t>(s) * tile.stride()),
                     bins.n_bins(f), tile.missing(), !bins.is_categorical(f)};
      places[f] = 8 * t + s;
      has_categories_ |= bins.is_categorical(f);
    }
    n_bins_ += static_cast<int64_t>(tile.n_features) * tile.stride();
  }
  tiles_.write(tiles);
  features_.write(features);
  places_.write(places);
}

DeviceBins::DeviceBins(std::shared_ptr<const Device> device, const Bins& bins)
    : DeviceBins(std::move(device), &bins, nullptr) {
  const auto n_rows = static_cast<size_t>(bins.n_rows());
  for (int t = 0; t < bins.n_tiles(); ++t)
    device_->write(reinterpret_cast<DeviceAddress>(words_.data() + t * n_rows), bins.words(t),
                   n_rows * sizeof(uint64_t));
}

DeviceBins::DeviceBins(const DeviceArray& numbers, const BinTable& table,
                       std::unique_ptr<const Bins> layout)
    : DeviceBins(numbers.device(), nullptr, std::move(layout)) {
  DeviceBinTable(device_, table)
      .pack(numbers.numbers(), bins_.n_tiles(), tiles_.data(), words_.data());
}

void DeviceBins::unpack(uint8_t* codes) const {
  const int64_t n_rows = bins_.n_rows();
  std::vector<uint64_t> words(n_rows);
  for (int t = 0; t < bins_.n_tiles(); ++t) {
    words_.read(words.data(), words.size(), static_cast<size_t>(t * n_rows));
    const Tile& tile = bins_.tile(t);
    for (int s = 0; s < tile.n_features; ++s)
      for (int64_t i = 0; i < n_rows; ++i) {
        const auto code = static_cast<uint8_t>(words[i] >> (8 * s));
        codes[tile.features[s] * n_rows + i] =
            static_cast<uint8_t>(code == tile.missing() ? kMissingCode : code);
      }
  }
}

}  // namespace polyleaf
