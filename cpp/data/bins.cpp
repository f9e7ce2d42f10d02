#include "data/bins.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <stdexcept>
#include <string>

#include "base/parallel.h"

namespace polyleaf {
namespace {

constexpr int64_t kSpareWords = 8;  // readable words after the last one of a tile
constexpr int64_t kBlock = 4096;    // rows per task: codes and words stay in the first-level cache

int log2_stride_for(int n_bins) {
  for (int bits : {2, 4, 6})
    if (n_bins <= (1 << bits) - 1) return bits;
  return 8;
}

// Spread the features of one stride evenly over as few tiles as possible, so that no tile is nearly
// empty.
std::vector<Tile> make_tiles(const std::vector<uint16_t>& n_bins,
                             const std::vector<int32_t>& features) {
  std::vector<Tile> tiles;
  for (int bits : {2, 4, 6, 8}) {
    std::vector<int32_t> members;
    for (int32_t f : features)
      if (log2_stride_for(n_bins[f]) == bits) members.push_back(f);
    const int n_tiles = static_cast<int>((members.size() + kTileFeatures - 1) / kTileFeatures);
    size_t next = 0;
    for (int t = 0; t < n_tiles; ++t) {
      Tile tile;
      tile.log2_stride = bits;
      tile.n_features =
          static_cast<int>((members.size() - next + (n_tiles - t) - 1) / (n_tiles - t));
      for (int s = 0; s < tile.n_features; ++s) tile.features[s] = members[next++];
      tiles.push_back(tile);
    }
  }
  return tiles;
}

// Return the tile of each feature; -1: none.
std::vector<int32_t> find_tiles(const std::vector<Tile>& tiles, int n_features) {
  std::vector<int32_t> found(n_features, -1);
  for (size_t t = 0; t < tiles.size(); ++t)
    for (int s = 0; s < tiles[t].n_features; ++s)
      found[tiles[t].features[s]] = static_cast<int32_t>(t);
  return found;
}

std::vector<int32_t> list_features(int n_features) {
  std::vector<int32_t> features(n_features);
  std::iota(features.begin(), features.end(), 0);
  return features;
}

}  // namespace

Bins::Bins(const uint8_t* codes, int64_t n_rows, int n_features, const uint16_t* n_bins,
           const uint8_t* is_categorical, const Context& context, const CompressedColumns& sparse)
    : n_rows_(n_rows),
      n_bins_(n_bins, n_bins + n_features),
      is_categorical_(is_categorical, is_categorical + n_features) {
  check();
  sparse_columns_ =
      SparseColumns(sparse, n_bins, n_features, n_rows, context);  // checks what lay_out reads
  lay_out(sparse);
  owned_.resize(tiles_.size());
  for (auto& w : owned_) {
    w.reserve(n_rows);
    words_.push_back(w.data());
  }
  pack(codes, 0, n_rows, context);
}

Bins::Bins(uint64_t* words, int64_t n_rows, int n_features, const uint16_t* n_bins,
           const uint8_t* is_categorical)
    : n_rows_(n_rows),
      n_bins_(n_bins, n_bins + n_features),
      is_categorical_(is_categorical, is_categorical + n_features),
      is_external_(true) {
  check();
  lay_out({});
  for (size_t t = 0; t < tiles_.size(); ++t)
    words_.push_back(words == nullptr ? nullptr
                                      : words + static_cast<int64_t>(t) * (n_rows + kSpareWords));
}

int64_t Bins::n_words(int64_t n_rows, int n_features, const uint16_t* n_bins) {
  const std::vector<uint16_t> each(n_bins, n_bins + n_features);
  return static_cast<int64_t>(make_tiles(each, list_features(n_features)).size()) *
         (n_rows + kSpareWords);
}

void Bins::check() const {
  if (n_rows_ < 0 || n_rows_ >= INT32_MAX)
    throw std::invalid_argument("Bins have at max_rows 2^31 - 2 rows.");
  for (uint16_t n : n_bins_)
    if (n > kMaxBins) throw std::invalid_argument("A feature has more than 255 value bins.");
}

// Assign a tile and a slot to every feature.
void Bins::lay_out(const CompressedColumns& sparse) {
  const int n_features = static_cast<int>(n_bins_.size());
  slot_of_.assign(n_features, -1);
  for (int64_t number = 0; number < sparse.n; ++number) {
    const int32_t f = sparse.features[number];
    if (is_categorical_[f])
      throw std::invalid_argument("A categorical feature cannot be stored sparse.");
    slot_of_[f] = static_cast<int32_t>(number);
  }
  row_of_.assign(n_features, -1);
  std::vector<int32_t> dense;
  for (int f = 0; f < n_features; ++f) {
    if (slot_of_[f] >= 0) continue;
    row_of_[f] = static_cast<int32_t>(dense.size());
    dense.push_back(f);
  }
  tiles_ = make_tiles(n_bins_, dense);
  tile_of_ = find_tiles(tiles_, n_features);
  group_of_ = sparse.n == 0
                  ? tile_of_
                  : find_tiles(make_tiles(n_bins_, list_features(n_features)), n_features);
  for (const Tile& tile : tiles_)
    for (int s = 0; s < tile.n_features; ++s) slot_of_[tile.features[s]] = s;
}

void Bins::pack(const uint8_t* codes, int64_t first, int64_t n, const Context& context) {
  const int64_t n_blocks = Block::count(n, kBlock);
  std::atomic<bool> is_invalid{false};
  parallel_for(context, n_blocks * n_tiles(), [&](int64_t task, int) {
    const Tile& tile = tiles_[task / n_blocks];
    uint64_t* words = words_[task / n_blocks] + first;
    const Block rows(n, kBlock, task % n_blocks);
    std::fill(words + rows.begin, words + rows.end, uint64_t{0});
    for (int s = 0; s < tile.n_features; ++s) {
      const uint8_t* column = codes + static_cast<int64_t>(row_of_[tile.features[s]]) * n;
      const uint8_t missing = static_cast<uint8_t>(tile.missing());
      const uint8_t limit = static_cast<uint8_t>(n_bins_[tile.features[s]]);
      uint8_t wrong = 0;
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        const uint8_t code = column[i];
        wrong |= static_cast<uint8_t>((code >= limit) & (code != kMissingCode));
        words[i] |= static_cast<uint64_t>(code == kMissingCode ? missing : code) << (8 * s);
      }
      if (wrong) is_invalid = true;
    }
  });
  if (is_invalid)
    throw std::invalid_argument("Feature codes must be below the number of bins of the feature.");
}

void Bins::unpack(uint8_t* codes, int64_t first, int64_t n, const Context& context) const {
  const int64_t n_blocks = Block::count(n, kBlock);
  parallel_for(context, n_blocks * n_tiles(), [&](int64_t task, int) {
    const Tile& tile = tiles_[task / n_blocks];
    const uint64_t* words = words_[task / n_blocks] + first;
    const Block rows(n, kBlock, task % n_blocks);
    for (int s = 0; s < tile.n_features; ++s) {
      uint8_t* column = codes + static_cast<int64_t>(row_of_[tile.features[s]]) * n;
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        const int code = static_cast<int>(words[i] >> (8 * s)) & 255;
        column[i] = static_cast<uint8_t>(code == tile.missing() ? kMissingCode : code);
      }
    }
  });
}

std::vector<int64_t> Bins::count_max_bin_rows(const Context& context) const {
  std::vector<int64_t> max_rows(tiles_.size(), 0);
  parallel_for(context, n_tiles(), [&](int64_t t, int) {
    std::array<std::array<uint32_t, 256>, kTileFeatures> counts = {};
    for (int64_t i = 0; i < n_rows_; ++i)
      for (int s = 0; s < kTileFeatures; ++s) ++counts[s][words_[t][i] >> (8 * s) & 255];
    for (int s = 0; s < tiles_[t].n_features; ++s)
      max_rows[t] =
          std::max<int64_t>(max_rows[t], *std::max_element(counts[s].begin(), counts[s].end()));
  });
  return max_rows;
}

std::vector<std::vector<uint32_t>> Bins::find_row_runs(int64_t max_count,
                                                       const Context& context) const {
  std::vector<std::vector<uint32_t>> ends(tiles_.size());
  parallel_for(context, n_tiles(), [&](int64_t t, int) {
    std::array<std::array<uint32_t, 256>, kTileFeatures> counts = {};
    for (int64_t i = 0; i < n_rows_; ++i) {
      bool is_full = false;
      for (int s = 0; s < tiles_[t].n_features; ++s)
        is_full |= counts[s][words_[t][i] >> (8 * s) & 255]++ == max_count;
      if (!is_full) continue;
      ends[t].push_back(static_cast<uint32_t>(i));
      counts = {};
      for (int s = 0; s < tiles_[t].n_features; ++s) counts[s][words_[t][i] >> (8 * s) & 255] = 1;
    }
    ends[t].push_back(static_cast<uint32_t>(n_rows_));
  });
  return ends;
}

size_t Bins::n_bytes() const {
  return owned_.size() * static_cast<size_t>(n_rows_) * sizeof(uint64_t) +
         sparse_columns_.n_bytes();
}

}  // namespace polyleaf
