// Counts that ride on sums, at the ends of what fits, and the runs of rows in which they may.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/isa.h"
#include "check.h"
#include "data/bins.h"
#include "kernels_of.h"
#include "problem.h"
#include "search/packed_histogram.h"
#include "tests.h"

namespace polyleaf::tests {
namespace {

// Runs of as many rows of one bin as may ride, of the largest channels there are, up and down in
// turn or always up: sums that no longer leave bits for a count once a few runs are added.
void check_at_the_ends(int lanes, bool in_turn) {
  constexpr int kRuns = 5, kBins = 4, kBin = 2;
  for (int isa = 0; isa < static_cast<int>(available_isas().size()); ++isa) {
    std::vector<int32_t> sums(kBins * lanes, 0), below(kBins, 0), expected(lanes, 0);
    std::vector<uint32_t> counts(kBins, 0);
    const std::vector<uint64_t> words(kMaxPackedCount, kBin);
    for (int run = 0; run < kRuns; ++run) {
      const auto value = static_cast<int16_t>(in_turn && run % 2 == 1 ? -INT16_MAX : INT16_MAX);
      const std::vector<int16_t> channels(words.size() * lanes, value);
      kernels_of(isa).build(words.data(), channels.data(), kMaxPackedCount, 1, 2, lanes, true,
                            sums.data(), counts.data());
      kernels_of(isa).unpack_counts(sums.data(), kBins, lanes, run == kRuns - 1, below.data(),
                                    counts.data());
      for (int32_t& sum : expected) sum += static_cast<int32_t>(kMaxPackedCount) * value;
    }
    for (int bin = 0; bin < kBins; ++bin) {
      CHECK(counts[bin] == (bin == kBin ? kRuns * kMaxPackedCount : 0));
      CHECK(below[bin] == 0);
      for (int lane = 0; lane < lanes; ++lane)
        CHECK(sums[bin * lanes + lane] == (bin == kBin ? expected[lane] : 0));
    }
  }
}

void check_runs(int64_t at_most) {
  const Problem p = make_problem(7, 3000, 20, 1);
  const Context context{2};
  const Bins bins(p.codes.data(), p.n, p.n_features, p.n_bins.data(), p.categorical.data(),
                  context);
  const auto runs = bins.find_row_runs(at_most, context);
  CHECK(static_cast<int>(runs.size()) == bins.n_tiles());
  for (int t = 0; t < bins.n_tiles(); ++t) {
    CHECK(!runs[t].empty() && runs[t].back() == p.n);
    int64_t first = 0;
    for (const uint32_t end : runs[t]) {
      CHECK(end > first);
      int64_t most = 0, most_with_next = 0;
      for (int s = 0; s < bins.tile(t).n_features; ++s) {
        std::vector<int64_t> of_code(256, 0);
        const uint8_t* codes = p.codes.data() + bins.tile(t).features[s] * p.n;
        for (int64_t i = first; i < end; ++i) most = std::max(most, ++of_code[codes[i]]);
        if (end < p.n) most_with_next = std::max(most_with_next, of_code[codes[end]] + 1);
      }
      CHECK(most <= at_most && (end == p.n || most_with_next > at_most));
      first = end;
    }
  }
}

}  // namespace

void test_riding_counts() {
  for (const int lanes : {16, 32, 48, 64})
    for (const bool in_turn : {false, true}) check_at_the_ends(lanes, in_turn);
  for (const int64_t at_most : {int64_t{1}, int64_t{40}, kMaxPackedCount, int64_t{3000}})
    check_runs(at_most);
}

}  // namespace polyleaf::tests
