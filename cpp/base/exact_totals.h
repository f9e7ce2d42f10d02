// Totals of floats over rows that do not depend on the order of the rows or on how they are
// distributed over threads and ranks: each product is rounded once, truncated to a multiple of a
// unit that the largest product sets, and added as a 128-bit integer.
#pragma once
#include <cstdint>

#include "base/context.h"

namespace polyleaf {

struct TotalsInput {
  int64_t n_rows = 0, n_columns = 0;
  // (n_rows, weight_columns), 1 or n_columns of them; nullptr: all 1.
  const float* weight = nullptr;
  int64_t weight_columns = 0;
  const int32_t* group = nullptr;  // of each row, 0 .. n_groups - 1; nullptr: one group
  int64_t n_groups = 1;
};

// Write totals (2, n_groups, n_columns): sums of weight * value and of weight, rounded once. A
// column with a product that is not finite gets NaN. values: (n_rows, n_columns), fewer than 2^31
// rows.
template <class T>
void exact_totals(const T* values, const TotalsInput& input, double* totals,
                  const Context& context);

}  // namespace polyleaf
