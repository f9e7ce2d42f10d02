// The part of ranking that is worth vectors: scores of many outputs, and which of them can be among
// the best.
#pragma once
#include <cstdint>

#include "base/isa.h"

namespace polyleaf {

constexpr int32_t kRankChunk = 1024;    // outputs scored at a time
constexpr int32_t kMaxThresholdK = 16;  // for so many of the best, a threshold is found first

// Sums of n <= kRankChunk outputs, and what makes scores of them: (base + sum) * scale + offset, in
// float64.
struct RankInput {
  const float* sums;
  const int32_t* outputs;  // entry of base, scale and offset of each sum; null: 0 .. n - 1
  const double *base, *scale, *offset;  // null: 0, 1, 0
  int32_t n;
  bool skip_none;  // a sum -0 is none at all
};

struct RankingKernels {
  // scores[i] of each sum (-inf of none); positions: ascending, of at least all scores that are
  // both not below `least` and among the k best of the chunk. Returns how many positions. Room for
  // kRankChunk of both.
  int32_t (*candidates)(const RankInput& input, int32_t k, double lower_bound, double* scores,
                        int32_t* positions);
};

POLYLEAF_DECLARE_KERNELS(RankingKernels, ranking_kernels)

}  // namespace polyleaf
