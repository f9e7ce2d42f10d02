// Leaf values of some leaves of one tree for some outputs, and their combination with the
// coefficients of a tile of rows.
//
// Dense values and intercepts of linear leaves are centred on the tree's expectation: constants do
// not change contributions, and float32 keeps more digits.
#pragma once
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "explain/linear_shap.h"
#include "explain/shap_coefficients.h"

namespace polyleaf {

// Outputs that are processed together.
struct OutputChunk {
  const int32_t* outputs;
  int32_t n;
  const int32_t* output_position;  // position of every output in the chunk; -1: not in it
  const double* scale;             // scale of each output of the chunk; null: 1
};

// Contributions of a tile of rows: slot s (a feature or a pair of features), output at position k
// of the chunk and row r are at data[(s * n_outputs + k) * kTileRows + r].
struct ShapTile {
  float* data;
  int32_t n_outputs;
  int n_rows;  // a multiple of kRowStep
  float* at(int32_t slot, int32_t position) const {
    return data + (static_cast<int64_t>(slot) * n_outputs + position) * kTileRows;
  }
};

// The slots of all terms of all leaves.
struct LeafSlots {
  std::vector<int32_t> first;  // begin of each leaf's terms in `slots`
  std::vector<int32_t> slots;
  // Terms of each occurring slot: begin[i] .. begin[i + 1] - 1, in leaf order. A leaf value is
  // referred to by its leaf number.
  std::vector<int32_t> occurring, begin;
  std::vector<LeafValueTerm> terms;

  void add_leaf(const std::vector<int32_t>& term_slots);
  // call after the last leaf
  void sort(const LeafShapCoefficients& shap_coefficients, int32_t n_slots);
};

// Raw features of a tile's rows that linear leaves read: column c of row r is x[c * kTileRows + r].
struct TileRows {
  const float* x;
  int n_rows;  // without padding
};

struct ShapScratch {
  Buffer<float> shifts;
  Buffer<uint8_t> clipped;
  ClippedLinearShap slopes;
  InterventionalRows interventional;
  std::vector<double> contributions;
};

// Patterns and shifts of background rows in the linear leaves of one LeafPaths.
struct LinearBackground {
  int64_t n_rows = 0;
  std::vector<std::vector<uint64_t>> patterns;  // per leaf: one pattern per row
  std::vector<std::vector<double>> shifts;      // per leaf: [row][entry]
};

class ShapLeafValues {
 public:
  // output: the only output that is explained, with its column of the leaves; -1: all. centre:
  // expectation of the tree for each output of the chunk (or one number).
  ShapLeafValues(const LeafPaths& paths, const LeafView& leaves, int32_t output, int32_t column,
                 const OutputChunk& chunk, const std::vector<double>& centre);

  // Add all leaves; requires all coefficients of the tile.
  void add(const LeafSlots& slots, const float* coefficients, const ShapTile& tile) const;
  // Add the slopes of linear leaf l right after its coefficients were written; the coefficients
  // are multiplied by the rows' regressor shifts.
  void add_slopes(int32_t l, const LeafShapCoefficients& shap_coefficients,
                  const ShapConfig& config, const LeafSlots& slots, bool pairs, const uint8_t* held,
                  const TileRows& rows, float* coefficients, ShapScratch& scratch,
                  const ShapTile& tile) const;
  // Add all contributions of linear leaf l against a background.
  void add_interventional(int32_t l, const LinearBackground& background, const ShapConfig& config,
                          const LeafSlots& slots, bool pairs, const uint8_t* held,
                          const TileRows& rows, ShapScratch& scratch, const ShapTile& tile) const;

 private:
  void read_listed(const LeafView& leaves, const OutputChunk& chunk);
  void read_vectors(const LeafView& leaves, const OutputChunk& chunk,
                    const std::vector<double>& centre);
  void add_clipped(int32_t l, const PathProduct& product, const LeafSlots& slots,
                   const uint8_t* held, const TileRows& rows, ShapScratch& scratch,
                   const ShapTile& tile) const;

  const LeafPaths& paths_;
  int64_t column(const OutputChunk& chunk, int32_t k) const {
    return output_ < 0 ? chunk.outputs[k] : column_;
  }
  bool lists_outputs_;
  int32_t output_, column_, n_columns_ = 0,
                            position_ = 0;  // position of the first output in the chunk
  Buffer<float> values_;  // [leaf][column], centred; or a value per entry of listed outputs
  std::vector<int64_t> entry_begin_;                   // first listed output of each leaf
  std::vector<int32_t> positions_;                     // position of each listed output
  Buffer<float> weights_, intercept_, lower_, upper_;  // [regressor][column], [leaf][column]
  std::vector<float> centre_;                          // centre of each regressor
};

}  // namespace polyleaf
