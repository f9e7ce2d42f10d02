// Text files of sparse rows at the border: bytes -> CSR arrays, and back.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

#include "arrays.h"
#include "context_caster.h"
#include "data/xmc_text.h"

namespace polyleaf {
namespace {

RowSyntax syntax_of(const std::string& name) {
  if (name == "pairs") return RowSyntax::pairs;
  if (name == "labelled") return RowSyntax::labelled;
  if (name == "libsvm") return RowSyntax::libsvm;
  if (name == "arff") return RowSyntax::arff;
  throw std::invalid_argument("Unknown syntax '" + name + "'.");
}

template <class T>
nb::ndarray<nb::numpy, T> copied(const std::vector<T>& from) {
  NewArray<T> out({from.size()});
  std::copy(from.begin(), from.end(), out.data);
  return out.array;
}

nb::tuple read_rows(nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> text,
                    const std::string& syntax, int64_t n_features, int64_t n_labels,
                    int64_t first_line, const Context& context) {
  require(n_features >= 0 && n_features <= INT32_MAX && n_labels >= 0 && n_labels <= INT32_MAX,
          "Features and labels must be at most 2147483647.");
  TextRows rows;
  {
    nb::gil_scoped_release release;
    rows = read_xmc_text(reinterpret_cast<const char*>(text.data()),
                           static_cast<int64_t>(text.shape(0)), syntax_of(syntax),
                           {n_features, n_labels}, first_line, context);
  }
  return nb::make_tuple(copied(rows.label_indptr), copied(rows.labels), copied(rows.indptr),
                        copied(rows.indices), copied(rows.values));
}

void require_indptr(const Array1<const int64_t>& indptr, size_t n_rows, size_t n_stored) {
  require(indptr.shape(0) == n_rows + 1, "indptr must have one entry per row and one more.");
  for (size_t i = 0; i < n_rows; ++i)
    require(indptr.data()[i] <= indptr.data()[i + 1], "indptr must ascend.");
  require(indptr.data()[0] >= 0 && indptr.data()[n_rows] <= static_cast<int64_t>(n_stored),
          "indptr must stay within the stored values.");
}

nb::bytes write_rows(Optional1<const int64_t> label_indptr, Optional1<const int32_t> labels,
                     Array1<const int64_t> indptr, Array1<const int32_t> indices,
                     Array1<const float> values, int32_t index_base) {
  require(indptr.shape(0) >= 1, "indptr must have one entry per row and one more.");
  const size_t n_rows = indptr.shape(0) - 1;
  require(indices.shape(0) == values.shape(0), "indices and data must have the same length.");
  require_indptr(indptr, n_rows, indices.shape(0));
  require(label_indptr.has_value() == labels.has_value(), "Labels need their indptr.");
  if (labels) require_indptr(*label_indptr, n_rows, labels->shape(0));
  std::string text;
  {
    nb::gil_scoped_release release;
    text = write_xmc_text({static_cast<int64_t>(n_rows), labels ? label_indptr->data() : nullptr,
                             labels ? labels->data() : nullptr, indptr.data(), indices.data(),
                             values.data(), index_base});
  }
  return nb::bytes(text.data(), text.size());
}

}  // namespace

void bind_label_text(nb::module_& m) {
  m.def("read_xmc_text", &read_rows, nb::arg("text").noconvert(), nb::arg("syntax"),
        nb::arg("n_features"), nb::arg("n_labels"), nb::arg("first_line"), nb::arg("n_threads"),
        "Bytes of text -> (label_indptr, labels, indptr, indices, data) of its rows.");
  m.def("write_xmc_text", &write_rows, nb::arg("label_indptr").none(), nb::arg("labels").none(),
        nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("index_base"),
        "CSR rows -> bytes of text.");
}

}  // namespace polyleaf
