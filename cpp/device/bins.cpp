#include "device/bins.h"

#include <algorithm>
#include <stdexcept>

namespace polyleaf {

DeviceBins::DeviceBins(std::shared_ptr<const Device> device, const Bins& bins)
    : device_(device), bins_(bins), words_(device), tiles_(device), features_(device), places_(device) {
  if (bins.cells().n_features() > 0 || bins.stay())
    throw std::invalid_argument("A device reads features that are held dense, in memory.");
  const auto n_rows = static_cast<size_t>(bins.n_rows());
  words_.reserve(n_rows * bins.n_tiles());
  std::vector<on_device::TileAt> tiles(bins.n_tiles());
  std::vector<on_device::FeatureAt> features(bins.n_features());
  std::vector<int32_t> places(bins.n_features());
  for (int t = 0; t < bins.n_tiles(); ++t) {
    const Tile& tile = bins.tile(t);
    first_bin_.push_back(n_bins_);
    tiles[t] = {static_cast<int32_t>(n_bins_), tile.log2_stride, tile.n_features, {}};
    std::copy(tile.features, tile.features + kTileFeatures, tiles[t].features);
    for (int s = 0; s < tile.n_features; ++s) {
      const int f = tile.features[s];
      features[f] = {static_cast<int32_t>(n_bins_ + static_cast<int64_t>(s) * tile.stride()), bins.n_bins(f),
                     tile.missing(), !bins.is_categorical(f)};
      places[f] = 8 * t + s;
      has_categories_ |= bins.is_categorical(f);
    }
    n_bins_ += static_cast<int64_t>(tile.n_features) * tile.stride();
    device->write(reinterpret_cast<DeviceAddress>(words_.data() + t * n_rows), bins.words(t),
                  n_rows * sizeof(uint64_t));
  }
  tiles_.write(tiles);
  features_.write(features);
  places_.write(places);
}

}  // namespace polyleaf
