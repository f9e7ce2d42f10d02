// Conversions between Python arguments and the types of the core.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "arrays.h"
#include "base/context.h"
#include "context_caster.h"
#include "data/binning.h"
#include "data/bins.h"
#include "data/sample.h"
#include "data/sparse_rows.h"
#include "device/binning.h"
#include "forest/forest.h"
#include "leaves/leaf_kinds.h"
#include "leaves/topk.h"
#include "quantised_gradients/quantised_gradients.h"
#include "split_gain/monotone_constraints.h"

namespace nb = nanobind;

namespace polyleaf {

// Return a view of feature codes (n_features, n_rows).
inline CodeMatrix code_matrix(const Array2<const uint8_t>& codes) {
  return {codes.data(), static_cast<int64_t>(codes.shape(0)), static_cast<int64_t>(codes.shape(1))};
}

// Bind a loss class whose instances are created from a loss name.
template <class L>
nb::class_<L> bind_loss(nb::module_& m, const char* name, const char* doc) {
  return nb::class_<L>(m, name, doc)
      .def(nb::init<const std::string&, const typename L::Parameters&>(), nb::arg("name"),
           nb::arg("parameters"), "Create a loss from its name and all its parameters.")
      .def_static("available", &L::available,
                  "Return the parameter names of every loss: loss name -> parameter names.");
}

// Python object of a GPU array, with the owner of its memory.
struct DeviceArrayHandle {
  DeviceArray array;
  size_t n_dimensions;
  nb::object owner;
  nb::ndarray<nb::ro> handed;  // array of another library, if imported

  nb::tuple shape() const;
  std::string typestr() const;
};

void bind_device_arrays(nb::module_& m);

// Return the monotone constraints from int8 (n_features, n_outputs); None: no constraints.
inline MonotoneConstraints parse_monotone_constraints(
    const Bins& bins, const std::optional<Array2<const int8_t>>& constraints) {
  if (!constraints) return {};
  const int n_outputs = static_cast<int>(constraints->shape(1));
  require(static_cast<int>(constraints->shape(0)) == bins.n_features(),
          "constraints must have one row per feature.");
  for (int f = 0; f < bins.n_features(); ++f)
    for (int k = 0; k < n_outputs; ++k)
      require(!bins.is_categorical(f) || constraints->data()[f * n_outputs + k] == 0,
              "A categorical feature cannot have a monotone constraint.");
  return {constraints->data(), bins.n_features(), n_outputs};
}

constexpr const char* kMonotoneConstraintsDoc =
    "Set the monotone constraints of the next trees, int8 (n_features, K); None: no "
    "constraints.\n\n"
    "1: an output must not decrease as the feature increases; -1: it must not increase;\n"
    "0: no constraint.";

// Return the Hessian kind of the given name.
inline HessianKind parse_hessian_kind(const std::string& kind) {
  if (kind == "unit") return HessianKind::unit;
  if (kind == "shared") return HessianKind::shared;
  if (kind == "diagonal") return HessianKind::diagonal;
  if (kind == "full") return HessianKind::full;
  throw std::invalid_argument("The Hessian kind must be unit, shared, diagonal or full, not '" +
                              kind + "'.");
}

// Throw std::invalid_argument unless h has the number of columns that the Hessian kind needs; -1:
// no h.
inline void check_hessian(HessianKind hessian, int64_t n_outputs, int64_t columns) {
  require((hessian == HessianKind::unit) == (columns < 0),
          "h is needed for every Hessian kind except unit, and only then.");
  if (columns < 0) return;
  ChannelLayout layout;
  layout.n_outputs = static_cast<int>(n_outputs);
  layout.hessian = hessian;
  require(columns == layout.n_hessian(),
          "h must have one column for a shared Hessian, one per output for a diagonal Hessian, and "
          "K (K + 1) / 2 for a full Hessian.");
}

// Return the value type of a dtype; booleans are read as bytes.
inline ValueType to_value_type(nb::dlpack::dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(dtype.code);
  if (code == Code::Float && dtype.bits == 32) return ValueType::f32;
  if (code == Code::Float && dtype.bits == 64) return ValueType::f64;
  const bool is_unsigned = code == Code::UInt || code == Code::Bool;
  require(dtype.lanes == 1 && (is_unsigned || code == Code::Int),
          "Columns must be float32, float64 or integers of 8 to 64 bits.");
  switch (dtype.bits) {
    case 8:
      return is_unsigned ? ValueType::u8 : ValueType::i8;
    case 16:
      return is_unsigned ? ValueType::u16 : ValueType::i16;
    case 32:
      return is_unsigned ? ValueType::u32 : ValueType::i32;
    default:
      return is_unsigned ? ValueType::u64 : ValueType::i64;
  }
}

inline nb::dlpack::dtype to_dlpack_type(ValueType type) {
  using Code = nb::dlpack::dtype_code;
  const bool is_float = type == ValueType::f32 || type == ValueType::f64;
  const Code code = is_float                          ? Code::Float
                    : static_cast<int>(type) % 2 == 0 ? Code::UInt
                                                      : Code::Int;
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(8 * value_size(type)), 1};
}

// Return rows from CSR arrays; values None: 1.
inline SparseRows parse_sparse_rows(const Array1<const int64_t>& indptr,
                                    const Array1<const int32_t>& outputs,
                                    const Optional1<const float>& values, int64_t n_outputs,
                                    const Context& context) {
  require(indptr.size() >= 1, "indptr must have one entry per row plus one.");
  require(n_outputs >= 1 && n_outputs <= INT32_MAX,
          "There must be between 1 and 2147483647 outputs.");
  require(!values || values->size() == outputs.size(),
          "outputs and values must have the same length.");
  nb::gil_scoped_release release;
  return make_sparse_rows(indptr.data(), outputs.data(), values ? values->data() : nullptr,
                          static_cast<int64_t>(indptr.size()) - 1,
                          static_cast<int64_t>(outputs.size()), n_outputs, context);
}

inline std::shared_ptr<LeafBlock> make_topk_block(const TopkLeafArrays& leaves, int64_t n_outputs) {
  return std::make_shared<TopkLeaves>(leaves.begin, leaves.outputs, leaves.values, n_outputs);
}

// Return a row sample, which the arrays must outlive. It may be empty only in distributed training.
inline RowSample make_row_sample(int64_t n_all, const Optional1<const uint32_t>& rows,
                                 const Optional1<const float>& multiplier,
                                 const Context& context = 1) {
  const bool is_local = !context.is_distributed();
  require(n_all >= 1 || !is_local, "There must be at least one row.");
  RowSample sample;
  sample.n_all = n_all;
  if (rows) {
    require(rows->size() >= 1 || !is_local, "A row sample must not be empty.");
    sample.rows = non_null_data(rows->data(), rows->size());
    sample.n_rows = static_cast<int64_t>(rows->size());
    for (int64_t i = 0; i < sample.n_rows; ++i)
      require(sample.rows[i] < n_all && (i == 0 || sample.rows[i - 1] < sample.rows[i]),
              "A row sample must be ascending row numbers below the number of rows.");
  }
  if (multiplier) {
    require(static_cast<int64_t>(multiplier->size()) == n_all,
            "multiplier must have one entry per row.");
    sample.multiplier = non_null_data(multiplier->data(), multiplier->size());
  }
  return sample;
}

}  // namespace polyleaf
