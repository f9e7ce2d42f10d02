// RowPredictor and DevicePredictor for Python: rows in; scores out.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "arrays.h"
#include "context_caster.h"
#include "conversions.h"
#include "device/predictor.h"
#include "forest/row_predictor.h"

namespace polyleaf {
namespace {

using Known = std::tuple<int32_t, Array1<const double>, Array1<const uint8_t>>;

template <class T>
std::vector<T> copied(const Array1<const T>& array) {
  return std::vector<T>(array.data(), array.data() + array.size());
}

RowPredictor* make_row_predictor(std::shared_ptr<Forest> forest, std::shared_ptr<BinTable> bins,
                                 const std::vector<Known>& categories,
                                 const Array1<const double>& base,
                                 const Optional1<const double>& scale,
                                 const Optional1<const double>& offset) {
  std::vector<CategoryValues> known;
  for (const auto& [feature, values, codes] : categories)
    known.push_back({feature, copied(values), copied(codes)});
  const std::vector<double> nothing;
  return new RowPredictor(std::move(forest), std::move(bins), std::move(known), copied(base),
                          scale ? copied(*scale) : nothing, offset ? copied(*offset) : nothing);
}

template <class Predictor>
nb::ndarray<nb::numpy, double> scores_of_rows(const Predictor& predictor,
                                              const nb::ndarray<nb::ro, nb::device::cpu>& rows,
                                              const Context& context) {
  const bool narrow = rows.dtype() == nb::dtype<float>();
  require(narrow || rows.dtype() == nb::dtype<double>(), "Rows must be float32 or float64.");
  require(rows.ndim() == 1 || rows.ndim() == 2,
          "Rows must be one row (n_features,) or (n_rows, n_features).");
  const size_t last = rows.ndim() - 1;
  if (rows.shape(last) != static_cast<size_t>(predictor.n_features()))
    throw std::invalid_argument("A row has " + std::to_string(rows.shape(last)) +
                                " features, but the model is expecting " +
                                std::to_string(predictor.n_features()) + ".");
  const ptrdiff_t size = narrow ? sizeof(float) : sizeof(double);
  const NumberRows numbers{static_cast<const char*>(rows.data()),
                           narrow ? ValueType::f32 : ValueType::f64,
                           last == 0 ? 1 : static_cast<int64_t>(rows.shape(0)),
                           predictor.n_features(),
                           last == 0 ? 0 : static_cast<ptrdiff_t>(rows.stride(0)) * size,
                           static_cast<ptrdiff_t>(rows.stride(last)) * size};
  NewArray<double> result(
      {static_cast<size_t>(numbers.n_rows), static_cast<size_t>(predictor.n_outputs())});
  {
    nb::gil_scoped_release release;
    predictor.scores(numbers, result.data, context);
  }
  return result.array;
}

}  // namespace

void bind_row_predictor(nb::module_& m) {
  nb::class_<RowPredictor>(m, "RowPredictor",
                           "A forest and its bins, for a few rows of numbers at a time.")
      .def(nb::new_(&make_row_predictor), nb::arg("forest"), nb::arg("bins"), nb::arg("categories"),
           nb::arg("base"), nb::arg("scale").none() = nb::none(),
           nb::arg("offset").none() = nb::none(),
           "categories: of each categorical feature its number, the values that it has, ascending, "
           "and\n"
           "their codes. The forest must not change from here on.")
      .def("scores", &scores_of_rows<RowPredictor>, nb::arg("rows").noconvert(),
           nb::arg("n_threads") = 1,
           "float64 (n_rows, n_outputs) of rows (n_rows, n_features), or of one row (n_features,); "
           "float32 "
           "or\n"
           "float64.");
  nb::class_<DevicePredictor>(m, "DevicePredictor", "The same with the trees on a device.")
      .def(
          "__init__",
          [](DevicePredictor* self, std::shared_ptr<Device> device,
             std::shared_ptr<RowPredictor> model) {
            nb::gil_scoped_release release;
            new (self) DevicePredictor(std::move(device), std::move(model));
          },
          nb::arg("device"), nb::arg("model"))
      .def("scores", &scores_of_rows<DevicePredictor>, nb::arg("rows").noconvert(),
           nb::arg("n_threads") = 1, "As RowPredictor.scores, the same bits.")
      .def(
          "scores_on_device",
          [](const DevicePredictor& self, const DeviceArrayHandle& rows) {
            const auto n_columns = rows.array.view().n_columns;
            require(n_columns == self.n_features(), "Rows must have a column for each feature.");
            require(rows.array.device() == self.device(),
                    "The rows lie on another device than the trees.");
            nb::gil_scoped_release release;
            return std::make_unique<DeviceArrayHandle>(
                DeviceArrayHandle{self.scores(rows.array), 2, {}, {}});
          },
          nb::arg("rows"),
          "The same of rows that lie on the device: float64 (n_rows, n_outputs), there.");
}

}  // namespace polyleaf
