// Data and interface of the SHAP kernels (explainer.h): from codes to coefficients, and from
// coefficients and leaf values to contributions.
//
// Rows are processed in tiles of up to kTileRows. Values of different rows are contiguous, so lanes
// are rows and the number of outputs does not matter: a value of a tile's row is at [... *
// kTileRows + row]. n_rows is a multiple of kRowStep; padding rows may contain anything.
#pragma once
#include <cstdint>

#include "base/isa.h"

namespace polyleaf {

constexpr int kTileRows = 64;
constexpr int kRowStep = 16;
// Patterns of up to this many features have tables; a table has at least kRowStep entries.
constexpr int kTableBits = 12;

// One split. Code c goes left when (uint8)(c + shift) <= cut, or for a categorical split when
// left[c] is 255.
struct SplitOnCodes {
  int32_t feature;  // column of the codes
  uint8_t cut, shift;
  const uint8_t* left;  // 255 or 0 for each of 256 codes; null: numeric
};

// A row satisfies a feature of a leaf's path if it goes towards the leaf at all splits on it.
struct SplitOnPath {
  int32_t split;
  uint8_t right;  // 255 if the leaf is to the right, else 0
};

// The product form of one leaf's probability given known features, where unknown features are
// shares of the training rows.
struct PathProduct {
  int32_t n_features, n_points;
  const double* shares;       // share of each feature
  const double *at, *weight;  // nodes and weights of the quadrature
  bool pairs;                 // pair coefficients follow the single ones
};

// A term adds a row of coefficients times a vector of leaf values.
struct LeafValueTerm {
  int32_t coefficients, leaf_value;
};

// The slopes of one linear leaf (n_entries vectors of n_outputs numbers, `stride` apart) and its
// bounds.
struct LeafSlopes {
  const float *weights, *intercept, *lower, *upper;
  int32_t n_entries, n_outputs;
  int64_t stride;
};

struct ShapKernels {
  // decisions[split][row] is 255 if the row goes left, else 0. Column f of the codes is at f *
  // kTileRows.
  void (*decide)(const SplitOnCodes* splits, int32_t n_splits, const uint8_t* codes,
                 uint8_t* decisions);
  // held[feature][row] is 255 if the row satisfies the feature, else 0. Feature j has the tests
  // test_begin[j] .. test_begin[j + 1] - 1.
  void (*hold)(const SplitOnPath* tests, const int32_t* test_begin, int32_t n_features,
               const uint8_t* decisions, uint8_t* held);
  // Bit j of patterns[row] is set if feature j is satisfied. At most 16 features.
  void (*encode_patterns)(const uint8_t* held, int32_t n_features, int32_t* patterns);
  // coefficients[term][row] = table[term][pattern of the row], for tables of max(kRowStep,
  // 2^n_bits) entries.
  void (*look_up)(const float* table, int32_t n_bits, int32_t n_terms, const int32_t* patterns,
                  int n_rows, float* coefficients);
  // Compute coefficients[term * coefficient_step + row] from held[feature * held_step + row].
  // scratch: `integration_scratch` doubles, aligned like a Buffer.
  void (*integrate)(const PathProduct& product, const uint8_t* held, int64_t held_step, int n_rows,
                    float* coefficients, int64_t coefficient_step, double* scratch);
  // tile[output][row] += sum over the terms, in order from 0, of coefficient[row] *
  // leaf_value[output].
  void (*add_terms)(const LeafValueTerm* terms, int32_t n_terms, const float* coefficients,
                    const float* leaf_value, int64_t stride, int32_t n_outputs, int n_rows,
                    float* tile);
  // tile[outputs[e]][row] += coefficient[row] * values[e], for each entry e.
  void (*add_entries)(const float* coefficients, const int32_t* outputs, const float* values,
                      int32_t n_entries, int n_rows, float* tile);
  // shifts[entry][row] = x - centre if it is a number and the row is held, else 0.
  void (*shift)(const float* x, float centre, const uint8_t* held, int n_rows, float* shifts);
  // coefficients[term][row] *= shifts[row]
  void (*scale)(const float* shifts, int32_t n_terms, int n_rows, float* coefficients);
  // clipped[output][row] is 255 if the value of some subset of the row's regressors
  // (shifts[entry][row]) may leave the leaf's bounds, else 0. Returns whether any is.
  bool (*find_clipped)(const LeafSlopes& leaf, const float* shifts, int n_rows, uint8_t* clipped);
  // tile[output][row] += sum over entries of coefficients[entry * entry_step + row] *
  // weights[entry][output], where not clipped.
  void (*add_slopes)(const LeafSlopes& leaf, const float* coefficients, int64_t entry_step,
                     const uint8_t* clipped, int n_rows, float* tile);
  // out[row * row_step + output] += tile[output][row] of n_rows rows, any number.
  void (*write)(const float* tile, int32_t n_outputs, int n_rows, float* out, int64_t row_step);
};

// Number of doubles that `integrate` needs for the factors of all points (padded so that vectors
// behind them are aligned), and in total.
POLYLEAF_INLINE int64_t integration_factors(int64_t n_features, int64_t n_points) {
  return (n_points * n_features + 7) / 8 * 8;
}
POLYLEAF_INLINE int64_t integration_scratch(int64_t n_features, int64_t n_points) {
  return integration_factors(n_features, n_points) +
         8 * (4 * n_features + n_features * (n_features + 1) / 2);
}

POLYLEAF_DECLARE_KERNELS(ShapKernels, shap_kernels)

}  // namespace polyleaf
