// Row samples at the border.
#pragma once
#include <optional>
#include <stdexcept>

#include "arrays.h"
#include "base/context.h"
#include "data/sample.h"

namespace polyleaf {

// The arrays must outlive the sample, which is of no rows only where another rank may have some.
inline RowSample make_row_sample(int64_t n_all, const Optional1<const uint32_t>& rows,
                           const Optional1<const float>& multiplier, const Context& context = 1) {
  const auto require = [](bool condition, const char* message) {
    if (!condition) throw std::invalid_argument(message);
  };
  const bool is_alone = !context.is_distributed();
  require(n_all >= 1 || !is_alone, "There must be at least one row.");
  RowSample sample;
  sample.n_all = n_all;
  if (rows) {
    require(rows->size() >= 1 || !is_alone, "A row sample must not be empty.");
    sample.rows = non_null_data(rows->data(), rows->size());
    sample.n_rows = static_cast<int64_t>(rows->size());
    for (int64_t i = 0; i < sample.n_rows; ++i)
      require(sample.rows[i] < n_all && (i == 0 || sample.rows[i - 1] < sample.rows[i]),
              "A row sample must be ascending row numbers below the number of rows.");
  }
  if (multiplier) {
    require(static_cast<int64_t>(multiplier->size()) == n_all,
            "A multiplier needs one entry per row.");
    sample.multiplier = non_null_data(multiplier->data(), multiplier->size());
  }
  return sample;
}

}  // namespace polyleaf
