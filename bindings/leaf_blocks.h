// Leaves as Python hands them over: a float32 matrix (dense), SparseLeaves or LinearLeaves; and raw features.
#pragma once
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/variant.h>

#include <memory>
#include <optional>
#include <variant>

#include "arrays.h"
#include "leaves/leaf_block.h"

namespace polyleaf {

using AnyLeaves = std::variant<std::shared_ptr<LeafBlock>, Array2<const float>>;
using AnyFeatures = Optional2<const float>;

inline std::shared_ptr<const LeafBlock> leaf_block(const AnyLeaves& leaves) {
  if (const auto* block = std::get_if<std::shared_ptr<LeafBlock>>(&leaves)) return *block;
  const auto& values = std::get<Array2<const float>>(leaves);
  return std::make_shared<DenseLeaves>(values.data(), static_cast<int64_t>(values.shape(0)),
                                       static_cast<int64_t>(values.shape(1)));
}

inline FeatureMatrix feature_matrix(const AnyFeatures& features) {
  if (!features) return {};
  return {features->data(), static_cast<int64_t>(features->shape(0)),
          static_cast<int64_t>(features->shape(1))};
}

// A view of n vectors of a block, without their padding.
inline nb::ndarray<nb::numpy, const float> vectors(const float* data, int64_t n, const LeafBlock& block,
                                                   nb::handle owner) {
  return view<float>(data, {static_cast<size_t>(n), static_cast<size_t>(block.n_columns())}, owner,
                     {block.view().stride, 1});
}

}  // namespace polyleaf
