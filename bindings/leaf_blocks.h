// Conversion of leaves and raw features between C++ and Python: dense leaves are a float32 matrix,
// other leaves an object of their class.
#pragma once
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/variant.h>

#include <memory>
#include <optional>
#include <variant>

#include "arrays.h"
#include "leaves/leaf_kinds.h"

namespace polyleaf {

using AnyLeaves = std::variant<std::shared_ptr<LeafBlock>, Array2<const float>>;
using AnyFeatures = Optional2<const float>;
using AnyOutputs = std::optional<std::variant<int32_t, Array1<const int32_t>>>;

inline std::shared_ptr<const LeafBlock> leaf_block(const AnyLeaves& leaves) {
  if (const auto* block = std::get_if<std::shared_ptr<LeafBlock>>(&leaves)) return *block;
  return std::make_shared<DenseLeaves>(matrix_view(std::get<Array2<const float>>(leaves)));
}

// Return the outputs of a tree: those of an array, one, or all (None).
inline OutputList output_list(const AnyOutputs& outputs) {
  if (!outputs) return {};
  if (const auto* output = std::get_if<int32_t>(&*outputs)) return {*output};
  const auto& listed = std::get<Array1<const int32_t>>(*outputs);
  require(listed.size() > 0, "A tree needs at least one output.");
  return {listed.data(), listed.data() + listed.size()};
}

inline FeatureMatrix feature_matrix(const AnyFeatures& features) {
  if (!features) return {};
  return {features->data(), static_cast<int64_t>(features->shape(0)),
          static_cast<int64_t>(features->shape(1))};
}

// Return a view; dense leaves are not copied.
inline LeafView get_leaf_view(const AnyLeaves& leaves) {
  if (const auto* block = std::get_if<std::shared_ptr<LeafBlock>>(&leaves)) return (*block)->view();
  return DenseLeaves::make_view(matrix_view(std::get<Array2<const float>>(leaves)));
}

// Return a view of n vectors of a block without their padding.
inline nb::ndarray<nb::numpy, const float> vectors(const float* data, int64_t n,
                                                   const LeafBlock& block, nb::handle owner) {
  return view<float>(data, {static_cast<size_t>(n), static_cast<size_t>(block.n_columns())}, owner,
                     {block.view().stride, 1});
}

// Convert to Python: dense leaves become a view without padding that keeps them alive.
inline nb::object as_python(const std::shared_ptr<LeafBlock>& block) {
  if (&block->kind() != &kDense) return nb::cast(block);
  nb::capsule owner(new std::shared_ptr<LeafBlock>(block),
                    [](void* p) noexcept { delete static_cast<std::shared_ptr<LeafBlock>*>(p); });
  return nb::cast(vectors(block->view().values, block->n_leaves(), *block, owner));
}

}  // namespace polyleaf
