// Sums of sparse rows over several sets of rows at once: a line of eight integers per output, one
// per set.
#pragma once
#include <cstdint>

#include "base/isa.h"

namespace polyleaf {

constexpr int kSetLanes = 8;  // per line
constexpr int kSets = kSetLanes - 1;

// Outputs have indices 1, 2, ... in the order of appearance, and their lines are in that order: the
// lines of a node are contiguous, however many outputs there are.
struct SetSums {
  int64_t* lines;    // kSetLanes per output in use, zero after them
  int32_t* touched;  // these outputs; capacity for all and one more
  int32_t* number;   // index of each output; 0: none
  int64_t n_touched;
};

struct SparseTargetKernels {
  // Add trunc(value * multiplier * scale) of every entry to the sets of `lanes`: -1 in the lanes of
  // the row's sets, 0 in others.
  void (*add_row)(const int32_t* outputs, const float* values, int64_t n, float multiplier,
                  float scale, const int64_t* lanes, SetSums* sums);
};
POLYLEAF_DECLARE_KERNELS(SparseTargetKernels, sparse_target_kernels)

}  // namespace polyleaf
