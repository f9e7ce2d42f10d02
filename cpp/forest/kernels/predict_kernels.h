// The data of the prediction kernels: a forest compiled into flat arrays of plain structs.
//
// Each tree is stored twice. The top (the whole tree if it has at most 256 leaves, else its first
// levels) is a straight-line program that runs for a whole block of rows at once: one byte compare
// and one byte select per inner node and row. The nodes are walked below the top and for a few
// single rows.
#pragma once
#include <cstdint>

#include "base/isa.h"

namespace polyleaf {

constexpr int kBlockRows = 256;  // rows of a full block; a block has a multiple of kSliceRows
constexpr int kSliceRows = 64;
constexpr int kMaxExits = 256;  // exits are bytes
constexpr int kLanes = 16;      // rows or trees walked in lockstep

// A node to walk. The children are adjacent: left at `child`, right at `child + 1`. A leaf is its
// own left child and sends every code left, so that walking on from it stays there.
struct WalkNode {
  uint32_t child;
  uint32_t test;  // feature << 10 | is_categorical << 9 | shift << 8 | cut
};
constexpr uint32_t kMaxFeatures = 1u << 22;

// Code c goes left when (uint8)(c + shift) <= cut. With shift 1 the missing code 255 wraps to 0.
struct TopNode {
  uint32_t feature;
  uint32_t category_set;  // kNumeric, or row of the category sets
  uint16_t left,
      right;  // positions of the results in units of 64 bytes: exit e at e, slot s at 256 + 4 s
  uint16_t result;  // a slot
  uint8_t cut, shift;
};
constexpr uint32_t kNumeric = 0xffffffffu;

struct CompiledTree {
  uint32_t root;        // index in the nodes
  uint32_t top_begin;   // index in the tops
  uint32_t n_top;       // inner nodes in the top
  uint32_t exit_begin;  // index in the exits; used if the top is not the whole tree
  bool whole;           // the top is the whole tree: its exits are the leaf ids
  bool has_categories;
};

struct ForestArrays {
  const WalkNode* nodes;
  const uint32_t* node_data;  // leaf: its id; categorical node: row of the category sets
  const TopNode* tops;
  const uint32_t* exits;          // node where the walk continues
  const uint64_t* category_sets;  // 4 words each; bit c: code c goes left, missing (255) included
};

// Scratch memory of the tops: 256 exits of 64 bytes (each byte is the exit's number), then the
// slots. If the child that needs more slots is evaluated first, a tree of 2^d exits needs at most d
// slots.
constexpr int kMaxSlots = 8;
constexpr int kExitBytes = kMaxExits * 64;
constexpr int kTopScratch = kExitBytes + kMaxSlots * kBlockRows;

struct PredictKernels {
  // Find leaf ids of n_rows (64 or 256) rows in one tree. Feature f of row r is codes[f * stride
  // + r].
  void (*find_leaves)(const ForestArrays& forest, const CompiledTree& tree, const uint8_t* codes,
                      int64_t stride, int n_rows, uint8_t* scratch, uint32_t* leaves);
  // Find leaf ids of one row in n_trees <= kLanes trees. Feature f is codes[f * stride]; there is
  // at least one feature.
  void (*find_row_leaves)(const ForestArrays& forest, const CompiledTree* trees, int n_trees,
                          const uint8_t* codes, int64_t stride, uint32_t* leaves);
};

POLYLEAF_DECLARE_KERNELS(PredictKernels, predict_kernels)

}  // namespace polyleaf
