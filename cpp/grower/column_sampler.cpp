#include "grower/column_sampler.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace polyleaf {
namespace {

using HashedColumn = std::pair<uint64_t, size_t>;  // hash and feature

// Return where the k-th smallest of m random 64-bit numbers is expected, `spread` standard
// deviations off.
uint64_t expected_order_statistic(double k, double m, double spread) {
  const double share = k / m + spread * std::sqrt(k * (m - k) / m) / m;
  return share <= 0 ? 0 : share >= 1 ? UINT64_MAX : static_cast<uint64_t>(share * 0x1p64);
}

// Find the k-th smallest hash (k from 0) among the m allowed features. Only hashes near the
// expected value are sorted.
HashedColumn find_smallest(const std::vector<uint64_t>& hashes, const std::vector<uint8_t>& allowed,
                           size_t k, size_t m) {
  const ColumnSamplerKernels& kernels = POLYLEAF_SELECT(column_sampler_kernels);
  const auto n = static_cast<int64_t>(hashes.size());
  const auto limit = [&](double spread) {
    return expected_order_statistic(static_cast<double>(k), static_cast<double>(m), spread);
  };
  const auto count_hashes_below = [&](uint64_t limit) {
    return static_cast<size_t>(kernels.count_below(hashes.data(), allowed.data(), n, limit));
  };
  uint64_t low = limit(-4), high = limit(4);
  if (count_hashes_below(low) > k) low = 0;
  if (count_hashes_below(high) <= k) high = UINT64_MAX;
  std::vector<HashedColumn> candidates;
  for (size_t f = 0; f < hashes.size(); ++f)
    if (hashes[f] - low <= high - low && allowed[f] != 0) candidates.emplace_back(hashes[f], f);
  const auto at = candidates.begin() + static_cast<int64_t>(k - count_hashes_below(low));
  std::nth_element(candidates.begin(), at, candidates.end());
  return *at;
}

}  // namespace

void sample_columns(uint64_t seed, int32_t node, double fraction, std::vector<uint8_t>& allowed) {
  const ColumnSamplerKernels& kernels = POLYLEAF_SELECT(column_sampler_kernels);
  const auto m = static_cast<size_t>(
      std::count_if(allowed.begin(), allowed.end(), [](uint8_t a) { return a != 0; }));
  const auto keep = static_cast<size_t>(std::ceil(fraction * static_cast<double>(m)));
  if (keep >= m) return;
  const auto n = static_cast<int64_t>(allowed.size());
  std::vector<uint64_t> hashes(allowed.size());
  kernels.hashes(seed, static_cast<uint64_t>(node), n, hashes.data());
  const auto [first_out, feature] = find_smallest(hashes, allowed, keep, m);
  // Ties are broken by feature index: the first features are kept.
  std::vector<size_t> ties;
  for (size_t f = 0; f < feature; ++f)
    if (hashes[f] == first_out && allowed[f] != 0) ties.push_back(f);
  kernels.keep_below(hashes.data(), n, first_out, allowed.data());
  for (const size_t f : ties) allowed[f] = 1;
}

}  // namespace polyleaf
