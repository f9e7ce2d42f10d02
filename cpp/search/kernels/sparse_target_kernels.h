// Sums of sparse rows over several sets of rows at once: of every output a line of eight integers,
// one a set.
#pragma once
#include <cstdint>

#include "base/isa.h"

namespace polyleaf {

constexpr int kSetLanes = 8;  // of a line
constexpr int kSets = kSetLanes - 1;

// Outputs are numbered 1, 2, ... in the order of their meeting, and their lines stand in that
// order: however many outputs there are, those of a node lie side by side.
struct SetSums {
  int64_t* lines;    // kSetLanes an output that was met, clear beyond
  int32_t* touched;  // these outputs; room for all and one more
  int32_t* number;   // of every output; 0: not met
  int64_t n_touched;
};

struct SparseTargetKernels {
  // Adds trunc(value * multiplier * scale) of every entry to the sets of `lanes`: -1 in the lanes
  // of sets that the row is in, 0 in others.
  void (*add_row)(const int32_t* outputs, const float* values, int64_t n, float multiplier,
                  float scale, const int64_t* lanes, SetSums* sums);
};
POLYLEAF_DECLARE_KERNELS(SparseTargetKernels, sparse_target_kernels)

}  // namespace polyleaf
