// A bin's number of rows as the upper bits of one of its sums: a row is counted by the addition
// that sums it, not by one more to an array beside.
//
// Owns: which bits are the count's, and for how many rows. Must not know: rows, features, what a
// channel means.
#pragma once
#include <cstdint>

namespace polyleaf {

// A lane sums int16 of magnitude below 2^15 over c rows of a bin. With every row adding kCountUnit
// = 2^24 to it as well, it holds s + c * 2^24 (modulo 2^32). With c <= kMaxPackedCount < 2^8, |s| <
// 2^23 and c * 2^24 < 2^32, so once kCountBias = 2^23 is added the sum's part is within 0 ..
// 2^24 - 1, and the upper eight bits are the count, exactly. How often the lane wrapped on its way
// there does not matter. After so many rows of a bin counts are taken out, and what is left, of any
// size, waits elsewhere while further rows come.
constexpr int64_t kMaxPackedCount = 255;
constexpr uint32_t kCountUnit = uint32_t{1} << 24, kCountBias = kCountUnit / 2;
static_assert(kMaxPackedCount * INT16_MAX < int64_t{kCountBias});

}  // namespace polyleaf
