// The kind of a leaf block as a table of functions. Each kind is one constant next to its block
// class; no other code distinguishes kinds. Code that reads leaves, for example for explanations,
// reads them as functions of one form (LeafFunction).
//
// Training and prediction add leaf values with the same functions in the same order, so predicted
// raw scores of training rows are bitwise equal to those of training.
#pragma once
#include <algorithm>
#include <cstdint>

#include "base/check.h"

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

// One leaf: the value of the k-th output that it has a value for is
// clip(values[k] + sum over regressors e of weights[e * stride + k] * (x[regressors[e]] -
// centre[e]), lower[k], upper[k]). Without regressors and bounds it is a constant.
struct LeafFunction {
  const float* values;
  int64_t n_values;
  bool lists_outputs;      // values are for `outputs`, otherwise for all outputs of the tree
  const int32_t* outputs;  // ascending
  const float *lower = nullptr, *upper = nullptr;  // nullptr: no bounds
  const int32_t* regressors = nullptr;             // features, ascending
  const float *centre = nullptr, *weights = nullptr;
  int64_t n_regressors = 0, stride = 0;

  // Return the value of the k-th output where all regressors are missing or at their centre.
  double value_at_centre(int64_t k) const {
    POLYLEAF_DCHECK(k >= 0 && k < n_values);
    const double value = values[k];
    return lower == nullptr ? value : std::min(std::max(value, double{lower[k]}), double{upper[k]});
  }
};

// The leaves of a tree and the outputs that their columns are for; null: all outputs in order.
struct LeafTarget {
  const LeafView* leaves;
  const int32_t* outputs;
};

constexpr int kPadRows = 8;  // rows of scores and leaf ids are padded to a multiple of this

// scores[r * row_step + k] += leaf value of column k, for n rows; leaf_of_row[r] is the leaf of row
// r.
using AddLeaves = void (*)(const LeafView& leaves, const uint32_t* leaf_of_row, int64_t n,
                           RowFeatures features, float* scores, int64_t row_step);

struct LeafKind {
  const char* name;  // name in Python and in model files
  // A leaf lists the outputs that it has values for; its tree must be for all outputs.
  bool lists_outputs;
  // Leaf values depend on raw features: LeafFunction has regressors and bounds.
  bool reads_features;
  // Return the function that adds leaves with this CPU's instruction set.
  AddLeaves (*adder)();
  // Add several all-output trees at once where that is faster; nullptr otherwise. leaf_of_row[t *
  // leaf_step + r]; `width`: stride of `scores`, that of a padded vector.
  void (*add_trees)(const LeafTarget* trees, int n_trees, const uint32_t* leaf_of_row,
                    int64_t leaf_step, int n_padded_rows, int width, float* scores);
  // Add the leaf values of one row, whose leaf in tree t is leaves[t], to its sums by output.
  void (*accumulate)(const LeafTarget* trees, int32_t n_trees, const uint32_t* leaves,
                     RowFeatures row, SparseAccumulator& sums);
  // Return a leaf as a function; its arrays are those of the view.
  LeafFunction (*function)(const LeafView& leaves, int64_t leaf);

  // A leaf is a vector of constants for all outputs of its tree.
  bool is_vector() const { return !lists_outputs && !reads_features; }
};

}  // namespace polyleaf
