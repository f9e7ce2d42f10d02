// Which rows a tree sees. Must not know what is done with them.
#pragma once
#include <cstdint>

namespace polyleaf {

// All rows, or the ascending `rows`; `multiplier` (n_all) scales a row's derivatives.
struct RowSample {
  int64_t n_all = 0;
  const uint32_t* rows = nullptr;
  int64_t n_rows = 0;
  const float* multiplier = nullptr;
  int64_t n_used() const { return rows != nullptr ? n_rows : n_all; }
  bool operator==(const RowSample&) const = default;  // the same arrays
};

}  // namespace polyleaf
