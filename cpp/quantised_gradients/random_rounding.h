// Unbiased rounding of derivatives, where the heaviest row counts thousands of light ones: rounded
// to the nearest integer, each of the light rows would become 0, and so would their sum.
#pragma once
#include <cstdint>

#include "base/context.h"
#include "base/matrix_view.h"
#include "data/sample.h"

namespace polyleaf {

// Write to `out` (n_all, n_columns) values that QuantisedGradients quantises exactly: the
// derivatives `values`, each rounded up or down to a multiple of the step of its column, with the
// probability of the fraction. `ids` (n_all): random numbers are hashes of these; nullptr: of the
// rows' positions. `keys` (n_columns, 2): of the hash of each column. Throws std::invalid_argument
// if a value is not finite.
void round_at_random(MatrixView<const float> values, const RowSample& sample, const int64_t* ids,
                     MatrixView<const uint32_t> keys, MatrixView<float> out,
                     const Context& context);

}  // namespace polyleaf
