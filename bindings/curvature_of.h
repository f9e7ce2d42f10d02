// The Hessian of channels by its name, and the columns that it has.
#pragma once
#include <stdexcept>
#include <string>

#include "arrays.h"
#include "quantised_gradients/quantised_gradients.h"

namespace polyleaf {

inline Hessian hessian_of(const std::string& kind) {
  if (kind == "unit") return Hessian::unit;
  if (kind == "shared") return Hessian::shared;
  if (kind == "diagonal") return Hessian::diagonal;
  if (kind == "full") return Hessian::full;
  throw std::invalid_argument(
      "The Hessian of channels must be unit, shared, diagonal or full, not '" + kind + "'.");
}

// Throws unless a matrix of Hessian of so many columns, -1 where there is none, is what the kind
// needs.
inline void check_hessian(Hessian hessian, int64_t n_outputs, int64_t columns) {
  require((hessian == Hessian::unit) == (columns < 0),
          "h is needed exactly for hessians other than unit.");
  if (columns < 0) return;
  ChannelLayout layout;
  layout.n_outputs = static_cast<int>(n_outputs);
  layout.hessian = hessian;
  require(columns == layout.n_hessian(),
          "h must have one column for shared Hessian, one per output for diagonal Hessian, and "
          "K (K + 1) "
          "/ 2 for full Hessian.");
}

}  // namespace polyleaf
