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
#include "device/array.h"
#include "forest/forest.h"
#include "leaves/topk.h"
#include "leaves/topk_block.h"
#include "quantised_gradients/quantised_gradients.h"
#include "split_gain/monotone_constraints.h"

namespace nb = nanobind;

namespace polyleaf {

// Feature codes as they cross the border: feature-major, (n_features, n_rows).

inline CodeMatrix code_matrix(const Array2<const uint8_t>& codes) {
  return {codes.data(), static_cast<int64_t>(codes.shape(0)), static_cast<int64_t>(codes.shape(1))};
}

// How a loss of the core's tables is made by name, whatever it is a loss of.

template <class L>
nb::class_<L> bind_loss(nb::module_& m, const char* name, const char* doc) {
  return nb::class_<L>(m, name, doc)
      .def(nb::init<const std::string&, const typename L::Parameters&>(), nb::arg("name"),
           nb::arg("parameters"), "The loss of that name, with all its parameters.")
      .def_static("available", &L::available, "Name of every loss -> names of its parameters.");
}

// An array on a device as Python holds it, with whoever owns its memory.

struct DeviceArrayHandle {
  DeviceArray array;
  size_t n_dimensions;
  nb::object owner;
  nb::ndarray<nb::ro> handed;  // where another library has handed it over

  nb::tuple shape() const;
  std::string typestr() const;
};

void bind_device_arrays(nb::module_& m);

// Directions of features, as searches are told of them.

// int8 (n_features, n_outputs); None: all outputs are free.
inline MonotoneConstraints parse_monotone_constraints(
    const Bins& bins, const std::optional<Array2<const int8_t>>& given) {
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

// The Hessian of channels by its name, and the columns that it has.

inline Hessian parse_hessian_kind(const std::string& kind) {
  if (kind == "unit") return Hessian::unit;
  if (kind == "shared") return Hessian::shared;
  if (kind == "diagonal") return Hessian::diagonal;
  if (kind == "full") return Hessian::full;
  throw std::invalid_argument(
      "The hessian of channels must be unit, shared, diagonal or full, not '" + kind + "'.");
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
          "h must have one column for shared hessian, one per output for diagonal hessian, and "
          "K (K + 1) "
          "/ 2 for full hessian.");
}

// Types of numbers at the border: those of arrays, and those that the core reads.

// Booleans are read as bytes.
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

// CSR arrays at the border, and sparse leaves on their way to Python.

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
                          static_cast<int64_t>(indptr.size()) - 1,
                          static_cast<int64_t>(outputs.size()), n_outputs, context);
}

inline std::shared_ptr<LeafBlock> make_topk_block(const TopkLeafArrays& leaves, int64_t n_outputs) {
  return std::make_shared<TopkLeaves>(
      leaves.begin.data(), static_cast<int64_t>(leaves.begin.size()) - 1, leaves.outputs.data(),
      leaves.values.data(), static_cast<int64_t>(leaves.outputs.size()), n_outputs);
}

// Row samples at the border.

// The arrays must outlive the sample, which is of no rows only where another rank may have some.
inline RowSample make_row_sample(int64_t n_all, const Optional1<const uint32_t>& rows,
                                 const Optional1<const float>& multiplier,
                                 const Context& context = 1) {
  const auto require = [](bool condition, const char* message) {
    if (!condition) throw std::invalid_argument(message);
  };
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
            "A multiplier needs one entry per row.");
    sample.multiplier = non_null_data(multiplier->data(), multiplier->size());
  }
  return sample;
}

}  // namespace polyleaf
