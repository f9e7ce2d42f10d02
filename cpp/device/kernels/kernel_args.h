// Kernel arguments: one struct per kernel, passed by value; `kName` is the kernel's name. Pointers
// are GPU addresses. Both the kernels and the host code include this file. `shared` returns the
// bytes of dynamic shared memory.
#pragma once
#include <cstdint>

#include "forest/score_transform.h"

namespace polyleaf::on_device {

// Whether a block accumulates n numbers (per column, or sums of leaves) in shared memory before it
// adds them to global memory.
constexpr bool can_share_columns(int64_t n) {
  return n <= 1024;
}
constexpr bool can_share_sums(int64_t n) {
  return n <= 4096;
}

constexpr int kScanThreads = 256;  // threads of a scan block: one for each bin of a feature

// The row sample: all `n` rows or the ascending `rows`; `multiplier` scales the derivatives of a
// row.
struct Sample {
  const uint32_t* rows;  // nullptr: 0, 1, ...
  int64_t n;
  const float* multiplier;  // nullptr: 1
};

// --- quantised gradients

// largest[j] = max(largest[j], bits of |value * multiplier|), compared as integers, so that NaN is
// the largest.
struct LargestMagnitudes {
  static constexpr const char* kName = "compute_max_magnitudes";
  const float* values;  // (n_all, n_columns)
  int32_t n_columns;
  Sample sample;
  int32_t* largest;
  constexpr int64_t shared(int) const {
    return can_share_columns(n_columns) ? int64_t{sizeof(int32_t)} * n_columns : 0;
  }
};

// channels[row][offset + j] = q = rint(value * multiplier * inverse_j); sizes_j += |q|; totals_j +=
// q.
struct Quantise {
  static constexpr const char* kName = "quantise";
  const float* values;
  int32_t n_columns;
  Sample sample;
  const float* inverse;
  int16_t* channels;
  int32_t lanes, offset;
  int32_t count_lane;  // lane set to 1; -1: none
  int64_t* sizes;
  int64_t* totals;
  constexpr int64_t shared(int) const {
    return can_share_columns(n_columns) ? 2 * int64_t{sizeof(int64_t)} * n_columns : 0;
  }
};

// squares[j] += channels[row][j]^2, for the gradient columns.
struct SumSquares {
  static constexpr const char* kName = "sum_squares";
  const int16_t* channels;
  int32_t n_columns, lanes;
  Sample sample;
  int64_t* squares;
  constexpr int64_t shared(int) const {
    return can_share_columns(n_columns) ? int64_t{sizeof(int64_t)} * n_columns : 0;
  }
};

// --- tiles

struct DeviceTile {
  int32_t first_bin, log2_stride, n_features;
  int32_t features[8];
};

// --- numbers and their codes

// A matrix in memory of any library; strides in bytes.
struct Numbers {
  const char* data;
  int64_t n_rows, row_stride, column_stride;
  int32_t n_columns;
  int32_t type;  // ValueType (data/binning.h)
};

// How a feature's numbers are binned: by float thresholds, double thresholds, or the known values
// of a categorical feature.
constexpr int32_t kFloat32 = 0, kFloat64 = 1, kKnown = 2;

struct SearchedFeature {
  int64_t at;  // offset of its first row of thresholds, or of its first known value
  int32_t kind;
  int32_t n;  // fine rows of thresholds, or number of known values
};

struct BinSearch {
  const SearchedFeature* features;
  const float* float32;
  const double* float64;
  const double* known;  // known values, ascending, and their codes
  const uint8_t* known_codes;
};

// Pack the words of each tile; grid x: rows, grid y: tiles.
struct PackCodes {
  static constexpr const char* kName = "pack_codes";
  Numbers rows;
  BinSearch search;
  const DeviceTile* tiles;
  uint64_t* words;  // (n_tiles, n_rows)
};

// Find codes; grid y: features.
struct FindCodes {
  static constexpr const char* kName = "find_codes";
  Numbers rows;
  BinSearch search;
  const int32_t* selected;  // features; nullptr: 0, 1, ...
  uint8_t* codes;           // (n_features, n_rows)
};

struct GatherRows {
  static constexpr const char* kName = "gather_rows";
  Numbers from;
  const int64_t* rows;  // nullptr: 0, 1, ...
  int64_t n;
  int32_t size;  // bytes per number
  char* to;      // (n, n_columns)
};

// first = min(first, row * n_columns + column) over infinite numbers.
struct FindInfinity {
  static constexpr const char* kName = "find_infinity";
  Numbers numbers;
  uint64_t* first;
};

// --- histograms

// Work of one block: rows [begin, end) of a copy of ids, some slots of a tile, and some lanes.
struct HistogramPiece {
  int64_t begin, end;
  int32_t copy, tile, first_slot, n_slots, first_lane, histogram;
};

// Histograms are contiguous with `size` integers each: sums [bin][lane] of all tiles' bins,
// followed by counts [bin] if no lane counts.
struct Histograms {
  int32_t* data;
  int64_t size;
  int64_t counts_at;  // -1: a lane counts
  int32_t lanes;
};

struct BuildHistograms {
  static constexpr const char* kName = "build_histograms";
  const uint64_t* words;  // (n_tiles, n_rows)
  int64_t n_rows;
  const uint32_t* ids[3];  // per copy; nullptr: 0, 1, ...
  const int16_t* channels;
  int32_t width;  // lanes per block: a divisor of the number of lanes and of the threads
  const DeviceTile* tiles;
  const HistogramPiece* pieces;
  Histograms histograms;
  int64_t largest;  // shared bytes of the largest piece
  constexpr int64_t shared(int) const { return largest; }
};

// Subtract the second histogram of each pair from the first.
struct SubtractHistograms {
  static constexpr const char* kName = "subtract_histograms";
  Histograms histograms;
  const int32_t* pairs;
};

// --- the scan

struct DeviceFeature {
  int32_t first_bin, n_bins, missing;  // missing: bin of missing values, relative to first_bin
  int32_t is_numeric;
};

struct DeviceNode {
  int32_t histogram, count;
};

// totals[node][lane] = sum over the bins of one feature.
struct SumNodes {
  static constexpr const char* kName = "sum_nodes";
  Histograms histograms;
  int64_t first_bin;
  int32_t n_bins;
  const DeviceNode* nodes;
  int32_t* totals;  // (n_nodes, lanes)
};

struct Penalties {
  float lambda, alpha, limit;  // limit 0: none
  float min_child_weight;
  int32_t min_child_samples;
};

struct FeatureBest {
  float sum;  // -inf: no candidate
  int32_t bin;
  int32_t missing_left;
};

struct ScanNumeric {
  static constexpr const char* kName = "scan_numeric";
  Histograms histograms;
  int32_t n_outputs, n_features;
  int32_t hessian;  // 0: the count; 1: one lane; 2: a lane per output; 3: lanes of pairs of outputs
  int32_t hessian_offset;  // first Hessian lane
  int32_t count_lane;
  const float* gradient_step;
  const float* hessian_step;
  const DeviceFeature* features;
  const DeviceNode* nodes;
  const int32_t* totals;   // (n_nodes, lanes)
  const uint8_t* allowed;  // (n_nodes or 1, n_features)
  int64_t allowed_stride;  // 0: the same for all nodes
  Penalties penalties;
  FeatureBest* best;  // (n_nodes, n_features)
};

// Scan for leaves that keep some outputs: each block processes one (feature, node) after another,
// limited by scratch memory.
struct ScanTopk {
  static constexpr const char* kName = "scan_topk";
  ScanNumeric scan;
  int64_t n_scanned;  // number of (feature, node) pairs
  int32_t kept;       // outputs kept by a leaf
  int32_t is_shared;  // whether both children keep the same outputs
  float* scratch;     // scratch of each block: topk_scratch_size(kept)
};
constexpr int64_t topk_scratch_size(int64_t kept) {
  return 4 * kept * kScanThreads;  // for both sides and both directions of missing values
}

// Scan under monotone constraints within the bounds of nodes: `stride` numbers per feature and
// node, one per output.
struct ScanMonotone {
  static constexpr const char* kName = "scan_monotone";
  ScanNumeric scan;
  int32_t stride;
  const float *directions, *low, *high;
};

// Scan where m outputs are solved jointly. A node lists its lanes: gradients first, then pairs as a
// packed lower triangle.
struct ScanSolved {
  static constexpr const char* kName = "scan_solved";
  ScanNumeric scan;
  int64_t n_scanned;
  int32_t m;
  const int32_t* lanes;  // (n_nodes or 1, lanes_solved(m))
  int64_t lanes_stride;  // 0: the same for all nodes
  float* scratch;        // scratch of each block: solved_scratch_size(m)
};
constexpr int64_t lanes_solved(int64_t m) {
  return m + m * (m + 1) / 2;
}
constexpr int64_t solved_scratch_size(int64_t m) {
  return (2 * lanes_solved(m) + m) * kScanThreads;  // sums, equations and inverse pivots
}

// The best feature of a node; followed by the sums of its left child, one per lane.
struct NodeBest {
  float sum;
  int32_t feature;  // -1: none
  int32_t bin, missing_left, left_count, n_missing;
};

struct BestOfNodes {
  static constexpr const char* kName = "best_of_nodes";
  Histograms histograms;
  int32_t n_features, count_lane;
  const DeviceFeature* features;
  const DeviceNode* nodes;
  const FeatureBest* best;
  const float* factors;   // gain factor per feature; nullptr: none
  const float* own_sums;  // score sums of the nodes themselves, for gain factors
  int32_t* found;         // (n_nodes, NodeBest and lanes)
};

// --- rows

struct DevicePartitionRequest {
  int64_t begin, end;
  int64_t left_to, right_to;
  int32_t from, to;  // copies of the ids
  int32_t tile, shift, missing, threshold, missing_left, is_set;
  uint64_t set[4];
  int32_t first_piece, last_piece;
};

// A block of rows of one request.
struct RowPiece {
  int64_t begin, end;
  int32_t request;
};

struct DeviceRowIds {
  const uint64_t* words;
  int64_t n_rows;
  uint32_t* ids[3];
};

struct CountLeft {
  static constexpr const char* kName = "count_left";
  DeviceRowIds rows;
  const DevicePartitionRequest* requests;
  const RowPiece* pieces;
  int32_t* n_left;  // per piece
  constexpr int64_t shared(int) const { return sizeof(int32_t); }
};

// Replace the number of rows that go left by the number before each piece of a request.
struct PlacePieces {
  static constexpr const char* kName = "place_pieces";
  const DevicePartitionRequest* requests;
  int32_t* n_left;
  constexpr int64_t shared(int threads) const { return int64_t{sizeof(int32_t)} * threads; }
};

struct MoveRows {
  static constexpr const char* kName = "move_rows";
  DeviceRowIds rows;
  const DevicePartitionRequest* requests;
  const RowPiece* pieces;
  const int32_t* left_before;
  constexpr int64_t shared(int threads) const { return int64_t{sizeof(int32_t)} * threads; }
};

struct LeafPiece {
  int64_t begin, end;
  int32_t copy, leaf;
};

struct AssignLeafIds {
  static constexpr const char* kName = "assign_leaf_ids";
  const uint32_t* ids[3];
  const LeafPiece* pieces;
  int32_t* leaf_of_row;
};

// A node of a tree on bin codes.
struct TreeNode {
  int32_t feature;  // -1: a leaf
  int32_t threshold, missing_left;
  int32_t left, right;
  int32_t leaf;
  int32_t category_set;  // row of the sets; -1: numeric
};

// Route all rows through a tree.
struct RouteRows {
  static constexpr const char* kName = "route_rows";
  const uint64_t* words;
  int64_t n_rows;
  const int32_t* place;  // per feature: 8 * tile + slot
  const DeviceTile* tiles;
  const TreeNode* nodes;
  const uint64_t* sets;
  int32_t* leaf_of_row;
};

// --- leaves and raw scores

// sums[leaf][j] += trunc(value * multiplier * scale_j); values nullptr: 1.
struct SumLeaves {
  static constexpr const char* kName = "sum_leaves";
  const float* values;
  int32_t n_columns, n_leaves;
  Sample sample;
  const int32_t* leaf_of_row;
  const float* scale;
  int64_t* sums;
  constexpr int64_t n_sums() const { return int64_t{n_leaves} * n_columns; }
  constexpr int64_t shared(int) const {
    return can_share_sums(n_sums()) ? int64_t{sizeof(int64_t)} * n_sums() : 0;
  }
};

struct AddLeaves {
  static constexpr const char* kName = "add_leaves";
  float* raw;
  int64_t n_rows;
  int32_t n_outputs, width, output;  // output: the only output, if the width is 1
  const int32_t* leaf_of_row;
  int64_t stride;       // stride between leaves
  const float* values;  // (n_leaves, width)
};

// Add sparse leaves: entries begin[leaf] .. begin[leaf + 1] - 1 of a leaf, at most `max_entries`.
struct AddSparse {
  static constexpr const char* kName = "add_sparse";
  float* raw;
  int64_t n_rows;
  int32_t n_outputs, max_entries;
  const int32_t* leaf_of_row;
  const int64_t* begin;
  const int32_t* outputs;
  const float* values;
};

struct TakeColumn {
  static constexpr const char* kName = "take_column";
  const float* from;
  int64_t n_rows;
  int32_t n_columns, column;
  float* to;
};

// out (n_rows, d) = scale * values @ matrix, matrix (n_columns, d).
struct Project {
  static constexpr const char* kName = "project";
  const float* values;
  int64_t n_rows;
  int32_t n_columns;
  const float* matrix;
  int32_t d;
  float scale;
  float* out;
};

struct RowMeans {
  static constexpr const char* kName = "row_means";
  const float* values;
  int64_t n_rows;
  int32_t n_columns;
  float share;  // 1 / n_columns
  float* out;
  constexpr int64_t shared(int threads) const { return int64_t{sizeof(float)} * threads; }
};

// --- losses

struct LossArgs {
  const float* raw;
  const float* weight;     // nullptr: 1
  int32_t weight_columns;  // 1 or n_outputs
  int64_t n_rows;
  int32_t n_outputs;
  const float* offset;
  int32_t loss;  // index in the loss table
  float numbers[3];
  float* g;
  float* h;
};

struct Derivatives {
  static constexpr const char* kName = "derivatives";
  LossArgs at;
  const float* target;
  const float* parameter;
};

struct SoftmaxDerivatives {
  static constexpr const char* kName = "softmax_derivatives";
  LossArgs at;
  const int32_t* label;
};

// --- prediction

constexpr int kPredictedRows = 32;  // rows per block

struct DeviceTree {
  int32_t root;           // of the nodes
  int32_t width, output;  // output: the only output if the width is 1; -1: all
  int64_t values;         // offset of its first leaf
};

struct PredictTrees {
  static constexpr const char* kName = "predict_trees";
  const uint8_t* codes;  // (n_features, n_rows)
  int64_t n_rows;
  int32_t n_outputs, n_trees;
  const DeviceTree* trees;
  const TreeNode* nodes;
  const uint64_t* sets;
  const float* values;
  float* raw;
};

// Transform sums of leaf values to scores (ScoreTransform).
struct ScoresOfSums {
  static constexpr const char* kName = "scores_of_sums";
  const float* raw;
  int64_t n_rows;
  int32_t n_outputs;
  ScoreTransform unit;
  double* scores;
};

}  // namespace polyleaf::on_device
