// The coefficients of leaves: how much of a leaf's leaf_value each feature of its path is worth to
// a row.
//
// To know some features of a row is to know which of a leaf's conditions it meets; what is unknown
// is taken from the training rows (shares: leaf_paths.h) or from the rows of a background. How
// likely the row is in the leaf, given what is known, is a product of the features, and a
// coefficient is Shapley's value of a feature in it. It depends on which features the row holds,
// its *pattern*, and on nothing else: so where many rows are to be explained, all patterns of a
// leaf make a table. The two ways differ in how a coefficient is found, and a table has the bits of
// what it stands for.
//
// A linear leaf has more shap_coefficients, one a regressor: how likely the row is in the leaf
// *and* the regressor is known.
//
// Owns: coefficients. Must not know: leaf_values, outputs, whose rows these are.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "explain/leaf_paths.h"
#include "explain/pattern_counts.h"
#include "explain/quadrature.h"
#include "explain/shapley_weights.h"

namespace polyleaf {

// Codes of the columns that trees read, a tile of rows after the other: column c of a tile at c *
// kTileRows.
struct CodeTiles {
  int64_t n_columns = 0, n_rows = 0;
  Buffer<uint8_t> codes;
  const uint8_t* tile(int64_t t) const { return codes.data() + t * n_columns * kTileRows; }
};

// What all leaves need. Without `background` shares decide.
struct ShapConfig {
  std::vector<Quadrature> quadratures;  // by number of points
  std::unique_ptr<ShapleyWeights> weights;
  const CodeTiles* background = nullptr;

  // For paths of up to max_features features.
  void prepare(int32_t max_features);
  const Quadrature& quadrature(int32_t n_features) const;
};

// What one thread needs.
struct CoefficientScratch {
  Buffer<uint8_t> decisions, held;
  Buffer<double> integration;
  int32_t patterns[kTileRows];

  void reserve(const LeafPaths& paths);
};

// Bits 0 .. n_features - 1 of row r of what `hold` has written.
uint64_t get_pattern(const uint8_t* held, int32_t n_features, int r);

class LeafShapCoefficients {
 public:
  // For n_rows rows to explain: whether tables pay. `linear`: one more product for each regressor.
  LeafShapCoefficients(const LeafPaths& paths, const ShapConfig& config, bool linear, bool pairs,
                       int64_t n_rows);

  // Coefficients of leaf l: rows first_row(l) + product * n_terms(l) + term of all coefficients of
  // a tile.
  int32_t first_row(int32_t l) const { return leaves_[l].first_row; }
  int32_t n_terms(int32_t l) const { return leaves_[l].n_terms; }
  int32_t n_rows() const { return n_rows_; }

  // Writes the coefficients of leaf l for the rows that hold what scratch.held says.
  void write(int32_t l, int n_rows, CoefficientScratch& scratch, float* coefficients) const;

 private:
  struct Leaf {
    int32_t first_row, n_terms, n_products;
    int64_t table;  // position of the first product's; -1: none
  };
  void count_background();
  void add_leaf(int32_t l, bool linear, int64_t n_rows);
  void fill_tables(int32_t l);
  bool uses_table(int32_t l, int64_t n_rows) const;
  PathProduct path_product(int32_t l, int32_t g) const;
  void walk_patterns(int32_t l, int n_rows, const uint8_t* held, float* coefficients) const;

  const LeafPaths& paths_;
  const ShapConfig& config_;
  bool pairs_;
  int32_t n_rows_ = 0;
  std::vector<Leaf> leaves_;
  std::vector<double>
      shares_;  // of the shap_coefficients of regressors, each as long as its leaf's path
  std::vector<int64_t> shares_begin_;  // of each leaf
  std::vector<PatternCounts> counts_;  // of each leaf, with a background
  Buffer<float> tables_;
};

// Entries of a table of patterns, for each term.
inline int64_t table_step(int32_t n_features) {
  return n_features <= 4 ? kRowStep : int64_t{1} << n_features;
}

}  // namespace polyleaf
