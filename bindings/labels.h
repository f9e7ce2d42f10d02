// CSR arrays at the border, and sparse leaves on their way to Python.
#pragma once
#include <memory>
#include <optional>
#include <stdexcept>

#include "arrays.h"
#include "context_caster.h"
#include "data/sparse_rows.h"
#include "leaves/topk.h"
#include "leaves/topk_block.h"

namespace polyleaf {

inline SparseRows parse_sparse_rows(const Array1<const int64_t>& indptr,
                               const Array1<const int32_t>& outputs,
                               const Optional1<const float>& values, int64_t n_outputs,
                               const Context& context) {
  const auto require = [](bool condition, const char* message) {
    if (!condition) throw std::invalid_argument(message);
  };
  require(indptr.size() >= 1, "indptr needs one entry a row and one more.");
  require(n_outputs >= 1 && n_outputs <= INT32_MAX,
          "There must be between 1 and 2147483647 outputs.");
  require(!values || values->size() == outputs.size(),
          "The outputs and their values differ in length.");
  nb::gil_scoped_release release;
  return make_sparse_rows(indptr.data(), outputs.data(), values ? values->data() : nullptr,
                    static_cast<int64_t>(indptr.size()) - 1, static_cast<int64_t>(outputs.size()),
                    n_outputs, context);
}

inline std::shared_ptr<LeafBlock> make_topk_block(const TopkLeafArrays& leaves, int64_t n_outputs) {
  return std::make_shared<TopkLeaves>(
      leaves.begin.data(), static_cast<int64_t>(leaves.begin.size()) - 1, leaves.outputs.data(),
      leaves.values.data(), static_cast<int64_t>(leaves.outputs.size()), n_outputs);
}

}  // namespace polyleaf
