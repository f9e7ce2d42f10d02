// What kernels are handed: one record a kernel, passed by value, whose `kName` is the kernel's.
// Pointers are addresses on the device. Read by the kernels and by whoever launches them, so that
// neither can mistake the other's arguments. `shared` says how many bytes the threads of a block
// share, besides what the kernel declares.
//
// Must not know: how kernels work, how they are launched.
#pragma once
#include <cstdint>

#include "forest/score_unit.h"

namespace polyleaf::on_device {

// Whether a block puts so many numbers together in memory of its own before it tells others: those
// of columns, or sums of leaves.
constexpr bool has_room_for_columns(int64_t n) {
  return n <= 1024;
}
constexpr bool has_room_for_sums(int64_t n) {
  return n <= 4096;
}

constexpr int kScanThreads =
    256;  // of a block that scans: one for each bin that a feature may have

// Rows in use: all `n`, or the ascending `rows`; `multiplier` scales the derivatives of a row.
struct Sample {
  const uint32_t* rows;  // nullptr: 0, 1, ...
  int64_t n;
  const float* multiplier;  // nullptr: 1
};

// --- channels

// largest[j] = max(largest[j], bits of |value * multiplier|): as integers, so that NaN is largest
// of all.
struct LargestMagnitudes {
  static constexpr const char* kName = "compute_max_magnitudes";
  const float* values;  // (n_all, n_columns)
  int32_t n_columns;
  Sample sample;
  int32_t* largest;
  constexpr int64_t shared(int) const {
    return has_room_for_columns(n_columns) ? int64_t{sizeof(int32_t)} * n_columns : 0;
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
  int32_t count_lane;  // set to 1; -1: none
  int64_t* sizes;
  int64_t* totals;
  constexpr int64_t shared(int) const {
    return has_room_for_columns(n_columns) ? 2 * int64_t{sizeof(int64_t)} * n_columns : 0;
  }
};

// squares[j] += channels[row][j]^2, for the gradients' columns.
struct SumSquares {
  static constexpr const char* kName = "sum_squares";
  const int16_t* channels;
  int32_t n_columns, lanes;
  Sample sample;
  int64_t* squares;
  constexpr int64_t shared(int) const {
    return has_room_for_columns(n_columns) ? int64_t{sizeof(int64_t)} * n_columns : 0;
  }
};

// --- tiles

struct TileAt {
  int32_t first_bin, log2_stride, n_features;
  int32_t features[8];
};

// --- numbers, and their codes

// A matrix in memory of whoever made it; strides in bytes.
struct Numbers {
  const char* data;
  int64_t n_rows, row_stride, column_stride;
  int32_t n_columns;
  int32_t type;  // of the numbers: ValueType (data/binning.h)
};

// How a feature's numbers are looked up: among thresholds of float or double, or, of a categorical
// feature, among the numbers that are known.
constexpr int32_t kNarrow = 0, kWide = 1, kKnown = 2;

struct SearchedFeature {
  int64_t at;  // of its first row of thresholds, or of its first known number
  int32_t kind;
  int32_t n;  // fine rows of thresholds, or known numbers
};

struct BinSearch {
  const SearchedFeature* features;
  const float* narrow;
  const double* wide;
  const double* known;  // ascending, and their codes
  const uint8_t* known_codes;
};

// Words of each tile: blocks in a row of the grid have rows, and the rows of the grid the tiles.
struct PackCodes {
  static constexpr const char* kName = "pack_codes";
  Numbers rows;
  BinSearch search;
  const TileAt* tiles;
  uint64_t* words;  // (n_tiles, n_rows)
};

// A row of the grid for each feature.
struct FindCodes {
  static constexpr const char* kName = "find_codes";
  Numbers rows;
  BinSearch search;
  const int32_t* wanted;  // features; nullptr: 0, 1, ...
  uint8_t* codes;         // (n_features, n_rows)
};

struct GatherRows {
  static constexpr const char* kName = "gather_rows";
  Numbers from;
  const int64_t* rows;  // nullptr: 0, 1, ...
  int64_t n;
  int32_t size;  // bytes of a number
  char* to;      // (n, n_columns)
};

// first = min(first, row * n_columns + column) of what is infinite.
struct FindInfinity {
  static constexpr const char* kName = "find_infinity";
  Numbers numbers;
  uint64_t* first;
};

// --- histograms

// Rows [begin, end) of a copy of ids, some slots of a tile, and some lanes: what one block adds up.
struct HistogramPiece {
  int64_t begin, end;
  int32_t copy, tile, first_slot, n_slots, first_lane, histogram;
};

// Histograms lie one after another, `size` integers each: sums [bin][lane] of all tiles' bins, and
// behind them counts [bin], where no lane counts.
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
  const uint32_t* ids[3];  // of each copy; nullptr: 0, 1, ...
  const int16_t* channels;
  int32_t width;  // lanes that a block adds up: a divisor of the lanes and of its threads
  const TileAt* tiles;
  const HistogramPiece* pieces;
  Histograms histograms;
  int64_t largest;  // bytes of the sums of one piece
  constexpr int64_t shared(int) const { return largest; }
};

// Of each pair the first less the second.
struct SubtractHistograms {
  static constexpr const char* kName = "subtract_histograms";
  Histograms histograms;
  const int32_t* pairs;
};

// --- the scan

struct FeatureAt {
  int32_t first_bin, n_bins, missing;  // the bin of missing values, counted from the first
  int32_t is_numeric;
};

struct NodeAt {
  int32_t histogram, count;
};

// totals[node][lane] becomes the sum over the bins of one feature.
struct SumNodes {
  static constexpr const char* kName = "sum_nodes";
  Histograms histograms;
  int64_t first_bin;
  int32_t n_bins;
  const NodeAt* nodes;
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
  int32_t hessian;  // 0: the count; 1: one lane; 2: a lane for each output; 3: of pairs of outputs
  int32_t hessian_offset;  // first lane of it
  int32_t count_lane;
  const float* gradient_step;
  const float* hessian_step;
  const FeatureAt* features;
  const NodeAt* nodes;
  const int32_t* totals;   // (n_nodes, lanes)
  const uint8_t* allowed;  // (n_nodes or 1, n_features)
  int64_t allowed_stride;  // 0: the same for all nodes
  Penalties penalties;
  FeatureBest* best;  // (n_nodes, n_features)
};

// The same where leaves keep some of the outputs: as many blocks as have room, each for one feature
// of one node after another.
struct ScanFew {
  static constexpr const char* kName = "scan_few";
  ScanNumeric scan;
  int64_t n_scanned;  // features of nodes
  int32_t kept;       // outputs that a leaf keeps
  int32_t is_shared;  // whether children keep the same
  float* room;        // of a block after another: room_of_few(kept)
};
constexpr int64_t room_of_few(int64_t kept) {
  return 4 * kept * kScanThreads;  // of either side, missing values left or right
}

// The same where values must obey directions, within the bounds of nodes: `stride` numbers for each
// feature and node, one an output.
struct ScanObeying {
  static constexpr const char* kName = "scan_obeying";
  ScanNumeric scan;
  int32_t stride;
  const float *directions, *low, *high;
};

// The same where outputs are solved for together: m of them, whose lanes a node names, those of
// their gradients first and then those of pairs, as a packed lower triangle.
struct ScanSolved {
  static constexpr const char* kName = "scan_solved";
  ScanNumeric scan;
  int64_t n_scanned;
  int32_t m;
  const int32_t* lanes;  // (n_nodes or 1, lanes_solved(m))
  int64_t lanes_stride;  // 0: the same for all nodes
  float* room;           // of a block after another: room_of_solved(m)
};
constexpr int64_t lanes_solved(int64_t m) {
  return m + m * (m + 1) / 2;
}
constexpr int64_t room_of_solved(int64_t m) {
  return (2 * lanes_solved(m) + m) * kScanThreads;  // sums, equations, and the inverses of pivots
}

// The best feature of a node, and behind it the sums of its left child, `lanes` of them.
struct NodeBest {
  float sum;
  int32_t feature;  // -1: none
  int32_t bin, missing_left, left_count, n_missing;
};

struct BestOfNodes {
  static constexpr const char* kName = "best_of_nodes";
  Histograms histograms;
  int32_t n_features, count_lane;
  const FeatureAt* features;
  const NodeAt* nodes;
  const FeatureBest* best;
  const float* factors;   // of features; nullptr: they compete by their sums
  const float* own_sums;  // where there are factors: what nodes are worth by themselves
  int32_t* found;         // (n_nodes, NodeBest and lanes)
};

// --- rows

struct DivisionAt {
  int64_t begin, end;
  int64_t left_to, right_to;
  int32_t from, to;  // copies
  int32_t tile, shift, missing, threshold, missing_left, is_set;
  uint64_t set[4];
  int32_t first_piece, last_piece;
};

// Some rows of a division.
struct RowPiece {
  int64_t begin, end;
  int32_t division;
};

struct RowsAt {
  const uint64_t* words;
  int64_t n_rows;
  uint32_t* ids[3];
};

struct CountLeft {
  static constexpr const char* kName = "count_left";
  RowsAt rows;
  const DivisionAt* divisions;
  const RowPiece* pieces;
  int32_t* n_left;  // of each piece
  constexpr int64_t shared(int) const { return sizeof(int32_t); }
};

// Turns the numbers of rows that go left into those before each piece of a division.
struct PlacePieces {
  static constexpr const char* kName = "place_pieces";
  const DivisionAt* divisions;
  int32_t* n_left;
  constexpr int64_t shared(int threads) const { return int64_t{sizeof(int32_t)} * threads; }
};

struct MoveRows {
  static constexpr const char* kName = "move_rows";
  RowsAt rows;
  const DivisionAt* divisions;
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

// A node of a tree of codes.
struct TreeNode {
  int32_t feature;  // -1: a leaf
  int32_t threshold, missing_left;
  int32_t left, right;
  int32_t leaf;
  int32_t category_set;  // row of the sets; -1: numeric
};

// Rows that walk down a tree, all of them.
struct RouteRows {
  static constexpr const char* kName = "route_rows";
  const uint64_t* words;
  int64_t n_rows;
  const int32_t* place;  // of each feature: 8 * tile + slot
  const TileAt* tiles;
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
    return has_room_for_sums(n_sums()) ? int64_t{sizeof(int64_t)} * n_sums() : 0;
  }
};

struct AddLeaves {
  static constexpr const char* kName = "add_leaves";
  float* raw;
  int64_t n_rows;
  int32_t n_outputs, width, output;  // output: the only one, where the width is 1
  const int32_t* leaf_of_row;
  int64_t stride;       // from leaf to leaf
  const float* values;  // (n_leaves, width)
};

// Entries begin[leaf] .. begin[leaf + 1] - 1 are those of a leaf, at most `most`.
struct AddFew {
  static constexpr const char* kName = "add_few";
  float* raw;
  int64_t n_rows;
  int32_t n_outputs, most;
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

// --- losses

struct LossAt {
  const float* raw;
  const float* weight;     // nullptr: 1
  int32_t weight_columns;  // 1 or n_outputs
  int64_t n_rows;
  int32_t n_outputs;
  const float* offset;
  int32_t loss;  // its number in the core's table
  float numbers[3];
  float* g;
  float* h;
};

struct Derivatives {
  static constexpr const char* kName = "derivatives";
  LossAt at;
  const float* target;
  const float* parameter;
};

struct SoftmaxDerivatives {
  static constexpr const char* kName = "softmax_derivatives";
  LossAt at;
  const int32_t* label;
};

// --- prediction

constexpr int kPredictedRows = 32;  // of a block

struct TreeAt {
  int32_t root;           // of the nodes
  int32_t width, output;  // output: the only one, where the width is 1; -1: all
  int64_t values;         // of its first leaf
};

struct PredictTrees {
  static constexpr const char* kName = "predict_trees";
  const uint8_t* codes;  // (n_features, n_rows)
  int64_t n_rows;
  int32_t n_outputs, n_trees;
  const TreeAt* trees;
  const TreeNode* nodes;
  const uint64_t* sets;
  const float* values;
  float* raw;
};

// Sums of leaf values in the user's unit, as ScoreTransform (forest/score_unit.h) has it.
struct ScoresOfSums {
  static constexpr const char* kName = "scores_of_sums";
  const float* raw;
  int64_t n_rows;
  int32_t n_outputs;
  ScoreTransform unit;
  double* scores;
};

}  // namespace polyleaf::on_device
