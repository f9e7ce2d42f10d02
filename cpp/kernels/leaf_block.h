// What the kernels read of one tree's leaves, and what they do with it: add payloads to raw scores.
//
// Training and prediction call the same kernels (dense vectors of many trees have faster ones in predict.h,
// and sums in order leave no choice of bits), so raw scores of training rows are predicted bit for bit.
#pragma once
#include <cstdint>

#include "isa.h"

namespace polyleaf {

enum class LeafKind : uint8_t { dense, sparse, linear };

// Payloads of one tree. A *vector* is n_columns floats; vectors are `stride` floats apart and padded with 0.
struct LeafView {
  LeafKind kind;
  int32_t n_columns;  // outputs that a leaf is for
  int64_t stride;
  const float*
      values;  // dense: a vector a leaf. sparse: a number an entry. linear: intercepts, a vector a leaf
  const int64_t* begin;        // sparse, linear: leaf l has the entries begin[l] .. begin[l + 1] - 1
  const int32_t* index;        // sparse: output of an entry; linear: feature
  const float* weights;        // linear: a vector an entry
  const float* centre;         // linear: a number an entry
  const float *lower, *upper;  // linear: a vector a leaf
};

// Rows in order; leaves[r] is the leaf of row r. scores[r * row_step + k] += payload of column k.
struct LeafBlockKernels {
  void (*add_dense)(const LeafView& view, const uint32_t* leaves, int64_t n_rows, float* scores,
                    int64_t row_step);
  void (*add_sparse)(const LeafView& view, const uint32_t* leaves, int64_t n_rows, float* scores,
                     int64_t row_step);
  // Feature f of row r is features[f * feature_step + r].
  void (*add_linear)(const LeafView& view, const uint32_t* leaves, int64_t n_rows, const float* features,
                     int64_t feature_step, float* scores, int64_t row_step);
};

POLYLEAF_DECLARE_KERNELS(LeafBlockKernels, leaf_block_kernels)

}  // namespace polyleaf
