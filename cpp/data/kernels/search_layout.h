// Search table of one feature with m <= 254 ascending thresholds: rows of 16 lanes, unused lanes
// +infinity. Row 0 (coarse) holds thresholds 15, 31, 47, ...; row 1 + j (fine) holds thresholds 16
// j .. 16 j + 14, and +infinity. The bin of x is 16 j + k, where j coarse thresholds and k fine
// thresholds of row j are below x: two vector comparisons, no branches, and a table no longer than
// the feature needs.
#pragma once

namespace polyleaf {

constexpr int kSearchLanes = 16;
constexpr int search_rows(int n_thresholds) {
  return 2 + n_thresholds / kSearchLanes;
}

}  // namespace polyleaf
