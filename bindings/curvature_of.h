// The curvature of channels by its name, and the columns that it has.
#pragma once
#include <stdexcept>
#include <string>

#include "arrays.h"
#include "quantised_gradients/quantised_gradients.h"

namespace polyleaf {

inline Curvature curvature_of(const std::string& kind) {
  if (kind == "unit") return Curvature::unit;
  if (kind == "shared") return Curvature::shared;
  if (kind == "diagonal") return Curvature::diagonal;
  if (kind == "full") return Curvature::full;
  throw std::invalid_argument(
      "The curvature of channels must be unit, shared, diagonal or full, not '" + kind + "'.");
}

// Throws unless a matrix of curvatures of so many columns, -1 where there is none, is what the kind
// needs.
inline void check_curvature(Curvature curvature, int64_t n_outputs, int64_t columns) {
  require((curvature == Curvature::unit) == (columns < 0),
          "h is needed exactly for curvatures other than unit.");
  if (columns < 0) return;
  ChannelLayout layout;
  layout.n_outputs = static_cast<int>(n_outputs);
  layout.curvature = curvature;
  require(columns == layout.n_curvature(),
          "h must have one column for shared curvature, one per output for diagonal curvature, and "
          "K (K + 1) "
          "/ 2 for full curvature.");
}

}  // namespace polyleaf
