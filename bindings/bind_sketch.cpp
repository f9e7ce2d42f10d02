// Bindings of sketches.
#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "arrays.h"
#include "base/parallel.h"
#include "context_caster.h"
#include "sketch/sketch.h"

namespace polyleaf {

namespace {

MatrixView<const float> view_values(const Array2<const float>& values) {
  require(values.shape(1) >= 1 && values.shape(1) <= size_t{INT32_MAX},
          "Values must have between 1 and 2147483647 columns.");
  return matrix_view(values);
}

void require_dim(int32_t d) {
  require(d >= 1 && d <= 4096, "A sketch must have between 1 and 4096 columns.");
}

template <class F>
nb::ndarray<nb::numpy, float> make_sketch(int64_t n, int32_t d, F&& fill) {
  require_dim(d);
  NewArray<float> out({static_cast<size_t>(n), static_cast<size_t>(d)});
  {
    nb::gil_scoped_release release;
    fill(MatrixView<float>(out.data, n, d));
  }
  return out.array;
}

auto sketch_project(Array2<const float> values, Array2<const float> matrix, float scale,
                    const Context& context) {
  const MatrixView<const float> view = view_values(values);
  require(matrix.shape(0) == values.shape(1),
          "The matrix must have one row for each column of values.");
  const auto d = static_cast<int32_t>(matrix.shape(1));
  return make_sketch(view.n_rows, d, [&](MatrixView<float> out) {
    project(view, matrix_view(matrix), scale, out, context);
  });
}

auto sketch_signs(Array2<const float> values, int32_t d, uint64_t seed, float scale,
                  const Context& context) {
  const MatrixView<const float> view = view_values(values);
  return make_sketch(view.n_rows, d, [&](MatrixView<float> out) {
    project_signs(view, seed, scale, out, context);
  });
}

auto sketch_subspace(Array2<const float> values, int32_t d, uint64_t seed, int n_iterations,
                     float scale, const Context& context) {
  const MatrixView<const float> view = view_values(values);
  return make_sketch(view.n_rows, d, [&](MatrixView<float> out) {
    project_subspace(view, seed, n_iterations, scale, out, context);
  });
}

auto sketch_count(Array2<const float> values, int32_t d, uint64_t seed, float scale,
                  const Context& context) {
  const MatrixView<const float> view = view_values(values);
  return make_sketch(view.n_rows, d,
                     [&](MatrixView<float> out) { count_sketch(view, seed, scale, out, context); });
}

auto sketch_take(Array2<const float> values, Array1<const int32_t> columns,
                 Array1<const float> scale, const Context& context) {
  const MatrixView<const float> view = view_values(values);
  require(columns.shape(0) == scale.shape(0), "Every column taken needs a scale.");
  for (size_t j = 0; j < columns.shape(0); ++j)
    require(columns.data()[j] >= 0 && columns.data()[j] < view.n_columns,
            "A column is out of range.");
  const auto d = static_cast<int32_t>(columns.shape(0));
  return make_sketch(view.n_rows, d, [&](MatrixView<float> out) {
    take_columns(view, span(columns), span(scale), out, context);
  });
}

auto compute_column_energy(Array2<const float> values, const Context& context) {
  const MatrixView<const float> view = view_values(values);
  NewArray<double> out({values.shape(1)});
  {
    nb::gil_scoped_release release;
    column_energy(view, {out.data, values.shape(1)}, context);
  }
  return out.array;
}

auto compute_row_means(Array2<const float> values, const Context& context) {
  const MatrixView<const float> view = view_values(values);
  return make_sketch(view.n_rows, 1, [&](MatrixView<float> out) {
    row_means(view, {out.data, values.shape(0)}, context);
  });
}

auto compute_squared_norms(Array2<const float> values, const Context& context) {
  const MatrixView<const float> view = view_values(values);
  NewArray<float> out({values.shape(0)});
  {
    nb::gil_scoped_release release;
    squared_norms(view, {out.data, values.shape(0)}, context);
  }
  return out.array;
}

}  // namespace

void bind_sketch(nb::module_& m) {
  m.def("sketch_project", &sketch_project, nb::arg("values").noconvert(),
        nb::arg("matrix").noconvert(), nb::arg("scale"), nb::arg("n_threads"),
        "Return scale * values @ matrix, with a fixed order of additions.");
  m.def("sketch_signs", &sketch_signs, nb::arg("values").noconvert(), nb::arg("dim"),
        nb::arg("seed"), nb::arg("scale"), nb::arg("n_threads"),
        "Return scale * values @ R, where R is a matrix of random signs.");
  m.def("sketch_subspace", &sketch_subspace, nb::arg("values").noconvert(), nb::arg("dim"),
        nb::arg("seed"), nb::arg("n_iterations"), nb::arg("scale"), nb::arg("n_threads"),
        "Return scale * values @ V, where V is a basis near the leading right singular vectors.");
  m.def("sketch_count", &sketch_count, nb::arg("values").noconvert(), nb::arg("dim"),
        nb::arg("seed"), nb::arg("scale"), nb::arg("n_threads"),
        "Return the count sketch of dense rows.");
  m.def("sketch_take", &sketch_take, nb::arg("values").noconvert(), nb::arg("columns").noconvert(),
        nb::arg("scale").noconvert(), nb::arg("n_threads"),
        "Return the selected columns, each times its scale.");
  m.def("column_energy", &compute_column_energy, nb::arg("values").noconvert(),
        nb::arg("n_threads"), "Return the sum of squares of each column, float64 (K,).");
  m.def("row_means", &compute_row_means, nb::arg("values").noconvert(), nb::arg("n_threads"),
        "Return the mean of each row, float32 (n, 1).");
  m.def("squared_norms", &compute_squared_norms, nb::arg("values").noconvert(),
        nb::arg("n_threads"), "Return the sum of squares of each row, float32 (n,).");
}

// Bindings of the sparse matrix product.

namespace {

void require_columns_below(const Array1<const int32_t>& indices, size_t n_columns,
                           const Context& context) {
  const auto n = static_cast<int64_t>(indices.shape(0));
  const int64_t block = 1 << 16;
  std::atomic<bool> bad{false};
  parallel_for(context, Block::count(n, block), [&](int64_t task, int) {
    const Block part(n, block, task);
    uint32_t largest = 0;  // a negative index is a large unsigned one
    for (int64_t i = part.begin; i < part.end; ++i)
      largest = std::max(largest, static_cast<uint32_t>(indices.data()[i]));
    if (largest >= n_columns) bad = true;
  });
  require(!bad, "A column of a sparse matrix is out of range.");
}

auto product(Array1<const int64_t> indptr, Array1<const int32_t> indices,
             Array1<const float> values, Array2<const float> matrix, const Context& context) {
  require(indptr.shape(0) >= 1, "indptr must have one entry per row plus one.");
  require(indices.shape(0) == values.shape(0), "indices and data must have the same length.");
  require(matrix.shape(1) <= size_t{INT32_MAX}, "The matrix has too many columns.");
  const auto n = static_cast<int64_t>(indptr.shape(0)) - 1;
  const int64_t* at = indptr.data();
  require(at[0] == 0 && at[n] == static_cast<int64_t>(values.shape(0)),
          "indptr must go from 0 to the number of stored values.");
  for (int64_t i = 0; i < n; ++i) require(at[i] <= at[i + 1], "indptr must ascend.");
  require_columns_below(indices, matrix.shape(0), context);
  NewArray<float> out({static_cast<size_t>(n), matrix.shape(1)});
  {
    nb::gil_scoped_release release;
    csr_product({n, at, indices.data(), values.data()}, matrix_view(matrix),
                {out.data, n, static_cast<int64_t>(matrix.shape(1))}, context);
  }
  return out.array;
}

}  // namespace

void bind_csr_product(nb::module_& m) {
  m.def("csr_product", &product, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
        nb::arg("data").noconvert(), nb::arg("matrix").noconvert(), nb::arg("n_threads"),
        "Return the product of a CSR matrix (n, m) and a dense matrix (m, d), float32 (n, d).");
}

}  // namespace polyleaf
