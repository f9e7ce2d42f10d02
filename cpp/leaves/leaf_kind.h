// The kind of a leaf block as a table of functions. Each kind is one constant next to its block
// class; no other code distinguishes kinds.
//
// Training and prediction add leaf values with the same functions in the same order, so predicted
// raw scores of training rows are bitwise equal to those of training.
#pragma once
#include <cstdint>

namespace polyleaf {

class SparseAccumulator;
struct LeafKind;

// Raw features of some rows: feature f of row r is data[f * step + r]; NaN is missing; null if none
// are given.
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

// Leaf values of one tree as arrays. A vector has n_columns floats; vectors are `stride` floats
// apart and padded with 0.
struct LeafView {
  const LeafKind* kind;
  int32_t n_columns;  // number of outputs of a leaf
  int64_t stride;
  const float*
      // dense: a vector per leaf; sparse: a number per entry; linear: intercepts, like dense
      values;
  const int64_t* begin;  // sparse, linear: leaf l has the entries begin[l] .. begin[l + 1] - 1
  const int32_t* index;  // sparse: output of an entry; linear: feature
  const float* weights;  // linear: a vector per entry
  const float* centre;   // linear: a number per entry
  const float *lower, *upper;  // linear: a vector per leaf
};

// The leaves of a tree and their target: one `output`, or all outputs (-1).
struct LeafTarget {
  const LeafView* leaves;
  int32_t output;
};

constexpr int kPadRows = 8;  // rows of scores and leaf ids are padded to a multiple of this

// scores[r * row_step + k] += leaf value of column k, for n rows; leaf_of_row[r] is the leaf of row
// r.
using AddLeaves = void (*)(const LeafView& leaves, const uint32_t* leaf_of_row, int64_t n,
                           RowFeatures features, float* scores, int64_t row_step);

struct LeafKind {
  const char* name;  // name in Python and in model files
  // A leaf lists the outputs that it has values for; its tree must be for all outputs.
  bool is_sparse;
  // A leaf value is a clipped linear function of raw features.
  bool is_linear;
  // Return the function that adds leaves with this CPU's instruction set.
  AddLeaves (*adder)();
  // Add several all-output trees at once where that is faster; nullptr otherwise. leaf_of_row[t *
  // leaf_step + r]; `width`: stride of `scores`, that of a padded vector.
  void (*add_trees)(const LeafTarget* trees, int n_trees, const uint32_t* leaf_of_row,
                    int64_t leaf_step, int n_padded_rows, int width, float* scores);
  // Add the leaf values of one row, whose leaf in tree t is leaves[t], to its sums by output.
  void (*accumulate)(const LeafTarget* trees, int32_t n_trees, const uint32_t* leaves,
                     RowFeatures row, SparseAccumulator& sums);
};

}  // namespace polyleaf
