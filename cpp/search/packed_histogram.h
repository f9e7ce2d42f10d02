// A row's channels as one number: where the sums of all channels of a bin fit 64 bits side by side,
// a row is one addition a bin, to half the memory that sums of their own take.
//
// Owns: which bits are whose, and for how many rows of a bin that holds. Must not know: rows,
// features, what a channel means.
#pragma once
#include <cstdint>
#include <span>

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

}  // namespace polyleaf
