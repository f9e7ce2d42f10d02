// A kind of leaf: what whoever adds leaves to scores asks of it. Each kind is one constant, beside
// its block (dense_block.h, topk_block.h, linear_block.h); nobody else tells kinds apart, and there
// is no list of them.
//
// Training and prediction add payloads by the same functions, in the same order, so raw scores of
// training rows are predicted bit for bit.
//
// Owns: the contract. Must not know: which kinds there are, trees, how leaves are fitted.
#pragma once
#include <cstdint>

namespace polyleaf {

class SparseAccumulator;
struct LeafKind;

// Raw features of some rows: feature f of row r is data[f * step + r]. NaN is missing. Null: none
// given.
struct RowFeatures {
  const float* data;
  int64_t step;
};

// Raw features, feature-major: feature f of row r is data[f * n_rows + r].
struct FeatureMatrix {
  const float* data = nullptr;
  int64_t n_features = 0, n_rows = 0;
  RowFeatures from_row(int64_t row) const {
    return {data != nullptr ? data + row : nullptr, n_rows};
  }
};

// Payloads of one tree, as the arrays that its kind reads. A *vector* is n_columns floats; vectors
// are `stride` floats apart and padded with 0.
struct LeafView {
  const LeafKind* kind;
  int32_t n_columns;  // outputs that a leaf is for
  int64_t stride;
  const float*
      values;  // dense: a vector a leaf. sparse: a number an entry. linear: intercepts, as dense
  const int64_t* begin;  // sparse, linear: leaf l has the entries begin[l] .. begin[l + 1] - 1
  const int32_t* index;  // sparse: output of an entry; linear: feature
  const float* weights;  // linear: a vector an entry
  const float* centre;   // linear: a number an entry
  const float *lower, *upper;  // linear: a vector a leaf
};

// The leaves of a tree, and where they go: to `output`, of one column, or (-1) to all outputs.
struct LeafTarget {
  const LeafView* leaves;
  int32_t output;
};

constexpr int kPadRows = 8;  // rows of scores, and of leaf ids, are padded to a multiple of this

// scores[r * row_step + k] += payload of column k, for n rows; leaf_of_row[r] is the leaf of row r.
using AddLeaves = void (*)(const LeafView& leaves, const uint32_t* leaf_of_row, int64_t n,
                           RowFeatures features, float* scores, int64_t row_step);

struct LeafKind {
  const char* name;  // in Python and in model files
  // A leaf says itself which outputs it holds, few of all: its tree must be for all of them.
  bool is_sparse;
  // A payload is a linear function of raw features, held within bounds.
  bool is_linear;
  // What adds leaves on this machine: asked for once, called tree after tree.
  AddLeaves (*adder)();
  // The same for trees of all outputs, one after another, where that is faster; nullptr: it is not.
  // leaf_of_row[t * leaf_step + r]; `width`: from row to row of `scores`, that of a padded vector.
  void (*add_trees)(const LeafTarget* trees, int n_trees, const uint32_t* leaf_of_row,
                    int64_t leaf_step, int n_padded_rows, int width, float* scores);
  // Adds the payloads of one row, whose leaf in tree t is leaves[t], to its sums by output.
  void (*accumulate)(const LeafTarget* trees, int32_t n_trees, const uint32_t* leaves,
                     RowFeatures row, SparseAccumulator& sums);
};

}  // namespace polyleaf
