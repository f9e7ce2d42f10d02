// Feature codes in the layout of training: tiles of up to eight features, one uint64 word per row
// and tile, so that one load feeds eight histogram updates and one move carries eight features to a
// child.
//
// Features are grouped by cardinality: within a tile every feature has the same `stride` (4, 16, 64
// or 256 bins, the last of them for missing values), so binary features have histograms 64 times
// smaller than full ones.
//
// Sparse features have no tile: see sparse_columns.h.
//
// Words may be external, in the caller's memory or a mapped file. Then they are read in place and
// never copied as a whole.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/bin_code.h"
#include "base/check.h"
#include "base/context.h"
#include "data/sparse_columns.h"

namespace polyleaf {

constexpr int kTileFeatures = 8;
using Slots = std::array<uint8_t, kTileFeatures>;  // flags of the slots of a tile

struct Tile {
  int n_features = 0;
  int log2_stride = 8;
  int32_t features[kTileFeatures] = {};  // feature of each slot
  int stride() const { return 1 << log2_stride; }
  int missing() const { return stride() - 1; }
};

class Bins {
 public:
  // codes: one row per dense feature, in order; code 255 is missing. n_bins: value bins of each
  // feature, 1..255 (0: all missing).
  Bins(const uint8_t* codes, int64_t n_rows, int n_features, const uint16_t* n_bins,
       const uint8_t* is_categorical, const Context& context, const CompressedColumns& sparse = {});
  // Make bins without codes and without sparse features: `pack` writes codes to `words`,
  // n_words(...) external words that outlive this. nullptr: there are no words; only the layout is
  // known.
  Bins(uint64_t* words, int64_t n_rows, int n_features, const uint16_t* n_bins,
       const uint8_t* is_categorical);
  static int64_t n_words(int64_t n_rows, int n_features, const uint16_t* n_bins);

  // Pack the codes of rows first .. first + n - 1, one row per dense feature with `n` codes each.
  // Blocks come in any order, each row once.
  void pack(const uint8_t* codes, int64_t first, int64_t n, const Context& context);
  // Write the packed codes; no feature may be sparse.
  void unpack(uint8_t* codes, int64_t first, int64_t n, const Context& context) const;
  // Return the number of rows of the largest bin of each tile. Reads all words.
  std::vector<int64_t> count_max_bin_rows(const Context& context) const;
  // Return the ends of row runs in which no bin has more than `max_count` rows, for each tile; the
  // last end is n_rows. Reads all words.
  std::vector<std::vector<uint32_t>> find_row_runs(int64_t max_count, const Context& context) const;
  // Return whether words are external and must not be copied.
  bool is_external() const { return is_external_; }

  Bins(const Bins&) = delete;
  Bins& operator=(const Bins&) = delete;

  int64_t n_rows() const { return n_rows_; }
  int n_features() const { return static_cast<int>(n_bins_.size()); }
  int n_tiles() const { return static_cast<int>(tiles_.size()); }
  const Tile& tile(int t) const { return tiles_[t]; }
  bool is_sparse(int feature) const { return tile_of_[feature] < 0; }
  // Tile and slot of a dense feature.
  int tile_index(int feature) const {
    POLYLEAF_DCHECK(!is_sparse(feature));
    return tile_of_[feature];
  }
  int slot_index(int feature) const {
    POLYLEAF_DCHECK(!is_sparse(feature));
    return slot_of_[feature];
  }
  // Return the tile that a feature would lie in if no feature were sparse: groups do not depend on
  // how features are stored.
  int feature_group(int feature) const { return group_of_[feature]; }
  const SparseColumns& sparse_columns() const { return sparse_columns_; }
  // Return the index of a sparse feature among the sparse ones.
  int sparse_index(int feature) const {
    POLYLEAF_DCHECK(is_sparse(feature));
    return slot_of_[feature];
  }
  int n_bins(int feature) const { return n_bins_[feature]; }
  bool is_categorical(int feature) const { return is_categorical_[feature] != 0; }
  const uint64_t* words(int t) const { return words_[t]; }
  size_t n_bytes() const;

  // Return the code of one value, 255 for missing.
  int code(int feature, int64_t row) const {
    if (is_sparse(feature)) return sparse_columns_.code(sparse_index(feature), row);
    const Tile& tile = tiles_[tile_of_[feature]];
    const int code =
        static_cast<int>(words_[tile_of_[feature]][row] >> (8 * slot_of_[feature])) & 255;
    return code == tile.missing() ? kMissingCode : code;
  }

 private:
  int64_t n_rows_;
  std::vector<uint16_t> n_bins_;
  std::vector<uint8_t> is_categorical_;
  std::vector<Tile> tiles_;
  std::vector<int32_t> tile_of_, slot_of_, group_of_;
  void check() const;
  void lay_out(const CompressedColumns& sparse);

  std::vector<uint64_t*> words_;         // of each tile, n_rows_ each
  std::vector<Buffer<uint64_t>> owned_;  // words that are not external
  bool is_external_ = false;
  std::vector<int32_t> row_of_;  // row of `codes` of each dense feature
  SparseColumns sparse_columns_;
};

}  // namespace polyleaf
