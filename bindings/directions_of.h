// Directions of features, as searches are told of them.
#pragma once
#include "arrays.h"
#include "data/bins.h"
#include "split_gain/monotone_constraints.h"

namespace polyleaf {

// int8 (n_features, n_outputs); None: all outputs are free.
inline MonotoneConstraints parse_monotone_constraints(const Bins& bins,
                                       const std::optional<Array2<const int8_t>>& given) {
  if (!given) return {};
  const int n_outputs = static_cast<int>(given->shape(1));
  require(static_cast<int>(given->shape(0)) == bins.n_features(),
          "directions needs one row per feature.");
  for (int f = 0; f < bins.n_features(); ++f)
    for (int k = 0; k < n_outputs; ++k)
      require(!bins.is_categorical(f) || given->data()[f * n_outputs + k] == 0,
              "Categories have no direction.");
  return {given->data(), bins.n_features(), n_outputs};
}

constexpr const char* kMonotoneConstraintsDoc =
    "int8 (n_features, K), or None: which outputs must not fall (1) or not rise (-1) with which "
    "features, "
    "from the next tree on; splits are judged by the best values that obey.";

}  // namespace polyleaf
