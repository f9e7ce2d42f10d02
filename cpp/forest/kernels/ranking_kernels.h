// Vectorised part of ranking: scores of many outputs, and which of them can be among the best.
#pragma once
#include <cstdint>

#include "base/isa.h"

namespace polyleaf {

constexpr int32_t kRankChunk = 1024;    // outputs scored at a time
constexpr int32_t kMaxThresholdK = 16;  // up to this k a threshold is computed first

// Sums of n <= kRankChunk outputs and their transform to scores, (base + sum) * scale + offset in
// float64.
struct RankInput {
  const float* sums;
  const int32_t* outputs;  // entry of base, scale and offset for each sum; null: 0 .. n - 1
  const double *base, *scale, *offset;  // null: 0, 1, 0
  int32_t n;
  bool skip_none;  // a sum -0 marks an absent output
};

// Bounds of the final scores of rows before their last trees: the score of output k is
// between sums[k] + lower[k] and sums[k] + upper[k], up to half of `slack`.
struct ScoreBounds {
  const float *lower, *upper;
  float slack;
  int32_t n_outputs, width;  // width: stride of the rows of sums
};

struct RankingKernels {
  // Write scores[i] of each sum (-inf if absent) and ascending positions that include all scores
  // that are at least the lower bound and among the k best of the chunk; return the number of
  // positions. Both arrays have kRankChunk elements.
  int32_t (*candidates)(const RankInput& input, int32_t k, double lower_bound, double* scores,
                        int32_t* positions);
  // Find the output of each of 16 rows that will have the highest score, or -1 if several may.
  // scratch: 16 floats for each output, and for padding up to a multiple of 16.
  void (*decided)(const float* sums, const ScoreBounds& bounds, float* scratch, int32_t* found);
};

POLYLEAF_DECLARE_KERNELS(RankingKernels, ranking_kernels)

}  // namespace polyleaf
