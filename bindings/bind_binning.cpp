// Bindings of binning: conversion of NumPy arrays to Columns, with checks for memory safety.

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <vector>

#include "arrays.h"
#include "context_caster.h"
#include "conversions.h"
#include "data/binning.h"

namespace polyleaf {
namespace {

using AnyArray = nb::ndarray<nb::ro, nb::device::cpu>;

// Columns, with the arrays that they point to.
struct Table {
  Columns columns;
  std::vector<AnyArray> owners;
  std::vector<uint8_t> seen;
  const bool* selected = nullptr;  // features whose columns are read; nullptr: all

  Table(int64_t n_rows, int64_t n_features) : seen(static_cast<size_t>(n_features), 0) {
    require(n_rows >= 0 && n_rows <= INT32_MAX, "A table must have at most 2147483647 rows.");
    columns.n_rows = n_rows;
  }

  int32_t claim(int64_t feature) {
    require(feature >= 0 && feature < static_cast<int64_t>(seen.size()),
            "A feature index is out of range.");
    require(!seen[feature], "Each feature must be in one block only.");
    seen[feature] = 1;
    return static_cast<int32_t>(feature);
  }
  bool is_selected(int32_t feature) const { return selected == nullptr || selected[feature]; }

  // Add a block (values (n_rows, k), features (k,)).
  void add_dense(nb::handle block) {
    const auto values = nb::cast<AnyArray>(block[0]);
    const auto features =
        nb::cast<nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>>(block[1]);
    require(values.ndim() == 2 && static_cast<int64_t>(values.shape(0)) == columns.n_rows &&
                values.shape(1) == features.shape(0),
            "A dense block must have shape (n_rows, number of its features).");
    const ValueType type = to_value_type(values.dtype());
    const auto size = static_cast<ptrdiff_t>(values.itemsize());
    for (size_t c = 0; c < features.shape(0); ++c) {
      const int32_t feature = claim(features.data()[c]);
      if (!is_selected(feature)) continue;
      columns.dense.push_back({feature, type,
                               static_cast<const char*>(values.data()) +
                                   static_cast<ptrdiff_t>(c) * values.stride(1) * size,
                               static_cast<ptrdiff_t>(values.stride(0)) * size});
    }
    owners.push_back(values);
  }

  // Add compressed columns without duplicates: (data (nnz,), indices int32 (nnz,), indptr int64 (k
  // + 1,), features (k,)).
  void add_stored(nb::handle block) {
    const auto values = nb::cast<AnyArray>(block[0]);
    const auto rows =
        nb::cast<nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>>(block[1]);
    const auto indptr =
        nb::cast<nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>>(block[2]);
    const auto features =
        nb::cast<nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>>(block[3]);
    const ValueType type = to_value_type(values.dtype());
    require(type == ValueType::f32 || type == ValueType::f64,
            "Sparse values must be float32 or float64.");
    require(values.ndim() == 1 && (values.shape(0) < 2 || values.stride(0) == 1),
            "Sparse values must be contiguous.");
    require(indptr.shape(0) == features.shape(0) + 1,
            "indptr must have one entry per column plus one.");
    const auto n_stored = static_cast<int64_t>(std::min(values.shape(0), rows.shape(0)));
    for (size_t c = 0; c < features.shape(0); ++c) {
      const int64_t begin = indptr.data()[c], end = indptr.data()[c + 1];
      require(0 <= begin && begin <= end && end <= n_stored,
              "indptr of a sparse matrix must ascend from 0 to nnz.");
      const int32_t feature = claim(features.data()[c]);
      if (!is_selected(feature)) continue;
      columns.stored.push_back({feature, type,
                                static_cast<const char*>(values.data()) +
                                    begin * static_cast<int64_t>(values.itemsize()),
                                rows.data() + begin, end - begin});
    }
    owners.push_back(values);
    owners.emplace_back(rows);
    owners.emplace_back(indptr);
  }

  // Add a column (index int32 (n_rows,), code_of uint8 (n_categories,), feature).
  void add_category(nb::handle block) {
    const auto index =
        nb::cast<nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>>(block[0]);
    const auto code_of =
        nb::cast<nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>>(block[1]);
    require(static_cast<int64_t>(index.shape(0)) == columns.n_rows,
            "A categorical column must have n_rows entries.");
    const int32_t feature = claim(nb::cast<int64_t>(block[2]));
    if (!is_selected(feature)) return;
    columns.categories.push_back(
        {feature, index.data(), code_of.data(), static_cast<int64_t>(code_of.shape(0))});
    owners.emplace_back(index);
    owners.emplace_back(code_of);
  }
};

nb::tuple bind_find_thresholds(nb::list dense, nb::list sparse, int64_t n_rows, int64_t n_features,
                               Optional1<const int64_t> rows, Optional1<const int64_t> weights,
                               int max_bins, const Context& context) {
  require(max_bins >= 2 && max_bins <= kMaxBins, "max_bins must be between 2 and 255.");
  Table table(n_rows, n_features);
  for (nb::handle block : dense) table.add_dense(block);
  for (nb::handle block : sparse) table.add_stored(block);
  Sample sample{n_rows, nullptr, nullptr};
  if (rows.has_value()) {
    sample.n = static_cast<int64_t>(rows->shape(0));
    sample.rows = rows->data();
    for (int64_t i = 0; i < sample.n; ++i)
      require(sample.rows[i] >= 0 && sample.rows[i] < n_rows, "A sampled row is out of range.");
  }
  if (weights.has_value()) {
    require(static_cast<int64_t>(weights->shape(0)) == sample.n,
            "weights must have one entry per sampled row.");
    sample.weights = weights->data();
  }
  std::vector<Thresholds> found;
  {
    nb::gil_scoped_release release;
    found =
        find_thresholds(table.columns, sample, static_cast<int32_t>(n_features), max_bins, context);
  }
  nb::list thresholds;
  const auto n = static_cast<size_t>(n_features);
  NewArray<bool> is_float64({n});
  NewArray<double> ranges({2, n});
  for (size_t f = 0; f < found.size(); ++f) {
    NewArray<double> values({found[f].values.size()});
    std::copy(found[f].values.begin(), found[f].values.end(), values.data);
    thresholds.append(values.array);
    is_float64.data[f] = found[f].is_float64;
    ranges.data[f] = found[f].least;
    ranges.data[n + f] = found[f].largest;
  }
  return nb::make_tuple(thresholds, is_float64.array, ranges.array);
}

nb::ndarray<nb::numpy, int64_t> bind_count_codes(Array2<const uint8_t> codes,
                                                 Array1<const uint16_t> n_bins,
                                                 const Context& context) {
  require(n_bins.shape(0) == codes.shape(0), "n_bins must have one entry per feature.");
  const std::vector<int> sizes(n_bins.data(), n_bins.data() + n_bins.shape(0));
  size_t n_counts = sizes.size();
  for (const int size : sizes) {
    require(size <= kMaxBins, "n_bins must be at most 255.");
    n_counts += static_cast<size_t>(size);
  }
  NewArray<int64_t> counts({n_counts});
  {
    nb::gil_scoped_release release;
    count_codes(codes.data(), static_cast<int64_t>(codes.shape(1)), sizes, counts.data, context);
  }
  return counts.array;
}

BinTable make_bin_table(Array1<const double> values, Array1<const int64_t> offsets,
                        Array1<const bool> is_float64) {
  const size_t n_features = is_float64.shape(0);
  require(offsets.shape(0) == n_features + 1, "offsets must have one entry per feature plus one.");
  std::vector<Thresholds> thresholds(n_features);
  for (size_t f = 0; f < n_features; ++f) {
    const int64_t begin = offsets.data()[f], end = offsets.data()[f + 1];
    require(0 <= begin && begin <= end && end <= static_cast<int64_t>(values.shape(0)) &&
                end - begin < kMaxBins,
            "offsets must ascend, with at most 254 thresholds per feature.");
    thresholds[f].values.assign(values.data() + begin, values.data() + end);
    thresholds[f].is_float64 = is_float64.data()[f];
  }
  return BinTable(thresholds);
}

// Write codes. selected: features to write, or all. compact: `codes` has rows only for the
// selected features, in order.
void transform(const BinTable& bins, nb::list dense, nb::list sparse, nb::list categories,
               Array2<uint8_t> codes, const Context& context, Optional1<const bool> selected,
               bool compact) {
  const auto n_features = static_cast<size_t>(bins.n_features());
  require(!selected.has_value() || selected->shape(0) == n_features,
          "selected must have one flag per feature.");
  Table table(static_cast<int64_t>(codes.shape(1)), bins.n_features());
  std::vector<int32_t> code_rows(n_features);
  int32_t n_codes = 0;
  for (size_t f = 0; f < n_features; ++f) {
    code_rows[f] = compact ? n_codes : static_cast<int32_t>(f);
    n_codes += !selected.has_value() || selected->data()[f];
  }
  require(codes.shape(0) == (compact ? static_cast<size_t>(n_codes) : n_features),
          "codes must have shape (n_features, n_rows).");
  if (selected.has_value()) table.selected = selected->data();
  for (nb::handle block : dense) table.add_dense(block);
  for (nb::handle block : sparse) table.add_stored(block);
  for (nb::handle block : categories) table.add_category(block);
  nb::gil_scoped_release release;
  bins.transform(table.columns, codes.data(), context, code_rows.data());
}

nb::tuple transform_stored(const BinTable& bins, nb::tuple block, int64_t n_rows,
                           const Context& context) {
  Table table(n_rows, bins.n_features());
  table.add_stored(block);
  size_t n_stored = 0;
  for (const StoredColumn& column : table.columns.stored) n_stored += static_cast<size_t>(column.n);
  NewArray<uint8_t> codes({n_stored}), zero_codes({table.columns.stored.size()});
  {
    nb::gil_scoped_release release;
    bins.transform_stored(table.columns.stored, codes.data, zero_codes.data, context);
  }
  return nb::make_tuple(codes.array, zero_codes.array);
}

template <class T>
bool bind_has_infinite(nb::ndarray<const T, nb::ndim<2>, nb::device::cpu> values,
                       const Context& context) {
  nb::gil_scoped_release release;
  return has_infinite(
      values.data(), static_cast<int64_t>(values.shape(0)), static_cast<int64_t>(values.shape(1)),
      static_cast<ptrdiff_t>(values.stride(0)), static_cast<ptrdiff_t>(values.stride(1)), context);
}

}  // namespace

void bind_binning(nb::module_& m) {
  m.def("find_thresholds", &bind_find_thresholds, nb::arg("dense"), nb::arg("sparse"),
        nb::arg("n_rows"), nb::arg("n_features"), nb::arg("rows").none(), nb::arg("weights").none(),
        nb::arg("max_bins"), nb::arg("n_threads"),
        "Return the thresholds of numeric columns (a list of float64 arrays); is_float64, bool\n"
        "(n_features,): whether thresholds need float64; and the least and largest values of the\n"
        "rows, float64 (2, n_features), NaN if a feature has none.");
  m.def("count_codes", &bind_count_codes, nb::arg("codes").noconvert(), nb::arg("n_bins"),
        nb::arg("n_threads"),
        "Return the rows of each code of codes (n_features, n_rows), n_bins codes of a feature\n"
        "and then the missing ones, one feature after another: int64 (sum of n_bins + 1,).");
  m.def("has_infinite", &bind_has_infinite<float>, nb::arg("values").noconvert(),
        nb::arg("n_threads"));
  m.def("has_infinite", &bind_has_infinite<double>, nb::arg("values").noconvert(),
        nb::arg("n_threads"), "Return whether a float32 or float64 matrix holds an infinity.");
  nb::class_<BinTable>(m, "BinTable",
                       "Thresholds of all features in a layout for vectorised search.")
      .def(nb::new_(&make_bin_table), nb::arg("values"), nb::arg("offsets"), nb::arg("is_float64"))
      .def("transform", &transform, nb::arg("dense"), nb::arg("sparse"), nb::arg("categories"),
           nb::arg("codes").noconvert(), nb::arg("n_threads"),
           nb::arg("selected").none() = nb::none(), nb::arg("compact") = false,
           "Write the codes of features into `codes`, uint8 (n_features, n_rows).\n\n"
           "`selected`: bool (n_features,), the features to write; None: all features.\n"
           "`compact`: if true, `codes` has one row per selected feature.")
      .def("transform_stored", &transform_stored, nb::arg("block"), nb::arg("n_rows"),
           nb::arg("n_threads"),
           "Return the uint8 codes of the stored values of a sparse block (nnz,), and the code\n"
           "of 0 in each column.");
}

}  // namespace polyleaf
