// Packed sums and packed counts at the limits of their bits, and the row runs of packed counts.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/isa.h"
#include "check.h"
#include "data/bins.h"
#include "isa_kernels.h"
#include "problem.h"
#include "search/packed_histogram.h"
#include "tests.h"

namespace polyleaf::tests {
namespace {

constexpr int kChannels = PackedSumFormat::kChannels;

// Sum the maximum number of rows in one bin, each channel at one end of its range, in every
// combination; in another bin, sum rows in between. The channels are followed by a count.
void check_packed_sums(const std::vector<ChannelRange>& channels, int64_t rows, bool fits) {
  const PackedSumFormat format = PackedSumFormat::make(channels, rows);
  CHECK(fits ? format.max_rows == rows : format.max_rows > 0 && format.max_rows < rows);
  for (int isa = 0; isa < static_cast<int>(available_isas().size()); ++isa)
    for (unsigned ends = 0; ends < 1u << channels.size(); ++ends) {
      std::vector<int16_t> values;
      std::vector<uint64_t> words;
      std::vector<int64_t> expected(2 * kChannels, 0);
      for (int64_t i = 0; i < format.max_rows + 7; ++i) {
        const bool is_extreme = i < format.max_rows;
        words.push_back(is_extreme ? 1 : 3);
        for (size_t j = 0; j < kChannels; ++j) {
          int32_t value = j == channels.size() ? 1 : 0;
          if (j < channels.size())
            value = ((ends >> j & 1) != 0 ? channels[j].most : channels[j].least) /
                    (is_extreme ? 1 : 3);
          values.push_back(static_cast<int16_t>(value));
          expected[(is_extreme ? 0 : kChannels) + j] += value;
        }
      }
      const auto n = static_cast<int64_t>(words.size());
      std::vector<uint64_t> packed(4, 0), packed_by_id(4, 0);
      std::vector<int32_t> sums(4 * kChannels, 0);
      get_kernels(isa).build_packed(words.data(), nullptr, values.data(), n, 1, 2, format,
                                    packed.data());
      std::vector<uint32_t> ids;  // of the same words in reverse order
      for (int64_t i = 0; i < n; ++i) ids.push_back(static_cast<uint32_t>(n - 1 - i));
      const std::vector<uint64_t> reversed_words(words.rbegin(), words.rend());
      get_kernels(isa).build_packed(reversed_words.data(), ids.data(), values.data(), n, 1, 2,
                                    format, packed_by_id.data());
      CHECK(packed == packed_by_id);
      for (int pass = 0; pass < 2; ++pass) {  // the second time nothing is left to unpack
        get_kernels(isa).unpack_sums(packed.data(), 4, format, sums.data());
        for (int j = 0; j < kChannels; ++j) {
          CHECK(sums[0 * kChannels + j] == 0 && sums[2 * kChannels + j] == 0);
          CHECK(sums[1 * kChannels + j] == expected[j]);
          CHECK(sums[3 * kChannels + j] == expected[kChannels + j]);
        }
      }
    }
}

// Sum runs of the maximum number of rows of one bin, with the largest channels, of alternating or
// of one sign: after a few runs the sums have no spare bits for a count.
void check_packed_counts(int lanes, bool alternates) {
  constexpr int kRuns = 5, kBins = 4, kBin = 2;
  for (int isa = 0; isa < static_cast<int>(available_isas().size()); ++isa) {
    std::vector<int32_t> sums(kBins * lanes, 0), rest(kBins, 0), expected(lanes, 0);
    std::vector<uint32_t> counts(kBins, 0);
    const std::vector<uint64_t> words(kMaxPackedCount, kBin);
    for (int run = 0; run < kRuns; ++run) {
      const auto value = static_cast<int16_t>(alternates && run % 2 == 1 ? -INT16_MAX : INT16_MAX);
      const std::vector<int16_t> channels(words.size() * lanes, value);
      get_kernels(isa).build(words.data(), channels.data(), kMaxPackedCount, 1, 2, lanes, true,
                             sums.data(), counts.data());
      get_kernels(isa).unpack_counts(sums.data(), kBins, lanes, run == kRuns - 1, rest.data(),
                                     counts.data());
      for (int32_t& sum : expected) sum += static_cast<int32_t>(kMaxPackedCount) * value;
    }
    for (int bin = 0; bin < kBins; ++bin) {
      CHECK(counts[bin] == (bin == kBin ? kRuns * kMaxPackedCount : 0));
      CHECK(rest[bin] == 0);
      for (int lane = 0; lane < lanes; ++lane)
        CHECK(sums[bin * lanes + lane] == (bin == kBin ? expected[lane] : 0));
    }
  }
}

void check_row_runs(int64_t max_count) {
  const Problem p = make_problem(7, 3000, 20, 1);
  const Context context{2};
  const Bins bins(p.codes.data(), p.n, p.n_features, p.n_bins.data(), p.categorical.data(),
                  context);
  const auto runs = bins.find_row_runs(max_count, context);
  CHECK(static_cast<int>(runs.size()) == bins.n_tiles());
  for (int t = 0; t < bins.n_tiles(); ++t) {
    CHECK(!runs[t].empty() && runs[t].back() == p.n);
    int64_t first = 0;
    for (const uint32_t end : runs[t]) {
      CHECK(end > first);
      int64_t most = 0, max_with_next = 0;
      for (int s = 0; s < bins.tile(t).n_features; ++s) {
        std::vector<int64_t> counts(256, 0);
        const uint8_t* codes = p.codes.data() + bins.tile(t).features[s] * p.n;
        for (int64_t i = first; i < end; ++i) most = std::max(most, ++counts[codes[i]]);
        if (end < p.n) max_with_next = std::max(max_with_next, counts[codes[end]] + 1);
      }
      CHECK(most <= max_count && (end == p.n || max_with_next > max_count));
      first = end;
    }
  }
}

}  // namespace

void test_packed_sums() {
  const ChannelRange gradient{-32767, 32767}, hessian{0, 32767};
  // 27 + 26 + 11 = 64 bits.
  check_packed_sums({gradient, hessian}, 2047, true);
  check_packed_sums({gradient, hessian}, 4096, false);
  check_packed_sums({gradient}, 65536, true);
  check_packed_sums({gradient, gradient, gradient}, 15, true);
  check_packed_sums({gradient, gradient, hessian}, 5000, false);
  check_packed_sums({{-1023, 1023}, {0, 2047}}, 8191, true);
  check_packed_sums({{0, 0}, {0, 0}}, 100, true);
  CHECK(PackedSumFormat::make(std::vector<ChannelRange>(4, hessian), 10).max_rows == 0);
  CHECK(PackedSumFormat::make(std::vector<ChannelRange>{hessian}, 0).max_rows == 0);
}

void test_packed_counts() {
  for (const int lanes : {16, 32, 48, 64})
    for (const bool alternates : {false, true}) check_packed_counts(lanes, alternates);
  for (const int64_t max_count : {int64_t{1}, int64_t{40}, kMaxPackedCount, int64_t{3000}})
    check_row_runs(max_count);
}

}  // namespace polyleaf::tests
