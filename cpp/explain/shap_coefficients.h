// SHAP coefficients of leaves: the fraction of a leaf value that is attributed to each feature of
// its path.
//
// Knowing some features of a row determines which conditions of a leaf are satisfied; unknown
// features follow the training rows (the shares of `LeafPaths`) or a background data set. The
// probability that the row reaches the leaf is a cooperative game of the features, and a
// coefficient is a feature's Shapley value in it. It depends only on the pattern of satisfied
// features, so if many rows are explained, all patterns of a leaf are tabulated. A table entry has
// the bits of the direct computation.
//
// A linear leaf has an additional game per regressor: the probability that the row reaches the leaf
// and the regressor is known.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "explain/kernels/shap_kernels.h"
#include "explain/pattern_counts.h"
#include "explain/shapley_weights.h"
#include "grower/tree.h"
#include "leaves/leaf_block.h"

namespace polyleaf {

// Paths to the leaves of a tree by feature: the conditions on each feature for a row to reach a
// leaf, and their probability.
//
// A path may split on a feature several times; these splits are merged. A row satisfies the feature
// if it goes towards the leaf at all of them. The share of a feature is the product, over its
// splits, of the fraction of training rows that go to the child on the path.
// Features of the path: first .. first + n_features - 1. A linear leaf also has regressors that the
// path does not split on; all rows satisfy them, with share 1. Regressors: first_entry ..
// first_entry + n_entries - 1.
struct LeafPath {
  int32_t leaf, first, n_features, first_entry, n_entries;
};

// Up to kLeafGroupSize leaves of one tree.
struct LeafPaths {
  std::vector<SplitOnCodes> splits;
  std::vector<std::array<uint8_t, 256>> categories;  // code tables of categorical splits
  std::vector<LeafPath> leaves;
  std::vector<int32_t> columns;  // column of each feature of each path in code tables
  std::vector<double> shares;
  // The tests of feature i are test_begin[i] .. test_begin[i + 1] - 1.
  std::vector<int32_t> test_begin;
  std::vector<SplitOnPath> tests;
  // Of each entry of a linear leaf: which of the path's features it is.
  std::vector<int32_t> regressors;

  int32_t max_features() const;  // largest number of features of a path
};

constexpr int32_t kLeafGroupSize = 64;

// feature_column[f] is the column of feature f. Paths copy what they need of the tree.
std::vector<LeafPaths> make_leaf_paths(const Tree& tree, const LeafView& leaves,
                                       const std::vector<int32_t>& feature_column);

// Codes of the columns that trees read, tile after tile: column c of a tile is at c * kTileRows.
struct CodeTiles {
  int64_t n_columns = 0, n_rows = 0;
  Buffer<uint8_t> codes;
  const uint8_t* tile(int64_t t) const { return codes.data() + t * n_columns * kTileRows; }
};

// Configuration shared by all leaves. Without `background` the shares are used.
struct ShapConfig {
  std::vector<Quadrature> quadratures;  // by number of points
  std::unique_ptr<ShapleyWeights> weights;
  const CodeTiles* background = nullptr;

  // Prepare for paths of up to max_features features.
  void prepare(int32_t max_features);
  const Quadrature& quadrature(int32_t n_features) const;
};

// Scratch memory of one thread.
struct CoefficientScratch {
  Buffer<uint8_t> decisions, held;
  Buffer<double> integration;
  int32_t patterns[kTileRows];

  void reserve(const LeafPaths& paths);
};

// Return the pattern of row r: bits 0 .. n_features - 1 as written by `hold`.
uint64_t get_pattern(const uint8_t* held, int32_t n_features, int r);

class LeafShapCoefficients {
 public:
  // n_rows: rows to explain, which decides whether tables are used. `linear`: one more game per
  // regressor.
  LeafShapCoefficients(const LeafPaths& paths, const ShapConfig& config, bool linear, bool pairs,
                       int64_t n_rows);

  // Coefficients of leaf l are rows first_row(l) + product * n_terms(l) + term of a tile's
  // coefficients.
  int32_t first_row(int32_t l) const { return leaves_[l].first_row; }
  int32_t n_terms(int32_t l) const { return leaves_[l].n_terms; }
  int32_t n_rows() const { return n_rows_; }

  // Write the coefficients of leaf l for the rows described by scratch.held.
  void write(int32_t l, int n_rows, CoefficientScratch& scratch, float* coefficients) const;

 private:
  struct Leaf {
    int32_t first_row, n_terms, n_products;
    int64_t table;  // offset of the first product's table; -1: none
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
  // Shares of the regressors' products, each as long as its leaf's path.
  std::vector<double> shares_;
  std::vector<int64_t> shares_begin_;  // offset for each leaf
  std::vector<PatternCounts> counts_;  // for each leaf, with a background
  Buffer<float> tables_;
};

// Number of entries of a table of patterns, per term.
inline int64_t table_step(int32_t n_features) {
  return n_features <= 4 ? kRowStep : int64_t{1} << n_features;
}

}  // namespace polyleaf
