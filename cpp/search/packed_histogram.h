// A row's channels as one number: where the sums of all channels of a bin fit 64 bits side by side,
// a row is one addition a bin, to half the memory that sums of their own take.
//
// Owns: which bits are whose, and for how many rows of a bin that holds. Must not know: rows,
// features, what a channel means.
#pragma once
#include <cstdint>
#include <span>

#include "base/isa.h"
#include "data/sparse_columns.h"

namespace polyleaf {

// What a channel of one row may be; least <= 0 <= most.
struct ChannelRange {
  int32_t least = 0, most = 0;
};

// The sum s_j of channel j over up to `rows` rows of a bin is a digit of
//   sum over j of s_j * 2^shift[j]  (modulo 2^64).
// With m = rows, middle[j] = -m * least_j and mask[j] = 2^w_j - 1, shift[j] being the sum of the
// widths w_i of the channels before: 0 <= s_j + middle[j] <= m * (most_j - least_j) <= mask[j]. So
// once every middle is added no digit reaches into the next, the number is below 2^64 as the widths
// add up to 64 at most, and
//   s_j = ((number + total_bias) >> shift[j] & mask[j]) - middle[j]
// exactly. How often the number wrapped on its way there does not matter: that is modulo 2^64 as
// well.
struct PackedSumFormat {
  static constexpr int kChannels = 4;
  uint64_t shift[kChannels] = {}, mask[kChannels] = {}, middle[kChannels] = {};
  uint64_t total_bias = 0;
  int64_t rows = 0;  // of one bin; 0: there is no such format

  // For bins of at most `rows` rows; where these do not fit, for as many as do, a power of two.
  static PackedSumFormat make(std::span<const ChannelRange> channels, int64_t rows);
};

// A bin's number of rows as the upper bits of one of its sums: a row is counted by the addition
// that sums it, not by one more to an array beside.
//
// Owns: which bits are the count's, and for how many rows. Must not know: rows, features, what a
// channel means.

// A lane sums int16 of magnitude below 2^15 over c rows of a bin. With every row adding kCountUnit
// = 2^24 to it as well, it holds s + c * 2^24 (modulo 2^32). With c <= kMaxPackedCount < 2^8, |s| <
// 2^23 and c * 2^24 < 2^32, so once kCountBias = 2^23 is added the sum's part is within 0 ..
// 2^24 - 1, and the upper eight bits are the count, exactly. How often the lane wrapped on its way
// there does not matter. After so many rows of a bin counts are taken out, and what is left, of any
// size, waits elsewhere while further rows come.
constexpr int64_t kMaxPackedCount = 255;
constexpr uint32_t kCountUnit = uint32_t{1} << 24, kCountBias = kCountUnit / 2;
static_assert(kMaxPackedCount * INT16_MAX < int64_t{kCountBias});

// Histograms: integer sums of channels, per tile `[slot][bin][lane]` int32, and, where the layout
// keeps counts apart,
// `[slot][bin]` uint32. Building, subtracting and clearing are all they can do; what a lane means
// is not known here.

struct HistogramKernels {
  // Adds the channels of `n` rows (contiguous, `lanes` int16 each) to the bins their words name,
  // and counts them (nullptr: a lane does). riding: counts ride in the last lane, of up to 64.
  void (*build)(const uint64_t* words, const int16_t* channels, int64_t n, int n_features,
                int log2_stride, int lanes, bool riding, int32_t* sums, uint32_t* counts);
  // After each run of rows: takes counts that ride out of the last lane and adds them to `counts`.
  // What is left of the lane waits in `below` (zeros before and after all runs) until the last run
  // has come.
  void (*unpack_counts)(int32_t* sums, int64_t n_bins, int lanes, bool last, int32_t* below,
                        uint32_t* counts);
  // Adds four lanes a row, as one number a bin. ids: row i's word is words[ids[i]];
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
  void (*build_few)(const SparseEntry* entries, int64_t n, const int16_t* channels, int lanes,
                    int missing, int32_t* sums, uint32_t* counts, int32_t* all, uint64_t* touched);
  // out[lane] += channels of the rows that these cells name.
  void (*sum_few)(const SparseEntry* entries, int64_t n, const int16_t* channels, int lanes,
                  int32_t* out);
};
POLYLEAF_DECLARE_KERNELS(HistogramKernels, histogram_kernels)

}  // namespace polyleaf
