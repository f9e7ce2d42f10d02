// A bin's number of rows as the upper bits of one of its sums: where both fit 32 bits, a row is counted by
// the addition that sums it, not by one more to an array beside.
//
// Owns: which bits are the count's. Must not know: rows, features, what a channel means.
#pragma once
#include <bit>
#include <cstdint>

namespace polyleaf {

// A lane sums numbers of magnitude up to `largest` over up to m rows of a bin. With every row adding 2^shift
// to it as well, it holds s + c * 2^shift (modulo 2^32): |s| <= m * largest < 2^(shift - 1), and c <= m <
// 2^(32 - shift). So 0 < s + 2^(shift - 1) < 2^shift, and with these added the count is what stands from bit
// `shift` on, exactly; how often the lane wrapped on its way there does not matter.
struct RidingCount {
  int shift = 0;  // 0: there are not the bits

  static RidingCount make(int64_t largest, int64_t rows) {
    const int of_sum = std::bit_width(static_cast<uint64_t>(rows * largest)) + 1;
    const int of_count = std::bit_width(static_cast<uint64_t>(rows));
    return {of_sum + of_count <= 32 ? of_sum : 0};
  }
  int32_t of_row() const { return shift == 0 ? 0 : static_cast<int32_t>(uint32_t{1} << shift); }
};

}  // namespace polyleaf
