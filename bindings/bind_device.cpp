// Bindings of GPU classes: devices, matrices, and the parts of training that run on a GPU.
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "base/packed.h"
#include "context_caster.h"
#include "conversions.h"
#include "device/bins.h"
#include "device/device.h"
#include "device/leaves.h"
#include "device/losses.h"
#include "device/quantised_gradients.h"
#include "device/search.h"
#include "leaf_blocks.h"
#include "search_handle.h"
#include "sketch/sketch.h"

namespace polyleaf {

// Import of GPU arrays of other Python libraries without a copy, and export.

namespace {

using SharedDevice = std::shared_ptr<Device>;
using ArrayAnywhere = nb::ndarray<nb::ro>;

// Make a view of a 1D or 2D array; a vector is a matrix of one column. `strides` in bytes.
DeviceView make_view(DeviceAddress data, ValueType type, const std::vector<int64_t>& shape,
                     const std::vector<int64_t>& strides) {
  require(shape.size() == strides.size() && (shape.size() == 1 || shape.size() == 2),
          "A GPU array must have one or two dimensions.");
  const bool is_matrix = shape.size() == 2;
  require(shape[0] <= INT32_MAX && (!is_matrix || shape[1] <= INT32_MAX),
          "A GPU array must have at most 2147483647 rows and columns.");
  const auto size = static_cast<int64_t>(value_size(type));
  const DeviceView view{
      data, type, shape[0], is_matrix ? shape[1] : 1, strides[0], is_matrix ? strides[1] : size};
  require(static_cast<int64_t>(data) % size == 0 && view.row_stride % size == 0 &&
              view.column_stride % size == 0,
          "Elements of a GPU array must be aligned to their size.");
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
  return found;  // no stream: the data is complete
}

// Export as DLPack; the capsule keeps `self` alive.
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
                                "Array on a GPU, imported from another library or exported to one.")
      .def_static("from_dlpack", &from_dlpack, nb::arg("device"), nb::arg("capsule"),
                  "Import an array from a DLPack capsule without a copy.\n\n"
                  "The memory stays alive as long as this object.")
      .def_static("from_address", &from_address, nb::arg("device"), nb::arg("data"),
                  nb::arg("kind"), nb::arg("item_size"), nb::arg("shape"), nb::arg("strides"),
                  nb::arg("owner"),
                  "Import memory that `owner` keeps alive.\n\n"
                  "`kind` is the dtype kind of NumPy; `strides` are in bytes.")
      .def_prop_ro("shape", &DeviceArrayHandle::shape)
      .def_prop_ro("ndim", [](const DeviceArrayHandle& self) { return self.n_dimensions; })
      .def_prop_ro("typestr", &DeviceArrayHandle::typestr,
                   "Return the dtype as a NumPy type string.")
      .def("read", &copy_rows, nb::arg("rows").none() = nb::none(),
           "Return a NumPy copy of the given rows, int64 (n,); None: all rows.")
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
          "Return the row and column of an infinity, or None if there is none.")
      .def_prop_ro("__cuda_array_interface__", &make_array_interface)
      .def("__dlpack__", &make_dlpack, nb::sig("def __dlpack__(self, **options: object) -> object"))
      .def("__dlpack_device__",
           [](const DeviceArrayHandle&) { return std::make_pair(int{nb::device::cuda::value}, 0); })
      .def("__len__", [](const DeviceArrayHandle& self) { return self.array.view().n_rows; });
}

namespace {

using SharedDevice = std::shared_ptr<Device>;

void require_kernels(const Device& device) {
  require(device.is_loaded(), "The GPU has no kernels: call load first.");
}

void require_rows(const DeviceMatrix& matrix, int64_t n_rows, const char* name) {
  require(matrix.n_rows == n_rows,
          std::string(name) + " must have one row for each row of the data.");
}

DeviceMatrix sketch_signs_on_device(const DeviceMatrix& values, int32_t d, uint64_t seed,
                                    float scale) {
  require(d >= 1, "dim must be at least 1.");
  const auto n_columns = static_cast<int32_t>(values.n_columns);
  DeviceMatrix out(values.device, values.n_rows, d);
  nb::gil_scoped_release release;
  DeviceBuffer<float> signs(values.device);
  signs.write(make_random_signs(n_columns, d, seed));
  values.device->launch(values.device->grid_for(values.n_rows * d),
                        on_device::Project{values.data(), values.n_rows, n_columns, signs.data(), d,
                                           scale, out.data()});
  return out;
}

DeviceMatrix compute_row_means_on_device(const DeviceMatrix& values) {
  DeviceMatrix out(values.device, values.n_rows, 1);
  nb::gil_scoped_release release;
  const auto n_columns = static_cast<int32_t>(values.n_columns);
  const auto share = static_cast<float>(1.0 / n_columns);
  values.device->launch(
      values.device->grid_for(values.n_rows * 16),
      on_device::RowMeans{values.data(), values.n_rows, n_columns, share, out.data()});
  return out;
}

class DeviceSearchHandle final : public SearchHandle {
 public:
  DeviceSearchHandle(const DeviceBins& bins, const Context& context)
      : SearchHandle(bins.host()), device_(bins.device().get()), search_(bins, context) {}

  void use(const nb::handle_t<DeviceQuantisedGradients>& handle) {
    const auto& channels = nb::cast<const DeviceQuantisedGradients&>(handle);
    require(channels.device().get() == device_, "The channels must be on the GPU of the bins.");
    require(channels.sample().n_all == bins().n_rows(),
            "The channels must have as many rows as the bins.");
    reset();
    search_.use(channels);
    retain(nb::borrow(handle));
  }
  void set_monotone_constraints(const std::optional<Array2<const int8_t>>& directions) {
    search_.set_monotone_constraints(parse_monotone_constraints(bins(), directions));
  }
  DeviceSearch& search() override { return search_; }

 private:
  const Device* device_;
  DeviceSearch search_;
};

void quantise_there(DeviceQuantisedGradients& channels, const DeviceMatrix& g,
                    const DeviceMatrix* h, const std::string& kind,
                    const Optional1<const uint32_t>& rows,
                    const Optional1<const float>& multiplier) {
  const HessianKind hessian = parse_hessian_kind(kind);
  check_hessian(hessian, g.n_columns, h != nullptr ? h->n_columns : -1);
  if (h != nullptr) require_rows(*h, g.n_rows, "h");
  const RowSample sample = make_row_sample(g.n_rows, rows, multiplier);
  nb::gil_scoped_release release;
  channels.quantise(g, h, hessian, sample);
}

auto read_channels(const DeviceQuantisedGradients& channels) {
  const std::vector<int16_t> found = channels.read();
  NewArray<int16_t> out(
      {static_cast<size_t>(channels.sample().n_all), static_cast<size_t>(channels.layout().lanes)});
  std::copy(found.begin(), found.end(), out.data);
  return out.array;
}

// Check the row sample of the grower's last tree.
RowSample checked_rows(const DeviceMatrix* h, GrowerHandle& grower, int32_t n_leaves,
                       const Optional1<const uint32_t>& rows,
                       const Optional1<const float>& multiplier) {
  const int64_t n_rows = grower.grower.bins().n_rows();
  if (h != nullptr) require_rows(*h, n_rows, "h");
  require(n_leaves == static_cast<int32_t>(grower.grower.node_of_leaf().size()),
          "n_leaves must be that of the grower's last tree.");
  return make_row_sample(n_rows, rows, multiplier);
}
RowSample checked_rows(const DeviceMatrix& g, const DeviceMatrix* h, GrowerHandle& grower,
                       int32_t n_leaves, const Optional1<const uint32_t>& rows,
                       const Optional1<const float>& multiplier) {
  require_rows(g, grower.grower.bins().n_rows(), "g");
  require(h == nullptr || h->n_columns == 1 || h->n_columns == g.n_columns ||
              h->n_columns == packed_size(g.n_columns),
          "h must have one column, one per output, or K (K + 1) / 2.");
  return checked_rows(h, grower, n_leaves, rows, multiplier);
}

auto newton(DeviceLeaves& self, const DeviceMatrix& g, const DeviceMatrix* h, GrowerHandle& grower,
            int32_t n_leaves, const LeafConfig& step, const Optional1<const uint32_t>& rows,
            const Optional1<const float>& multiplier) {
  const DeviceRowPartitioner& device_rows = grower.grower.rows().device_rows();
  const RowSample sample = checked_rows(g, h, grower, n_leaves, rows, multiplier);
  NewArray<float> out({static_cast<size_t>(n_leaves), static_cast<size_t>(g.n_columns)});
  {
    nb::gil_scoped_release release;
    self.newton(g, h, sample, device_rows, n_leaves, step, out.data);
  }
  return out.array;
}

auto hessian(DeviceLeaves& self, const DeviceMatrix* h, GrowerHandle& grower, int32_t n_leaves,
             const Optional1<const uint32_t>& rows, const Optional1<const float>& multiplier) {
  const DeviceRowPartitioner& device_rows = grower.grower.rows().device_rows();
  const RowSample sample = checked_rows(h, grower, n_leaves, rows, multiplier);
  NewArray<double> out(
      {static_cast<size_t>(n_leaves), static_cast<size_t>(h != nullptr ? h->n_columns : 1)});
  nb::gil_scoped_release release;
  const std::vector<double> found = self.sum_hessians(h, sample, device_rows, n_leaves);
  std::copy(found.begin(), found.end(), out.data);
  return out.array;
}

std::shared_ptr<LeafBlock> topk(DeviceLeaves& self, const DeviceMatrix& g, const DeviceMatrix* h,
                                GrowerHandle& grower, int32_t n_leaves, int32_t leaf_k,
                                const Tree* shared, const LeafConfig& step,
                                const Optional1<const uint32_t>& rows,
                                const Optional1<const float>& multiplier) {
  const DeviceRowPartitioner& device_rows = grower.grower.rows().device_rows();
  const RowSample sample = checked_rows(g, h, grower, n_leaves, rows, multiplier);
  require(h == nullptr || h->n_columns <= g.n_columns,
          "h must have one column, or one per output.");
  require(leaf_k >= 1, "leaf_k must be at least 1.");
  require(shared == nullptr || shared->n_leaves == n_leaves, "The tree must have n_leaves leaves.");
  nb::gil_scoped_release release;
  return make_topk_block(self.topk(g, h, sample, device_rows, n_leaves, step, leaf_k, shared),
                         g.n_columns);
}

void add_leaves(DeviceLeaves& self, const DeviceMatrix& raw, GrowerHandle& grower,
                const AnyLeaves& leaves, int32_t output) {
  const DeviceRowPartitioner& rows = grower.grower.rows().device_rows();
  require_rows(raw, grower.grower.bins().n_rows(), "raw");
  const size_t n_leaves = grower.grower.node_of_leaf().size();
  const auto* block = std::get_if<std::shared_ptr<LeafBlock>>(&leaves);
  require((block != nullptr ? static_cast<size_t>((*block)->n_leaves())
                            : std::get<Array2<const float>>(leaves).shape(0)) == n_leaves,
          "The number of leaves must be that of the grower's last tree.");
  const LeafView view = get_leaf_view(leaves);
  check_outputs(view, static_cast<int32_t>(n_leaves),
                output == -1 ? OutputList{} : OutputList{output}, raw.n_columns);
  nb::gil_scoped_release release;
  self.add(raw, rows, view, static_cast<int32_t>(n_leaves), output);
}

LossInput make_loss_input(int64_t n_rows, int64_t n_outputs, const Optional2<const float>& weight,
                          const Array1<const float>& offset) {
  LossInput input;
  input.n_rows = n_rows;
  input.n_outputs = n_outputs;
  require(static_cast<int64_t>(offset.size()) == n_outputs,
          "offset must have one value for each output.");
  input.offset = offset.data();
  if (weight) {
    require(static_cast<int64_t>(weight->shape(0)) == n_rows,
            "weight must have one row for each row of the data.");
    input.weight = weight->data();
    input.weight_columns = static_cast<int64_t>(weight->shape(1));
    require(input.weight_columns == 1 || input.weight_columns == n_outputs,
            "weight must have one column, or one for each output.");
  }
  return input;
}

void bind_matrices(nb::module_& m) {
  nb::class_<DeviceMatrix>(m, "DeviceMatrix", "Float32 matrix on a GPU.")
      .def(
          "__init__",
          [](DeviceMatrix* self, const SharedDevice& device, int64_t n_rows, int64_t n_columns) {
            require(n_rows >= 1 && n_columns >= 1,
                    "A matrix must have at least one row and one column.");
            new (self) DeviceMatrix(device, n_rows, n_columns);
            self->values.clear(self->size());
          },
          nb::arg("device"), nb::arg("n_rows"), nb::arg("n_columns"), "Create a matrix of zeros.")
      .def_prop_ro("shape",
                   [](const DeviceMatrix& a) { return nb::make_tuple(a.n_rows, a.n_columns); })
      .def(
          "write",
          [](DeviceMatrix& self, const Array2<const float>& from) {
            require(static_cast<int64_t>(from.shape(0)) == self.n_rows &&
                        static_cast<int64_t>(from.shape(1)) == self.n_columns,
                    "The array must be shaped like the matrix.");
            nb::gil_scoped_release release;
            self.values.write(from.data(), self.size());
          },
          nb::arg("values"))
      .def(
          "copy",
          [](DeviceMatrix& self, const DeviceMatrix& from) {
            require(from.device == self.device && from.n_rows == self.n_rows &&
                        from.n_columns == self.n_columns,
                    "The other matrix must be shaped like this one and on the same GPU.");
            nb::gil_scoped_release release;
            self.values.copy(from.values, self.size());
          },
          nb::arg("other"), "Copy the values of another matrix into this one.")
      .def(
          "read",
          [](const DeviceMatrix& self) {
            NewArray<float> out(
                {static_cast<size_t>(self.n_rows), static_cast<size_t>(self.n_columns)});
            {
              nb::gil_scoped_release release;
              self.values.read(out.data, self.size());
            }
            return out.array;
          },
          "Return a NumPy copy, float32 (n_rows, n_columns).")
      .def(
          "column",
          [](const DeviceMatrix& self, int64_t column) {
            require(column >= 0 && column < self.n_columns, "The column is out of range.");
            DeviceMatrix out(self.device, self.n_rows, 1);
            nb::gil_scoped_release release;
            self.device->launch(self.device->grid_for(self.n_rows),
                                on_device::TakeColumn{self.data(), self.n_rows,
                                                      static_cast<int32_t>(self.n_columns),
                                                      static_cast<int32_t>(column), out.data()});
            return out;
          },
          nb::arg("column"), "Return a copy of one column as a matrix.")
      .def("sketch_signs", &sketch_signs_on_device, nb::arg("dim"), nb::arg("seed"),
           nb::arg("scale"),
           "Return scale * values @ R, where R is the matrix of random signs of `sketch_signs`.")
      .def("row_means", &compute_row_means_on_device, "Return the mean of each row, (n_rows, 1).");
}

}  // namespace

void bind_device(nb::module_& m) {
  m.attr("DEVICE_PROGRAM") = kDeviceProgram;
  m.def(
      "device_sources",
      [] {
        std::map<std::string, std::string> found;
        for (int i = 0; i < kDeviceSourceCount; ++i)
          found[kDeviceSources[i].name] = kDeviceSources[i].text;
        return found;
      },
      "Return the source files of the GPU kernels: file name -> text.");
  nb::exception<DeviceError>(m, "DeviceError", PyExc_RuntimeError);
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const OutOfDeviceMemory& e) {
      PyErr_SetString(PyExc_MemoryError, e.what());
    }
  });
  nb::class_<Device>(m, "Device", "CUDA GPU.")
      .def(nb::init<const std::string&, int>(), nb::arg("driver"), nb::arg("ordinal"),
           "Open the GPU with index `ordinal`; `driver` is the path of the CUDA driver library.\n\n"
           "Raises DeviceError if there is no such GPU.")
      .def_prop_ro("name", &Device::name)
      .def_prop_ro("architecture", &Device::architecture,
                   "Architecture to compile kernels for, e.g. sm_90.")
      .def_prop_ro("driver_version", &Device::driver_version,
                   "CUDA driver version: 1000 * major + 10 * minor.")
      .def_prop_ro("free_memory", &Device::free_memory, "Bytes.")
      .def_prop_ro("is_loaded", &Device::is_loaded)
      .def_prop_ro("stream", &Device::stream,
                   "CUDA stream handle, for synchronisation with other libraries.")
      .def("wait_for", &Device::wait_for, nb::arg("stream"), "Wait until a stream has finished.")
      .def(
          "load", [](Device& self, const nb::bytes& image) { self.load(image.c_str()); },
          nb::arg("image"), "Load the kernels from an image compiled for the architecture.");
  bind_device_arrays(m);
  bind_matrices(m);
  nb::class_<DeviceBins>(m, "DeviceBins", "Bins on a GPU.")
      .def(
          "__init__",
          [](DeviceBins* self, const SharedDevice& device, const Bins& bins) {
            require_kernels(*device);
            nb::gil_scoped_release release;
            new (self) DeviceBins(device, bins);
          },
          nb::arg("device"), nb::arg("bins"), nb::keep_alive<1, 3>())
      .def_static(
          "from_array",
          [](const DeviceArrayHandle& numbers, const BinTable& table,
             const Array1<const uint16_t>& n_bins, const Array1<const bool>& is_categorical) {
            require_kernels(*numbers.array.device());
            const DeviceView& view = numbers.array.view();
            require(view.n_columns == table.n_features() &&
                        static_cast<int64_t>(n_bins.size()) == view.n_columns &&
                        static_cast<int64_t>(is_categorical.size()) == view.n_columns,
                    "numbers, bin_table, n_bins and is_categorical must have the same number of "
                    "features.");
            nb::gil_scoped_release release;
            auto layout = std::make_unique<const Bins>(
                nullptr, view.n_rows, static_cast<int>(view.n_columns), n_bins.data(),
                reinterpret_cast<const uint8_t*>(is_categorical.data()));
            return std::make_unique<DeviceBins>(numbers.array, table, std::move(layout));
          },
          nb::arg("numbers"), nb::arg("bin_table"), nb::arg("n_bins"), nb::arg("is_categorical"),
          "Compute the bins of a GPU array on its GPU.")
      .def_prop_ro("n_rows", [](const DeviceBins& self) { return self.host().n_rows(); })
      .def_prop_ro("n_features", [](const DeviceBins& self) { return self.host().n_features(); })
      .def(
          "codes",
          [](const DeviceBins& self) {
            NewArray<uint8_t> out({static_cast<size_t>(self.host().n_features()),
                                   static_cast<size_t>(self.host().n_rows())});
            {
              nb::gil_scoped_release release;
              self.unpack(out.data);
            }
            return out.array;
          },
          "Return a NumPy copy of the codes, uint8 (n_features, n_rows); 255: missing.");
  m.def(
      "encode_device_array",
      [](const BinTable& table, const DeviceArrayHandle& array) {
        require(array.array.view().n_columns == table.n_features(),
                "Rows must have one column for each feature.");
        require_kernels(*array.array.device());
        NewArray<uint8_t> out({static_cast<size_t>(table.n_features()),
                               static_cast<size_t>(array.array.view().n_rows)});
        {
          nb::gil_scoped_release release;
          encode_device_array(table, array.array, out.data);
        }
        return out.array;
      },
      nb::arg("bin_table"), nb::arg("numbers"),
      "Compute the codes of a GPU array on its GPU and return a NumPy copy, uint8\n"
      "(n_features, n_rows).");
}

void bind_device_parts(nb::module_& m) {
  nb::class_<DeviceQuantisedGradients>(m, "DeviceQuantisedGradients",
                                       "Quantised gradients and Hessians on a GPU.")
      .def(
          "__init__",
          [](DeviceQuantisedGradients* self, const SharedDevice& device) {
            new (self) DeviceQuantisedGradients(device);
          },
          nb::arg("device"))
      .def("quantise", &quantise_there, nb::arg("g"), nb::arg("h").none(), nb::arg("kind"),
           nb::arg("rows").none(), nb::arg("multiplier").none(),
           "Quantise gradients and Hessians like QuantisedGradients.quantise.")
      .def("read", &read_channels,
           "Return the quantised values, int16 (n_rows, lanes), for tests.");
  nb::class_<DeviceSearchHandle, SearchHandle>(
      m, "DeviceSearch", "Search for the best splits from histograms on a GPU.")
      .def(nb::init<const DeviceBins&, const Context&>(), nb::arg("bins"), nb::arg("n_threads"),
           nb::keep_alive<1, 2>())
      .def("use", &DeviceSearchHandle::use, nb::arg("channels"),
           "Set the quantised gradients of the next tree or layer.")
      .def("set_monotone_constraints", &DeviceSearchHandle::set_monotone_constraints,
           nb::arg("directions").none(), kMonotoneConstraintsDoc);
  nb::class_<DeviceLeaves>(m, "DeviceLeaves", "Computation of leaf values on a GPU.")
      .def(
          "__init__",
          [](DeviceLeaves* self, const SharedDevice& device) { new (self) DeviceLeaves(device); },
          nb::arg("device"))
      .def("newton", &newton, nb::arg("g"), nb::arg("h").none(), nb::arg("grower"),
           nb::arg("n_leaves"), nb::arg("step"), nb::arg("rows").none(),
           nb::arg("multiplier").none(),
           "Return leaf values of the grower's last tree like fit_newton_leaves.")
      .def("sum_hessians", &hessian, nb::arg("h").none(), nb::arg("grower"), nb::arg("n_leaves"),
           nb::arg("rows").none(), nb::arg("multiplier").none(),
           "Return Hessian sums for the leaves of the grower's last tree like sum_leaf_hessians.")
      .def("topk", &topk, nb::arg("g"), nb::arg("h").none(), nb::arg("grower"), nb::arg("n_leaves"),
           nb::arg("leaf_k"), nb::arg("shared").none(), nb::arg("step"), nb::arg("rows").none(),
           nb::arg("multiplier").none(),
           "Return leaves of the grower's last tree like fit_topk_leaves.")
      .def("add", &add_leaves, nb::arg("raw"), nb::arg("grower"), nb::arg("leaves"),
           nb::arg("output"),
           "Add leaf values of the grower's last tree to `raw` like add_leaf_values.");
  nb::class_<DeviceLoss>(m, "DeviceLoss", "Gradients and Hessians of a loss on a GPU.")
      .def(
          "__init__",
          [](DeviceLoss* self, const SharedDevice& device, const Loss& loss,
             const Array2<const float>& target, const Optional2<const float>& weight,
             const Array1<const float>& offset, const Array1<const float>& parameter) {
            LossInput input =
                make_loss_input(static_cast<int64_t>(target.shape(0)),
                                static_cast<int64_t>(target.shape(1)), weight, offset);
            require(parameter.size() == target.shape(1),
                    "parameter must have one value for each output.");
            input.target = target.data();
            input.parameter = parameter.data();
            new (self) DeviceLoss(device, &loss, nullptr, input);
          },
          nb::arg("device"), nb::arg("loss"), nb::arg("target").noconvert(),
          nb::arg("weight").noconvert().none(), nb::arg("offset").noconvert(),
          nb::arg("parameter").noconvert())
      .def(
          "__init__",
          [](DeviceLoss* self, const SharedDevice& device, const ClassLoss& loss,
             const Array1<const int32_t>& label, const Optional2<const float>& weight,
             const Array1<const float>& offset) {
            LossInput input = make_loss_input(static_cast<int64_t>(label.size()),
                                              static_cast<int64_t>(offset.size()), weight, offset);
            require(!weight || weight->shape(1) == 1,
                    "A class loss must have one weight for each row.");
            input.label = label.data();
            for (int64_t i = 0; i < input.n_rows; ++i)
              require(input.label[i] >= 0 && input.label[i] < input.n_outputs,
                      "A class id is outside 0 .. number of classes - 1.");
            new (self) DeviceLoss(device, nullptr, &loss, input);
          },
          nb::arg("device"), nb::arg("loss"), nb::arg("label").noconvert(),
          nb::arg("weight").noconvert().none(), nb::arg("offset").noconvert())
      .def_static("supports", &DeviceLoss::supports, nb::arg("loss"),
                  "Return whether a class loss is supported on GPUs; all element-wise losses are.")
      .def(
          "derivatives",
          [](DeviceLoss& self, const DeviceMatrix& raw, const DeviceMatrix& g,
             const DeviceMatrix* h) {
            self.check(raw, g, h);
            nb::gil_scoped_release release;
            self.derivatives(raw, g, h);
          },
          nb::arg("raw"), nb::arg("g"), nb::arg("h").none(),
          "Compute the gradients g and the Hessians h.\n\n"
          "If the Hessian is 1 for every row, h contains the weights from the start and is not "
          "written.");
}

}  // namespace polyleaf
