// Feature codes as training reads them: tiles of up to eight features, one uint64 word per row and
// tile, so that one load feeds eight histogram updates and one move carries eight features to a
// child.
//
// Features are grouped by cardinality: within a tile every feature has the same `stride` (4, 16, 64
// or 256 bins, the last of them for missing values), so binary features cost histograms 64 times
// smaller than full ones.
//
// Features that are handed over as sparse columns have no tile: see sparse_columns.h.
//
// Words may lie in memory of the caller's, a mapped file say. Then they stay where they are: who
// reads them for some rows fetches these, and copies none to keep.
//
// Owns: packed codes. Must not know: derivatives, trees.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/bin_code.h"
#include "base/context.h"
#include "data/sparse_columns.h"

namespace polyleaf {

constexpr int kTileFeatures = 8;
using Slots = std::array<uint8_t, kTileFeatures>;  // of a tile, as flags

struct Tile {
  int n_features = 0;
  int log2_stride = 8;
  int32_t features[kTileFeatures] = {};  // column of each slot
  int stride() const { return 1 << log2_stride; }
  int missing() const { return stride() - 1; }
};

class Bins {
 public:
  // codes: a row for each feature that is not among the sparse ones, in order; code 255 is missing.
  // n_bins: value bins of each feature, 1..255 (0: all missing).
  Bins(const uint8_t* codes, int64_t n_rows, int n_features, const uint16_t* n_bins,
       const uint8_t* is_categorical, const Context& context, const CompressedColumns& sparse = {});
  // Of no codes yet, no feature sparse: `pack` writes them to `words`, which outlive this;
  // n_words(...) of them. nullptr: words lie elsewhere, and this says only where codes stand in
  // them.
  Bins(uint64_t* words, int64_t n_rows, int n_features, const uint16_t* n_bins,
       const uint8_t* is_categorical);
  static int64_t n_words(int64_t n_rows, int n_features, const uint16_t* n_bins);

  // Codes of rows first .. first + n - 1, a row for each feature that is not sparse, `n` in each.
  // In any order, each row once.
  void pack(const uint8_t* codes, int64_t first, int64_t n, const Context& context);
  // What was packed; no feature may be sparse.
  void unpack(uint8_t* codes, int64_t first, int64_t n, const Context& context) const;
  // The most rows that one code of a feature has, for each tile. Reads all words.
  std::vector<int64_t> count_max_bin_rows(const Context& context) const;
  // Runs of rows in which no code of a feature has more than `at_most`, for each tile: where each
  // ends, the last one behind all rows. Reads all words.
  std::vector<std::vector<uint32_t>> find_row_runs(int64_t at_most, const Context& context) const;
  // Whether words are not to be copied.
  bool is_external() const { return stay_; }

  Bins(const Bins&) = delete;
  Bins& operator=(const Bins&) = delete;

  int64_t n_rows() const { return n_rows_; }
  int n_features() const { return static_cast<int>(n_bins_.size()); }
  int n_tiles() const { return static_cast<int>(tiles_.size()); }
  const Tile& tile(int t) const { return tiles_[t]; }
  bool is_sparse(int feature) const { return tile_of_[feature] < 0; }
  // Where a feature that is not sparse lies.
  int tile_index(int feature) const { return tile_of_[feature]; }
  int slot_index(int feature) const { return slot_of_[feature]; }
  // The tile that a feature would lie in were none sparse: features that are looked at together,
  // however they are held.
  int feature_group(int feature) const { return group_of_[feature]; }
  const SparseColumns& sparse_columns() const { return cells_; }
  // Of a sparse feature: its number among them.
  int sparse_index(int feature) const { return slot_of_[feature]; }
  int n_bins(int feature) const { return n_bins_[feature]; }
  bool is_categorical(int feature) const { return is_categorical_[feature] != 0; }
  const uint64_t* words(int t) const { return words_[t]; }
  size_t n_bytes() const;

  // Code of one cell, 255 for missing.
  int code(int feature, int64_t row) const {
    if (is_sparse(feature)) return cells_.code(sparse_index(feature), row);
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

  std::vector<uint64_t*> words_;         // of each tile, n_rows_ of them
  std::vector<Buffer<uint64_t>> owned_;  // where they do not stay
  bool stay_ = false;
  std::vector<int32_t> row_of_;  // of codes: that of each feature that is not sparse
  SparseColumns cells_;
};

}  // namespace polyleaf
