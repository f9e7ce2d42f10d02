// Histograms: integer sums of channels, per tile `[slot][bin][lane]` int32, and, where the layout
// keeps counts apart,
// `[slot][bin]` uint32. Building, subtracting and clearing are all they can do; what a lane means
// is not known here.
#pragma once
#include <cstdint>

#include "base/isa.h"
#include "data/sparse_columns.h"
#include "search/packed_histogram.h"

namespace polyleaf {

struct HistogramKernels {
  // Adds the channels of `n` rows (contiguous, `lanes` int16 each) to the bins their words name,
  // and counts them (nullptr: a lane does). riding: counts ride in the last lane (riding_count.h),
  // of up to 64.
  void (*build)(const uint64_t* words, const int16_t* channels, int64_t n, int n_features,
                int log2_stride, int lanes, bool riding, int32_t* sums, uint32_t* counts);
  // After each run of rows: takes counts that ride out of the last lane and adds them to `counts`.
  // What is left of the lane waits in `below` (zeros before and after all runs) until the last run
  // has come.
  void (*unpack_counts)(int32_t* sums, int64_t n_bins, int lanes, bool last, int32_t* below,
                   uint32_t* counts);
  // Adds four lanes a row, as one number a bin (joint_sums.h). ids: row i's word is words[ids[i]];
  // nullptr: words[i].
  void (*build_joint)(const uint64_t* words, const uint32_t* ids, const int16_t* channels,
                      int64_t n, int n_features, int log2_stride, const PackedSumFormat& format,
                      uint64_t* joint);
  // Adds these numbers to the sums of four lanes, and clears them.
  void (*spread)(uint64_t* joint, int64_t n_bins, const PackedSumFormat& format, int32_t* sums);
  // a -= b, elementwise.
  void (*subtract)(int32_t* a, const int32_t* b, int64_t n);
  // a += b, elementwise.
  void (*add)(int32_t* a, const int32_t* b, int64_t n);
  // Copies the channels of rows ids[0..n) next to each other.
  void (*gather)(const int16_t* channels, const uint32_t* ids, int64_t n, int lanes, int16_t* out);
  // out[lane] += channels of `n` contiguous rows.
  void (*sum)(const int16_t* channels, int64_t n, int lanes, int32_t* out);
  // Marks the bins that `n` rows touch: bit `bin` of touched[slot * 4 .. slot * 4 + 4).
  void (*touch)(const uint64_t* words, int64_t n, int n_features, uint64_t* touched);
  // Sums of the cells of one sparse feature (at least one, in their order; missing goes to bin
  // `missing`): writes the bins that they name, adds to counts and to `all`, marks touched[0 .. 4).
  void (*build_few)(const SparseEntry* entries, int64_t n, const int16_t* channels, int lanes, int missing,
                    int32_t* sums, uint32_t* counts, int32_t* all, uint64_t* touched);
  // out[lane] += channels of the rows that these cells name.
  void (*sum_few)(const SparseEntry* entries, int64_t n, const int16_t* channels, int lanes, int32_t* out);
};
POLYLEAF_DECLARE_KERNELS(HistogramKernels, histogram_kernels)

}  // namespace polyleaf
