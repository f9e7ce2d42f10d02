// Arrays on a device, as Python's libraries hand them to one another: in without a copy, and out.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "conversions.h"

namespace polyleaf {
namespace {

using SharedDevice = std::shared_ptr<Device>;
using ArrayAnywhere = nb::ndarray<nb::ro>;

// Of one dimension or two; a vector is a matrix of one column. `strides` in bytes.
DeviceView make_view(DeviceAddress data, ValueType type, const std::vector<int64_t>& shape,
                     const std::vector<int64_t>& strides) {
  require(shape.size() == strides.size() && (shape.size() == 1 || shape.size() == 2),
          "An array on a device must have one dimension or two.");
  const bool is_matrix = shape.size() == 2;
  require(shape[0] <= INT32_MAX && (!is_matrix || shape[1] <= INT32_MAX),
          "An array on a device must have at most 2147483647 rows and columns.");
  const auto size = static_cast<int64_t>(value_size(type));
  const DeviceView view{
      data, type, shape[0], is_matrix ? shape[1] : 1, strides[0], is_matrix ? strides[1] : size};
  require(static_cast<int64_t>(data) % size == 0 && view.row_stride % size == 0 &&
              view.column_stride % size == 0,
          "Numbers of an array on a device must lie at multiples of their size.");
  return view;
}

DeviceArrayHandle* from_dlpack(const SharedDevice& device, nb::handle capsule) {
  auto array = nb::cast<ArrayAnywhere>(capsule);
  const ValueType type = to_value_type(array.dtype());
  const auto size = static_cast<int64_t>(value_size(type));
  std::vector<int64_t> shape, strides;
  for (size_t i = 0; i < array.ndim(); ++i) {
    shape.push_back(static_cast<int64_t>(array.shape(i)));
    strides.push_back(array.stride(i) * size);
  }
  const DeviceView view =
      make_view(reinterpret_cast<DeviceAddress>(array.data()), type, shape, strides);
  return new DeviceArrayHandle{DeviceArray(device, view), array.ndim(), nb::none(), array};
}

DeviceArrayHandle* from_address(const SharedDevice& device, DeviceAddress data,
                                const std::string& kind, int size,
                                const std::vector<int64_t>& shape,
                                const std::vector<int64_t>& strides, nb::object owner) {
  using Code = nb::dlpack::dtype_code;
  const Code code = kind == "f"                  ? Code::Float
                    : kind == "i"                ? Code::Int
                    : kind == "u" || kind == "b" ? Code::UInt
                                                 : Code::Complex;
  const ValueType type =
      to_value_type({static_cast<uint8_t>(code), static_cast<uint8_t>(8 * size), 1});
  return new DeviceArrayHandle{DeviceArray(device, make_view(data, type, shape, strides)),
                               shape.size(),
                               std::move(owner),
                               {}};
}

auto copy_rows(const DeviceArrayHandle& self, const Optional1<const int64_t>& rows) {
  const DeviceView& view = self.array.view();
  if (rows)
    for (size_t i = 0; i < rows->size(); ++i)
      require(rows->data()[i] >= 0 && rows->data()[i] < view.n_rows, "A row is out of range.");
  const int64_t n = rows ? static_cast<int64_t>(rows->size()) : view.n_rows;
  auto* const data = new char[std::max<size_t>(
      static_cast<size_t>(n * view.n_columns) * self.array.item_size(), 1)];
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<char*>(p); });
  {
    nb::gil_scoped_release release;
    self.array.read(rows ? rows->data() : nullptr, n, data);
  }
  const size_t shape[] = {static_cast<size_t>(n), static_cast<size_t>(view.n_columns)};
  return nb::ndarray<nb::numpy>(data, self.n_dimensions, shape, owner, nullptr,
                                to_dlpack_type(view.type));
}

nb::dict make_array_interface(const DeviceArrayHandle& self) {
  const DeviceView& view = self.array.view();
  nb::dict found;
  found["shape"] = self.shape();
  found["typestr"] = self.typestr();
  found["data"] = nb::make_tuple(view.data, true);
  found["strides"] = nb::none();
  found["version"] = 3;
  return found;  // no stream: what is handed out is there
}

// As another library takes it: it keeps `self`.
nb::object make_dlpack(nb::handle self, const nb::kwargs& options) {
  const auto& held = nb::cast<const DeviceArrayHandle&>(self);
  const DeviceView& view = held.array.view();
  const size_t shape[] = {static_cast<size_t>(view.n_rows), static_cast<size_t>(view.n_columns)};
  const nb::ndarray<nb::array_api> array(reinterpret_cast<void*>(view.data), held.n_dimensions,
                                         shape, self, nullptr, to_dlpack_type(view.type),
                                         nb::device::cuda::value, 0);
  return nb::cast(array).attr("__dlpack__")(**options);
}

}  // namespace

nb::tuple DeviceArrayHandle::shape() const {
  const DeviceView& view = array.view();
  return n_dimensions == 1 ? nb::make_tuple(view.n_rows)
                           : nb::make_tuple(view.n_rows, view.n_columns);
}

std::string DeviceArrayHandle::typestr() const {
  const ValueType type = array.view().type;
  const bool is_float = type == ValueType::f32 || type == ValueType::f64;
  const char kind = is_float ? 'f' : static_cast<int>(type) % 2 == 0 ? 'u' : 'i';
  return (array.item_size() == 1 ? "|" : "<") + (kind + std::to_string(array.item_size()));
}

void bind_device_arrays(nb::module_& m) {
  nb::class_<DeviceArrayHandle>(m, "DeviceArray",
                                "Numbers on a device: of another library, or handed to others.")
      .def_static("from_dlpack", &from_dlpack, nb::arg("device"), nb::arg("capsule"),
                  "Memory of another library's, which it keeps until this goes.")
      .def_static("from_address", &from_address, nb::arg("device"), nb::arg("data"),
                  nb::arg("kind"), nb::arg("item_size"), nb::arg("shape"), nb::arg("strides"),
                  nb::arg("owner"),
                  "Memory of the owner's; kind of numbers as NumPy calls it, strides in bytes.")
      .def_prop_ro("shape", &DeviceArrayHandle::shape)
      .def_prop_ro("ndim", [](const DeviceArrayHandle& self) { return self.n_dimensions; })
      .def_prop_ro("typestr", &DeviceArrayHandle::typestr, "Of the numbers, as NumPy writes it.")
      .def("read", &copy_rows, nb::arg("rows").none() = nb::none(),
           "A copy of rows, or of all, in memory of this machine.")
      .def(
          "find_infinity",
          [](const DeviceArrayHandle& self) -> nb::object {
            int64_t at;
            {
              nb::gil_scoped_release release;
              at = self.array.find_infinity();
            }
            const int64_t k = self.array.view().n_columns;
            return at < 0 ? nb::none() : nb::object(nb::make_tuple(at / k, at % k));
          },
          nb::sig("def find_infinity(self) -> tuple[int, int] | None"),
          "Row and column; None: there is none.")
      .def_prop_ro("__cuda_array_interface__", &make_array_interface)
      .def("__dlpack__", &make_dlpack, nb::sig("def __dlpack__(self, **options: object) -> object"))
      .def("__dlpack_device__",
           [](const DeviceArrayHandle&) { return std::make_pair(int{nb::device::cuda::value}, 0); })
      .def("__len__", [](const DeviceArrayHandle& self) { return self.array.view().n_rows; });
}

}  // namespace polyleaf
