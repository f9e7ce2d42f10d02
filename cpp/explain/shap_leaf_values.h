// Payloads of some leaves of one tree for some outputs, and how coefficients of a tile of rows turn
// them into contributions.
//
// Dense leaf_values, and intercepts of linear leaves, are taken less the tree's expectation: that
// changes no contribution, since a constant is worth nothing to any feature, and spares float32 the
// difference of large numbers.
//
// Owns: which outputs a leaf pays out to, and what each kind of leaf adds. Must not know: how
// coefficients are found.
#pragma once
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "explain/clipped_linear_shap.h"
#include "explain/interventional_rows.h"
#include "explain/shap_coefficients.h"

namespace polyleaf {

// Outputs that are worked on together.
struct OutputChunk {
  const int32_t* outputs;
  int32_t n;
  const int32_t* position_of;  // of every output there is; -1: not in the chunk
  const double* scale;  // leaf_values are multiplied by it; of each output of the chunk. Null: 1
};

// Contributions of a tile of rows: of slot s, which is a feature or a pair of features, for the
// output at position k of the chunk, and row r at data[(s * n_outputs + k) * kTileRows + r].
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
  std::vector<int32_t> first;  // of each leaf: where its terms begin in `slots`
  std::vector<int32_t> slots;
  // The terms of each slot that occurs: terms begin[i] .. begin[i + 1] - 1, in order of the leaves.
  // A leaf_value is the number of a leaf.
  std::vector<int32_t> occurring, begin;
  std::vector<LeafValueTerm> terms;

  void add_leaf(const std::vector<int32_t>& term_slots);
  void sort(const LeafShapCoefficients& shap_coefficients, int32_t n_slots);  // after the last leaf
};

// Raw features of the rows of a tile that linear leaves read: column c of row r at x[c * kTileRows
// + r].
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

// What rows of a background are in the linear leaves of one LeafPaths.
struct LinearBackground {
  int64_t n_rows = 0;
  std::vector<std::vector<uint64_t>> patterns;  // of each leaf, a number a row
  std::vector<std::vector<double>> shifts;      // of each leaf: [row][entry]
};

class ShapLeafValues {
 public:
  // output: the only one of the tree; -1: all. centre: expectation of the tree for each output of
  // the chunk (one number, where the tree has one output).
  ShapLeafValues(const LeafPaths& paths, const LeafView& leaves, int32_t output,
                 const OutputChunk& chunk, const std::vector<double>& centre);

  // After all coefficients of the tile are written.
  void add(const LeafSlots& slots, const float* coefficients, const ShapTile& tile) const;
  // Slopes of linear leaf l, right after its coefficients are written; they are multiplied by what
  // the rows have of the regressors.
  void add_slopes(int32_t l, const LeafShapCoefficients& shap_coefficients,
                  const ShapConfig& config, const LeafSlots& slots, bool pairs, const uint8_t* held,
                  const TileRows& rows, float* coefficients, ShapScratch& scratch,
                  const ShapTile& tile) const;
  // All that linear leaf l contributes against a background.
  void add_interventional(int32_t l, const LinearBackground& background, const ShapConfig& config,
                          const LeafSlots& slots, bool pairs, const uint8_t* held,
                          const TileRows& rows, ShapScratch& scratch, const ShapTile& tile) const;

 private:
  void read_dense(const LeafView& leaves, const OutputChunk& chunk,
                  const std::vector<double>& centre);
  void read_topk(const LeafView& leaves, const OutputChunk& chunk);
  void read_linear(const LeafView& leaves, const OutputChunk& chunk,
                   const std::vector<double>& centre);
  void add_clipped(int32_t l, const PathProduct& product, const LeafSlots& slots,
                   const uint8_t* held, const TileRows& rows, ShapScratch& scratch,
                   const ShapTile& tile) const;

  const LeafPaths& paths_;
  bool is_sparse_;
  int32_t output_, n_columns_ = 0,
                   position_ = 0;  // outputs of the chunk that the tree is for: where they begin
  Buffer<float> values_;  // dense, linear: [leaf][column], centred. Top-k: a number an entry
  std::vector<int64_t> entry_begin_;                   // top-k: of each leaf
  std::vector<int32_t> positions_;                     // top-k: of each entry
  Buffer<float> weights_, intercept_, lower_, upper_;  // linear: [entry][column], [leaf][column]
  std::vector<float> centre_;                          // linear: of each entry
};

}  // namespace polyleaf
