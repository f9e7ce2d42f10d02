// Rows over very many outputs at the border: sparse raw scores and their gradients.
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "base/parallel.h"
#include "context_caster.h"
#include "forest/label_scores.h"
#include "labels.h"
#include "leaves/topk.h"
#include "quantised_gradients/sparse_target_sums.h"
#include "sample_of.h"
#include "sketch/sketch.h"

namespace polyleaf {
namespace {

// (indptr, outputs, values): copies.
nb::tuple csr(const LabelRows& rows) {
  const size_t n_entries = static_cast<size_t>(rows.n_entries());
  NewArray<int64_t> indptr({static_cast<size_t>(rows.n_rows()) + 1});
  NewArray<int32_t> outputs({n_entries});
  NewArray<float> values({n_entries});
  int64_t at = 0;
  indptr.data[0] = 0;
  for (int64_t b = 0; b < rows.n_blocks(); ++b) {
    const LabelRows::Block& block = rows.block(b);
    const LabelPattern& pattern = *block.pattern;
    for (int64_t r = 0; r < pattern.n_rows(); ++r)
      indptr.data[b * kLabelBlock + r + 1] = at + pattern.begin[r + 1];
    std::copy_n(pattern.outputs.data(), pattern.n_entries(), outputs.data + at);
    std::copy_n(block.values.data(), pattern.n_entries(), values.data + at);
    at += pattern.n_entries();
  }
  return nb::make_tuple(indptr.array, outputs.array, values.array);
}

nb::ndarray<nb::numpy, float> sketched(const LabelRows& rows, int32_t d, uint64_t seed, float scale,
                                       const Workers& workers) {
  require(d >= 1 && d <= 4096, "A sketch must have between 1 and 4096 columns.");
  NewArray<float> out({static_cast<size_t>(rows.n_rows()), static_cast<size_t>(d)});
  {
    nb::gil_scoped_release release;
    count_sketch(rows, seed, d, scale, out.data, workers);
  }
  return out.array;
}

void bind_rows(nb::module_& m) {
  nb::class_<LabelRows>(m, "LabelGradients",
                        "Gradients of rows over very many outputs of which few are not 0.")
      .def(
          "__init__",
          [](LabelRows* self, Array1<const int64_t> indptr, Array1<const int32_t> outputs,
             Array1<const float> values, int64_t n_outputs, const Workers& workers) {
            new (self) LabelRows(label_rows_of(indptr, outputs, values, n_outputs, workers));
          },
          nb::arg("indptr"), nb::arg("outputs"), nb::arg("values"), nb::arg("n_outputs"),
          nb::arg("n_threads"),
          "From CSR arrays: indptr int64 (n_rows + 1,), outputs int32 (nnz,) ascending in each "
          "row, values "
          "float32 (nnz,).")
      .def_prop_ro("n_rows", &LabelRows::n_rows)
      .def_prop_ro("n_outputs", &LabelRows::n_outputs)
      .def_prop_ro("n_entries", &LabelRows::n_entries)
      .def("csr", &csr, "Copies: indptr int64, outputs int32, values float32.")
      .def(
          "dense",
          [](const LabelRows& rows, const Workers& workers) {
            const int64_t k = rows.n_outputs();
            NewArray<float> out({static_cast<size_t>(rows.n_rows()), static_cast<size_t>(k)});
            {
              nb::gil_scoped_release release;
              parallel_for(workers, rows.n_blocks(), [&](int64_t b, int) {
                const Block block(rows.n_rows(), kLabelBlock, b);
                std::fill(out.data + block.begin * k, out.data + block.end * k, 0.0f);
                for (int64_t i = block.begin; i < block.end; ++i) {
                  const LabelRow row = rows.row(i);
                  for (int64_t e = 0; e < row.n; ++e)
                    out.data[i * k + row.outputs[e]] = row.values[e];
                }
              });
            }
            return out.array;
          },
          nb::arg("n_threads"), "float32 (n_rows, n_outputs), for few outputs.")
      .def(
          "norms",
          [](const LabelRows& rows, const Workers& workers) {
            NewArray<float> out({static_cast<size_t>(rows.n_rows()), 1});
            {
              nb::gil_scoped_release release;
              row_norms(rows, out.data, workers);
            }
            return out.array;
          },
          nb::arg("n_threads"), "float32 (n_rows, 1): Euclidean length of each row.")
      .def(
          "totals",
          [](const LabelRows& rows, const Workers& workers) {
            NewArray<double> out({static_cast<size_t>(rows.n_outputs())});
            {
              nb::gil_scoped_release release;
              const std::vector<double> totals = label_totals(rows, workers);
              std::copy(totals.begin(), totals.end(), out.data);
            }
            return out.array;
          },
          nb::arg("n_threads"),
          "float64 (n_outputs,): sums over the rows, of all ranks, exact in units of one power of "
          "two.")
      .def("count_sketch", &sketched, nb::arg("d"), nb::arg("seed"), nb::arg("scale"),
           nb::arg("n_threads"),
           "float32 (n_rows, d): every output is added to one of d columns with a random sign.");
}

void bind_scores(nb::module_& m) {
  nb::class_<SparseRawScores>(
      m, "SparseRawScores",
      "Raw scores of rows over very many outputs: of each row its labels and what leaves have "
      "given it so far; all others are 0.")
      .def(
          "__init__",
          [](SparseRawScores* self, int64_t n_rows, int64_t n_outputs) {
            require(n_rows >= 0 && n_outputs >= 1 && n_outputs <= INT32_MAX,
                    "There must be between 1 and 2147483647 outputs.");
            new (self) SparseRawScores(n_rows, n_outputs);
          },
          nb::arg("n_rows"), nb::arg("n_outputs"), "Rows without targets: they are only scored.")
      .def(
          "__init__",
          [](SparseRawScores* self, Array1<const int64_t> indptr, Array1<const int32_t> outputs,
             Optional1<const float> values, int64_t n_outputs, const Workers& workers) {
            const LabelRows targets = label_rows_of(indptr, outputs, values, n_outputs, workers);
            new (self) SparseRawScores(targets, workers);
          },
          nb::arg("indptr"), nb::arg("outputs"), nb::arg("values").none(), nb::arg("n_outputs"),
          nb::arg("n_threads"),
          "Rows with targets in CSR form: indptr int64 (n_rows + 1,), outputs int32 (nnz,) "
          "ascending in each "
          "row, "
          "values float32 (nnz,) or None: 1 throughout.")
      .def(
          "add",
          [](SparseRawScores& self, Array1<const int32_t> leaf_of_row, const TopkLeaves& leaves,
             const Workers& workers) {
            require(static_cast<int64_t>(leaf_of_row.size()) == self.raw().n_rows(),
                    "leaf_of_row needs one entry per row.");
            require(leaves.n_columns() == self.raw().n_outputs(),
                    "The leaves are for another number of outputs.");
            nb::gil_scoped_release release;
            check_leaf_ids(leaf_of_row.data(), self.raw().n_rows(), leaves.n_leaves(), workers);
            self.add(leaf_of_row.data(), leaves.view(), workers);
          },
          nb::arg("leaf_of_row"), nb::arg("leaves"), nb::arg("n_threads"),
          "Adds the payload of its leaf, int32 (n_rows,), to every row.")
      .def(
          "gradients",
          [](const SparseRawScores& self, const Loss& loss, float base,
             Optional1<const float> weight, const Workers& workers) {
            require(!weight || static_cast<int64_t>(weight->size()) == self.raw().n_rows(),
                    "Weights need one entry per row.");
            LabelRows out;
            nb::gil_scoped_release release;
            self.gradients(loss, base, weight ? weight->data() : nullptr, out, workers);
            return out;
          },
          nb::arg("loss"), nb::arg("base"), nb::arg("weight").none(), nb::arg("n_threads"),
          "LabelGradients at raw + base, times the rows' weights. An output that is not stored "
          "must have "
          "the derivative 0.")
      .def(
          "topk",
          [](const SparseRawScores& self, int32_t k, const Workers& workers) {
            const size_t n = static_cast<size_t>(self.raw().n_rows()),
                         columns = static_cast<size_t>(std::max(0, k));
            NewArray<int32_t> outputs({n, columns});
            NewArray<double> scores({n, columns});
            {
              nb::gil_scoped_release release;
              self.topk(k, outputs.data, scores.data, workers);
            }
            return nb::make_tuple(outputs.array, scores.array);
          },
          nb::arg("k"), nb::arg("n_threads"),
          "outputs int32 (n_rows, k), raw scores float64 (n_rows, k): the best of what each row "
          "holds, best "
          "first, "
          "ties by number; -1 and -inf where there are fewer.")
      .def_prop_ro("n_entries", [](const SparseRawScores& self) { return self.raw().n_entries(); })
      .def(
          "csr", [](const SparseRawScores& self) { return csr(self.raw()); },
          "Copies: indptr int64, outputs int32, raw scores float32.");
}

}  // namespace

void bind_labels(nb::module_& m) {
  bind_rows(m);
  bind_scores(m);
}

}  // namespace polyleaf
