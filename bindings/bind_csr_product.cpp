// Sparse rows times a dense matrix, at the border.
#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "arrays.h"
#include "base/parallel.h"
#include "context_caster.h"
#include "sketch/csr_product.h"

namespace polyleaf {
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
  require(indptr.shape(0) >= 1, "indptr must have one entry per row and one more.");
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
    csr_product({n, at, indices.data(), values.data()}, matrix.data(),
                static_cast<int32_t>(matrix.shape(1)), out.data, context);
  }
  return out.array;
}

}  // namespace

void bind_csr_product(nb::module_& m) {
  m.def("csr_product", &product, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
        nb::arg("data").noconvert(), nb::arg("matrix").noconvert(), nb::arg("n_threads"),
        "CSR rows (n, m) @ matrix (m, d): float32 (n, d).");
}

}  // namespace polyleaf
