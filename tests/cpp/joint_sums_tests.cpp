// Sums of channels that share a number, at the ends of what fits.
#include <cstdint>
#include <vector>

#include "base/isa.h"
#include "check.h"
#include "kernels_of.h"
#include "search/packed_histogram.h"
#include "tests.h"

namespace polyleaf::tests {
namespace {

constexpr int kChannels = PackedSumFormat::kChannels;

// As many rows as fit, in one bin, each channel at one end of its range or the other, the ends of
// different channels in every combination; and in another bin rows in between.
void check_at_the_ends(const std::vector<ChannelRange>& channels, int64_t rows, bool all_fit) {
  const PackedSumFormat format = PackedSumFormat::make(channels, rows);
  CHECK(all_fit ? format.rows == rows : format.rows > 0 && format.rows < rows);
  for (int isa = 0; isa < static_cast<int>(available_isas().size()); ++isa)
    for (unsigned ends = 0; ends < 1u << channels.size(); ++ends) {
      std::vector<int16_t> values;
      std::vector<uint64_t> words;
      std::vector<int64_t> expected(2 * kChannels, 0);
      for (int64_t i = 0; i < format.rows + 7; ++i) {
        const bool at_the_end = i < format.rows;
        words.push_back(at_the_end ? 1 : 3);
        for (size_t j = 0; j < kChannels; ++j) {
          int32_t value = 0;
          if (j < channels.size())
            value = (ends >> j & 1) != 0 ? channels[j].most : channels[j].least;
          if (!at_the_end) value /= 3;
          values.push_back(static_cast<int16_t>(value));
          expected[(at_the_end ? 0 : kChannels) + j] += value;
        }
      }
      const auto n = static_cast<int64_t>(words.size());
      std::vector<uint64_t> joint(4, 0), by_id(4, 0);
      std::vector<int32_t> sums(4 * kChannels, 0);
      kernels_of(isa).build_joint(words.data(), nullptr, values.data(), n, 1, 2, format,
                                  joint.data());
      std::vector<uint32_t> ids;  // of the same words, which lie the other way round
      for (int64_t i = 0; i < n; ++i) ids.push_back(static_cast<uint32_t>(n - 1 - i));
      const std::vector<uint64_t> turned(words.rbegin(), words.rend());
      kernels_of(isa).build_joint(turned.data(), ids.data(), values.data(), n, 1, 2, format,
                                  by_id.data());
      CHECK(joint == by_id);
      for (int pass = 0; pass < 2; ++pass) {  // the second time there is nothing left to spread
        kernels_of(isa).spread(joint.data(), 4, format, sums.data());
        for (int j = 0; j < kChannels; ++j) {
          CHECK(sums[0 * kChannels + j] == 0 && sums[2 * kChannels + j] == 0);
          CHECK(sums[1 * kChannels + j] == expected[j]);
          CHECK(sums[3 * kChannels + j] == expected[kChannels + j]);
        }
      }
    }
}

}  // namespace

void test_joint_sums() {
  const ChannelRange gradient{-32767, 32767}, hessian{0, 32767}, count{0, 1};
  // 27 + 26 + 11 bits, all that there are.
  check_at_the_ends({gradient, hessian, count}, 2047, true);
  check_at_the_ends({gradient, hessian, count}, 4096, false);
  check_at_the_ends({gradient, count}, 65536, true);
  check_at_the_ends({gradient, gradient, gradient, count}, 15, true);
  check_at_the_ends({gradient, gradient, hessian, count}, 5000, false);
  check_at_the_ends({{-1023, 1023}, {0, 2047}, count}, 8191, true);
  check_at_the_ends({{0, 0}, {0, 0}, count}, 100, true);
  CHECK(PackedSumFormat::make(std::vector<ChannelRange>(5, count), 10).rows == 0);
  CHECK(PackedSumFormat::make(std::vector<ChannelRange>{count}, 0).rows == 0);
}

}  // namespace polyleaf::tests
