// Bindings of sparse raw scores and gradients of rows with very many outputs, and of their text
// files.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "base/parallel.h"
#include "context_caster.h"
#include "conversions.h"
#include "data/xmc_text.h"
#include "forest/sparse_raw_scores.h"
#include "leaves/topk.h"
#include "quantised_gradients/sparse_target_sums.h"
#include "sketch/sketch.h"

namespace polyleaf {
namespace {

// Return copies (indptr, outputs, values).
nb::tuple csr(const SparseRows& rows) {
  const size_t n_entries = static_cast<size_t>(rows.n_entries());
  NewArray<int64_t> indptr({static_cast<size_t>(rows.n_rows()) + 1});
  NewArray<int32_t> outputs({n_entries});
  NewArray<float> values({n_entries});
  int64_t at = 0;
  indptr.data[0] = 0;
  for (int64_t b = 0; b < rows.n_blocks(); ++b) {
    const SparseRows::Block& block = rows.block(b);
    const SparsePattern& pattern = *block.pattern;
    for (int64_t r = 0; r < pattern.n_rows(); ++r)
      indptr.data[b * kSparseBlockRows + r + 1] = at + pattern.begin[r + 1];
    std::copy_n(pattern.outputs.data(), pattern.n_entries(), outputs.data + at);
    std::copy_n(block.values.data(), pattern.n_entries(), values.data + at);
    at += pattern.n_entries();
  }
  return nb::make_tuple(indptr.array, outputs.array, values.array);
}

nb::ndarray<nb::numpy, float> make_sketch(const SparseRows& rows, int32_t d, uint64_t seed,
                                          float scale, const Context& context) {
  require(d >= 1 && d <= 4096, "A sketch must have between 1 and 4096 columns.");
  NewArray<float> out({static_cast<size_t>(rows.n_rows()), static_cast<size_t>(d)});
  {
    nb::gil_scoped_release release;
    count_sketch(rows, seed, scale, {out.data, rows.n_rows(), d}, context);
  }
  return out.array;
}

void bind_rows(nb::module_& m) {
  nb::class_<SparseRows>(m, "SparseGradients", "Sparse gradients of rows with very many outputs.")
      .def(
          "__init__",
          [](SparseRows* self, Array1<const int64_t> indptr, Array1<const int32_t> outputs,
             Array1<const float> values, int64_t n_outputs, const Context& context) {
            new (self) SparseRows(parse_sparse_rows(indptr, outputs, values, n_outputs, context));
          },
          nb::arg("indptr"), nb::arg("outputs"), nb::arg("values"), nb::arg("n_outputs"),
          nb::arg("n_threads"),
          "Create gradients from CSR arrays: indptr int64 (n_rows + 1,), outputs int32\n"
          "(nnz,), ascending in each row, and values float32 (nnz,).")
      .def_prop_ro("n_rows", &SparseRows::n_rows)
      .def_prop_ro("n_outputs", &SparseRows::n_outputs)
      .def_prop_ro("n_entries", &SparseRows::n_entries)
      .def("csr", &csr,
           "Return copies of the CSR arrays: indptr int64, outputs int32, values float32.")
      .def(
          "dense",
          [](const SparseRows& rows, const Context& context) {
            const int64_t k = rows.n_outputs();
            NewArray<float> out({static_cast<size_t>(rows.n_rows()), static_cast<size_t>(k)});
            {
              nb::gil_scoped_release release;
              parallel_for(context, rows.n_blocks(), [&](int64_t b, int) {
                const Block block(rows.n_rows(), kSparseBlockRows, b);
                std::fill(out.data + block.begin * k, out.data + block.end * k, 0.0f);
                for (int64_t i = block.begin; i < block.end; ++i) {
                  const SparseRow row = rows.row(i);
                  for (int64_t e = 0; e < row.n; ++e)
                    out.data[i * k + row.outputs[e]] = row.values[e];
                }
              });
            }
            return out.array;
          },
          nb::arg("n_threads"), "Return a dense array, float32 (n_rows, n_outputs).")
      .def(
          "norms",
          [](const SparseRows& rows, const Context& context) {
            NewArray<float> out({static_cast<size_t>(rows.n_rows()), 1});
            {
              nb::gil_scoped_release release;
              compute_row_norms(rows, out.data, context);
            }
            return out.array;
          },
          nb::arg("n_threads"), "Return the Euclidean norm of each row, float32 (n_rows, 1).")
      .def(
          "totals",
          [](const SparseRows& rows, const Context& context) {
            NewArray<double> out({static_cast<size_t>(rows.n_outputs())});
            {
              nb::gil_scoped_release release;
              const std::vector<double> totals = sum_sparse_outputs(rows, context);
              std::copy(totals.begin(), totals.end(), out.data);
            }
            return out.array;
          },
          nb::arg("n_threads"),
          "Return the sum of each output over the rows of all ranks, float64 (n_outputs,).\n\n"
          "Sums are exact in units of one power of two.")
      .def("count_sketch", &make_sketch, nb::arg("d"), nb::arg("seed"), nb::arg("scale"),
           nb::arg("n_threads"),
           "Return the count sketch, float32 (n_rows, d).\n\n"
           "Every output is added to one of d columns with a random sign.");
}

void bind_scores(nb::module_& m) {
  nb::class_<SparseRawScores>(
      m, "SparseRawScores",
      "Sparse raw scores of rows with very many outputs.\n\n"
      "A row holds its labels and the outputs of its leaves so far; all other raw scores are 0.")
      .def(
          "__init__",
          [](SparseRawScores* self, int64_t n_rows, int64_t n_outputs) {
            require(n_rows >= 0 && n_outputs >= 1 && n_outputs <= INT32_MAX,
                    "There must be between 1 and 2147483647 outputs.");
            new (self) SparseRawScores(n_rows, n_outputs);
          },
          nb::arg("n_rows"), nb::arg("n_outputs"), "Create raw scores of rows without targets.")
      .def(
          "__init__",
          [](SparseRawScores* self, Array1<const int64_t> indptr, Array1<const int32_t> outputs,
             Optional1<const float> values, int64_t n_outputs, const Context& context) {
            const SparseRows targets =
                parse_sparse_rows(indptr, outputs, values, n_outputs, context);
            new (self) SparseRawScores(targets, context);
          },
          nb::arg("indptr"), nb::arg("outputs"), nb::arg("values").none(), nb::arg("n_outputs"),
          nb::arg("n_threads"),
          "Create raw scores of rows with targets in CSR format: indptr int64 (n_rows + 1,),\n"
          "outputs int32 (nnz,), ascending in each row, values float32 (nnz,); None: 1.")
      .def(
          "add",
          [](SparseRawScores& self, Array1<const int32_t> leaf_of_row, const TopkLeaves& leaves,
             const Context& context) {
            require(static_cast<int64_t>(leaf_of_row.size()) == self.raw().n_rows(),
                    "leaf_of_row must have one entry per row.");
            require(leaves.n_columns() == self.raw().n_outputs(),
                    "The leaves must have as many outputs as the raw scores.");
            nb::gil_scoped_release release;
            check_leaf_ids(span(leaf_of_row), leaves.n_leaves(), context);
            self.add(leaf_of_row.data(), leaves.view(), context);
          },
          nb::arg("leaf_of_row"), nb::arg("leaves"), nb::arg("n_threads"),
          "Add the leaf value of each row; leaf_of_row: int32 (n_rows,).")
      .def(
          "gradients",
          [](const SparseRawScores& self, const Loss& loss, float base,
             Optional1<const float> weight, const Context& context) {
            require(!weight || static_cast<int64_t>(weight->size()) == self.raw().n_rows(),
                    "weight must have one entry per row.");
            SparseRows out;
            nb::gil_scoped_release release;
            self.gradients(loss, base, weight ? weight->data() : nullptr, out, context);
            return out;
          },
          nb::arg("loss"), nb::arg("base"), nb::arg("weight").none(), nb::arg("n_threads"),
          "Return the SparseGradients at raw + base, times the row weights.\n\n"
          "The derivative of an output that is not stored must be 0.")
      .def(
          "topk",
          [](const SparseRawScores& self, int32_t k, const Context& context) {
            const size_t n = static_cast<size_t>(self.raw().n_rows()),
                         columns = static_cast<size_t>(std::max(0, k));
            NewArray<int32_t> outputs({n, columns});
            NewArray<double> scores({n, columns});
            {
              nb::gil_scoped_release release;
              self.topk(k, outputs.data, scores.data, context);
            }
            return nb::make_tuple(outputs.array, scores.array);
          },
          nb::arg("k"), nb::arg("n_threads"),
          "Return the k outputs with the highest raw scores that each row holds, int32\n"
          "(n_rows, k), and their raw scores, float64 (n_rows, k).\n\n"
          "Outputs are sorted by score, highest first, with ties in ascending order. Missing\n"
          "entries are -1 and -inf.")
      .def_prop_ro("n_entries", [](const SparseRawScores& self) { return self.raw().n_entries(); })
      .def(
          "csr", [](const SparseRawScores& self) { return csr(self.raw()); },
          "Return copies of the CSR arrays: indptr int64, outputs int32, raw scores float32.");
}

RowSyntax parse_syntax(const std::string& name) {
  if (name == "pairs") return RowSyntax::pairs;
  if (name == "labelled") return RowSyntax::labelled;
  throw std::invalid_argument("Unknown syntax '" + name + "'.");
}

template <class T>
nb::ndarray<nb::numpy, T> to_array(const std::vector<T>& from) {
  NewArray<T> out({from.size()});
  std::copy(from.begin(), from.end(), out.data);
  return out.array;
}

nb::tuple read_rows(nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> text,
                    const std::string& syntax, int64_t n_features, int64_t n_labels,
                    int64_t first_line, const Context& context) {
  require(n_features >= 0 && n_features <= INT32_MAX && n_labels >= 0 && n_labels <= INT32_MAX,
          "n_features and n_labels must be between 0 and 2147483647.");
  TextRows rows;
  {
    nb::gil_scoped_release release;
    rows = read_xmc_text(reinterpret_cast<const char*>(text.data()),
                         static_cast<int64_t>(text.shape(0)), parse_syntax(syntax),
                         {n_features, n_labels}, first_line, context);
  }
  return nb::make_tuple(to_array(rows.label_indptr), to_array(rows.labels), to_array(rows.indptr),
                        to_array(rows.indices), to_array(rows.values));
}

void require_indptr(const Array1<const int64_t>& indptr, size_t n_rows, size_t n_stored) {
  require(indptr.shape(0) == n_rows + 1, "indptr must have one entry per row plus one.");
  for (size_t i = 0; i < n_rows; ++i)
    require(indptr.data()[i] <= indptr.data()[i + 1], "indptr must ascend.");
  require(indptr.data()[0] >= 0 && indptr.data()[n_rows] <= static_cast<int64_t>(n_stored),
          "indptr must stay within the stored values.");
}

nb::bytes write_rows(Optional1<const int64_t> label_indptr, Optional1<const int32_t> labels,
                     Array1<const int64_t> indptr, Array1<const int32_t> indices,
                     Array1<const float> values, int32_t index_base) {
  require(indptr.shape(0) >= 1, "indptr must have one entry per row plus one.");
  const size_t n_rows = indptr.shape(0) - 1;
  require(indices.shape(0) == values.shape(0), "indices and data must have the same length.");
  require_indptr(indptr, n_rows, indices.shape(0));
  require(label_indptr.has_value() == labels.has_value(),
          "labels and label_indptr must be given together.");
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

void bind_sparse(nb::module_& m) {
  bind_rows(m);
  bind_scores(m);
  m.def("read_xmc_text", &read_rows, nb::arg("text").noconvert(), nb::arg("syntax"),
        nb::arg("n_features"), nb::arg("n_labels"), nb::arg("first_line"), nb::arg("n_threads"),
        "Return (label_indptr, labels, indptr, indices, data) of the rows in a text, uint8 bytes.");
  m.def("write_xmc_text", &write_rows, nb::arg("label_indptr").none(), nb::arg("labels").none(),
        nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("index_base"),
        "Return CSR rows as bytes of text.");
}

}  // namespace polyleaf
