// Feature codes as they cross the border: feature-major, (n_features, n_rows).
#pragma once
#include <cstdint>

#include "arrays.h"
#include "forest/forest.h"

namespace polyleaf {

inline CodeMatrix code_matrix(const Array2<const uint8_t>& codes) {
  return {codes.data(), static_cast<int64_t>(codes.shape(0)), static_cast<int64_t>(codes.shape(1))};
}

}  // namespace polyleaf
