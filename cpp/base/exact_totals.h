// Totals of floats over rows that do not depend on the order of the rows, on how they are shared
// out among threads, or on where they lie: each product is rounded once, cut to a multiple of a
// unit that the largest of them sets, and added as an integer of 128 bits.
//
// Must not know: what is summed.
#pragma once
#include <cstdint>

#include "base/context.h"

namespace polyleaf {

struct TotalsInput {
  int64_t n_rows = 0, n_columns = 0;
  const float* weight =
      nullptr;  // (n_rows, weight_columns), 1 or n_columns of them; nullptr: all 1
  int64_t weight_columns = 0;
  const int32_t* group = nullptr;  // of each row, 0 .. n_groups - 1; nullptr: one for all
  int64_t n_groups = 1;
};

// totals (2, n_groups, n_columns): sums of weight * value, and of weight, rounded once. A column
// with a product that is not finite has NaN. values: (n_rows, n_columns), fewer than 2^31 rows.
template <class T>
void exact_totals(const T* values, const TotalsInput& input, double* totals,
                  const Context& context);

}  // namespace polyleaf
