// Packed sums: where the sums of all channels of a bin fit 64 bits side by side, a row needs one
// addition per bin, in half the memory of separate sums.
#pragma once
#include <cstdint>
#include <span>

#include "base/isa.h"
#include "data/sparse_columns.h"

namespace polyleaf {

// Range of a channel of one row; least <= 0 <= most. The last channel in use is 1 in every row: it
// counts them.
struct ChannelRange {
  int32_t least = 0, most = 0;
};

// The sum s_j of channel j over up to max_rows rows of a bin is a digit of
//   sum over j of s_j * 2^shift[j] (modulo 2^64).
// Let m = max_rows, bias[j] = -m * least_j, mask[j] = 2^w_j - 1, and shift[j] the sum of the widths
// w_i of the channels before j. Then 0 <= s_j + bias[j] <= m * (most_j - least_j) <= mask[j]. So
// once every bias is added, no digit reaches into the next, and the number is below 2^64, as the
// widths add up to at most 64. Hence
//   s_j = ((number + total_bias) >> shift[j] & mask[j]) - bias[j]
// exactly. Wrap-around during the summation does not matter: it is modulo 2^64 as well.
struct PackedSumFormat {
  static constexpr int kChannels = 4;
  uint64_t shift[kChannels] = {}, mask[kChannels] = {}, bias[kChannels] = {};
  uint64_t total_bias = 0;
  int64_t max_rows = 0;  // of one bin; 0: there is no such format
  int n_values = 0;      // number of channels before the count

  // Return the format of these channels and a count for bins of at most `rows` rows; if these do
  // not fit, for the largest power of two of rows that does.
  static PackedSumFormat make(std::span<const ChannelRange> values, int64_t rows);
};

// Packed counts: a bin's number of rows in the upper bits of one of its sums, so that the addition
// that sums a row also counts it.

// A lane sums int16 of magnitude below 2^15 over c rows of a bin. If every row also adds kCountUnit
// = 2^24, the lane holds s + c * 2^24 (modulo 2^32). With c <= kMaxPackedCount < 2^8, |s| < 2^23
// and c * 2^24 < 2^32, so once kCountBias = 2^23 is added the part of the sum is in 0 .. 2^24 - 1,
// and the upper eight bits are exactly the count. Wrap-around during the summation does not matter.
// After so many rows of a bin the counts are unpacked, and the remaining sum, of any size, is
// stored elsewhere while further rows are added.
constexpr int64_t kMaxPackedCount = 255;
constexpr uint32_t kCountUnit = uint32_t{1} << 24, kCountBias = kCountUnit / 2;
static_assert(kMaxPackedCount * INT16_MAX < int64_t{kCountBias});

// Histogram kernels. A histogram holds integer sums of channels, per tile `[slot][bin][lane]`
// int32, and, if the layout has no count lane, `[slot][bin]` uint32 counts.

struct HistogramKernels {
  // Add the channels of `n` rows (contiguous, `lanes` int16 each) to the bins of their words, and
  // count them (nullptr: a lane does). packs_count: counts are packed into the last lane, of up to
  // 64 lanes.
  void (*build)(const uint64_t* words, const int16_t* channels, int64_t n, int n_features,
                int log2_stride, int lanes, bool packs_count, int32_t* sums, uint32_t* counts);
  // After each run of rows: unpack the counts from the last lane and add them to `counts`. The
  // remaining sum of the lane is kept in `rest` (zero before and after all runs) until the last
  // run.
  void (*unpack_counts)(int32_t* sums, int64_t n_bins, int lanes, bool last, int32_t* rest,
                        uint32_t* counts);
  // Add four lanes per row, packed into one number per bin. ids: row i's word is words[ids[i]];
  // nullptr: words[i].
  void (*build_packed)(const uint64_t* words, const uint32_t* ids, const int16_t* channels,
                       int64_t n, int n_features, int log2_stride, const PackedSumFormat& format,
                       uint64_t* packed);
  // Add packed sums to the sums of four lanes, and clear them.
  void (*unpack_sums)(uint64_t* packed, int64_t n_bins, const PackedSumFormat& format,
                      int32_t* sums);
  // a -= b, elementwise.
  void (*subtract)(int32_t* a, const int32_t* b, int64_t n);
  // a += b, elementwise.
  void (*add)(int32_t* a, const int32_t* b, int64_t n);
  // Write the bins that have rows to `out`, and set their bits in `filled`; return the end. Of each
  // bin, write the first `n_used` lanes, and the number of rows unless a lane holds it (counts:
  // nullptr).
  int32_t* (*pack_filled)(const int32_t* sums, const uint32_t* counts, int64_t n_bins, int lanes,
                          int n_used, uint32_t* filled, int32_t* out);
  // Add packed bins, which end at `end`, to sums and counts.
  void (*add_filled)(const int32_t* packed, const int32_t* end, const uint32_t* filled,
                     int64_t n_bins, int lanes, int n_used, int32_t* sums, uint32_t* counts);
  // Copy the channels of rows ids[0..n), contiguous.
  void (*gather)(const int16_t* channels, const uint32_t* ids, int64_t n, int lanes, int16_t* out);
  // out[lane] += channels of `n` contiguous rows.
  void (*sum)(const int16_t* channels, int64_t n, int lanes, int32_t* out);
  // Mark the bins that `n` rows touch: bit `bin` of touched[slot * 4 .. slot * 4 + 4).
  void (*mark_touched)(const uint64_t* words, int64_t n, int n_features, uint64_t* touched);
  // Sum the entries of one sparse feature (at least one, in their order; missing goes to bin
  // `missing`): write their bins, add to counts and to `all`, mark touched[0 .. 4).
  void (*build_sparse)(const SparseEntry* entries, int64_t n, const int16_t* channels, int lanes,
                       int missing, int32_t* sums, uint32_t* counts, int32_t* all,
                       uint64_t* touched);
  // out[lane] += channels of the rows of these entries.
  void (*sum_sparse)(const SparseEntry* entries, int64_t n, const int16_t* channels, int lanes,
                     int32_t* out);
};
POLYLEAF_DECLARE_KERNELS(HistogramKernels, histogram_kernels)

}  // namespace polyleaf
