// TopkLeaves, LinearLeaves and the addition of leaves to raw scores, for Python.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "context_caster.h"
#include "leaf_blocks.h"
#include "leaves/linear_block.h"
#include "leaves/topk_block.h"

namespace polyleaf {
namespace {

void require_leaves(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument("The leaves are not valid: " + message);
}

int64_t count_leaves(const Array1<const int64_t>& indptr) {
  require_leaves(indptr.size() >= 2, "indptr needs one entry a leaf and one more.");
  return static_cast<int64_t>(indptr.size()) - 1;
}

void init_topk(TopkLeaves* self, const Array1<const int64_t>& indptr,
               const Array1<const int32_t>& outputs, const Array1<const float>& values,
               int64_t n_outputs) {
  require_leaves(outputs.size() == values.size(), "outputs and values differ in length.");
  new (self) TopkLeaves(indptr.data(), count_leaves(indptr), outputs.data(), values.data(),
                        static_cast<int64_t>(values.size()), n_outputs);
}

void init_linear(LinearLeaves* self, const Array1<const int64_t>& indptr,
                 const Array1<const int32_t>& features, const Array2<const float>& weights,
                 const Array1<const float>& centre, const Array2<const float>& intercept,
                 const Array2<const float>& lower, const Array2<const float>& upper) {
  const size_t n_leaves = static_cast<size_t>(count_leaves(indptr)), n_columns = intercept.shape(1);
  require_leaves(weights.shape(0) == features.size() && centre.size() == features.size(),
                 "features, weights and centre must have one entry for each regressor.");
  for (const auto* matrix : {&intercept, &lower, &upper})
    require_leaves(matrix->shape(0) == n_leaves && matrix->shape(1) == n_columns,
                   "intercept, lower and upper must have one row a leaf and one column an output.");
  require_leaves(weights.shape(1) == n_columns, "weights must have one column for each of the " +
                                                    std::to_string(n_columns) +
                                                    " outputs of the intercepts.");
  new (self)
      LinearLeaves({indptr.data(), features.data(), weights.data(), centre.data(), intercept.data(),
                    lower.data(), upper.data(), static_cast<int64_t>(n_leaves),
                    static_cast<int64_t>(features.size()), static_cast<int64_t>(n_columns)});
}

// A read-only property: an array with one entry for each regressor or output of a leaf.
template <class T, class Class, class Get>
void def_entries(nb::class_<Class, LeafBlock>& cls, const char* name, Get get, const char* doc) {
  cls.def_prop_ro(
      name,
      [get](nb::handle self) {
        const auto& block = nb::cast<const LeafBlock&>(self);
        return view<T>(get(block.view()), {static_cast<size_t>(block.n_entries())}, self);
      },
      doc);
}

template <class Class>
void def_indptr(nb::class_<Class, LeafBlock>& cls) {
  cls.def_prop_ro(
      "indptr",
      [](nb::handle self) {
        const auto& block = nb::cast<const LeafBlock&>(self);
        return view<int64_t>(block.view().begin, {static_cast<size_t>(block.n_leaves()) + 1}, self);
      },
      "int64 (n_leaves + 1,); the entries of leaf l are indptr[l] .. indptr[l + 1] - 1");
}

// A read-only property: a matrix with one row a leaf, or one a regressor, and one column an output.
template <class Get>
void def_vectors(nb::class_<LinearLeaves, LeafBlock>& cls, const char* name, Get get, bool per_leaf,
                 const char* doc) {
  cls.def_prop_ro(
      name,
      [get, per_leaf](nb::handle self) {
        const auto& block = nb::cast<const LeafBlock&>(self);
        return vectors(get(block.view()), per_leaf ? block.n_leaves() : block.n_entries(), block,
                       self);
      },
      doc);
}

void bind_topk_leaves(nb::module_& m) {
  nb::class_<TopkLeaves, LeafBlock> sparse(
      m, "TopkLeaves",
      "Leaves that hold some of the outputs; the others get nothing. Arrays are read-only views.");
  sparse.def("__init__", &init_topk, nb::arg("indptr"), nb::arg("outputs"), nb::arg("values"),
             nb::arg("n_outputs"),
             "indptr int64 (n_leaves + 1,), outputs int32 (nnz,) ascending in each leaf, values "
             "float32 (nnz,).\n"
             "ValueError unless they fit together and are finite.");
  def_indptr(sparse);
  def_entries<int32_t>(
      sparse, "outputs", [](const LeafView& v) { return v.index; },
      "int32 (nnz,); ascending in each leaf");
  def_entries<float>(
      sparse, "values", [](const LeafView& v) { return v.values; }, "float32 (nnz,)");
}

void bind_linear_leaves(nb::module_& m) {
  nb::class_<LinearLeaves, LeafBlock> linear(
      m, "LinearLeaves",
      "Leaves that are linear in a few raw features:\n"
      "clip(intercept + sum_j weights_j * (x_j - centre_j), lower, "
      "upper), in float32, in order; a missing x_j\n"
      "adds nothing. Arrays are read-only views.");
  linear.def("__init__", &init_linear, nb::arg("indptr"), nb::arg("features"), nb::arg("weights"),
             nb::arg("centre"), nb::arg("intercept"), nb::arg("lower"), nb::arg("upper"),
             "indptr int64 (n_leaves + 1,), features int32 (nnz,) ascending in each leaf, weights "
             "float32 (nnz, "
             "K),\n"
             "centre float32 (nnz,), intercept, lower, upper float32 (n_leaves, K). ValueError "
             "unless they fit\n"
             "together and are finite (lower may be -inf, upper inf).");
  def_indptr(linear);
  def_entries<int32_t>(
      linear, "features", [](const LeafView& v) { return v.index; },
      "int32 (nnz,); ascending in each leaf");
  def_entries<float>(
      linear, "centre", [](const LeafView& v) { return v.centre; }, "float32 (nnz,)");
  def_vectors(
      linear, "weights", [](const LeafView& v) { return v.weights; }, false, "float32 (nnz, K)");
  def_vectors(
      linear, "intercept", [](const LeafView& v) { return v.values; }, true,
      "float32 (n_leaves, K)");
  def_vectors(
      linear, "lower", [](const LeafView& v) { return v.lower; }, true, "float32 (n_leaves, K)");
  def_vectors(
      linear, "upper", [](const LeafView& v) { return v.upper; }, true, "float32 (n_leaves, K)");
  linear.def_prop_ro("n_features", &LeafBlock::n_features,
                     "1 + the largest feature read; 0 where none is.");
}

void add_leaves(const Array2<float>& raw, const Array1<const int32_t>& leaf_of_row,
                const AnyLeaves& leaves, int32_t output, const Context& context,
                const AnyFeatures& features) {
  const auto n = static_cast<int64_t>(raw.shape(0)), n_outputs = static_cast<int64_t>(raw.shape(1));
  const auto* block = std::get_if<std::shared_ptr<LeafBlock>>(&leaves);
  const LeafView view = get_leaf_view(leaves);
  const int32_t n_leaves =
      block != nullptr ? (*block)->n_leaves()
                       : static_cast<int32_t>(std::get<Array2<const float>>(leaves).shape(0));
  if (raw.shape(0) != leaf_of_row.size())
    throw std::invalid_argument("raw and leaf_of_row must have the same number of rows.");
  if (output >= n_outputs || view.n_columns != (output >= 0 ? 1 : n_outputs) ||
      (output >= 0 && view.kind->is_sparse))
    throw std::invalid_argument("Leaf values do not fit the raw scores.");
  check_leaf_ids(leaf_of_row.data(), n, n_leaves, context);
  if (block != nullptr) check_features(feature_matrix(features), (*block)->n_features(), n);
  nb::gil_scoped_release release;
  add_leaf_values(raw.data(), n, n_outputs, output, leaf_of_row.data(), view,
                  feature_matrix(features), context);
}

}  // namespace

void bind_leaf_blocks(nb::module_& m) {
  nb::class_<LeafBlock>(m, "LeafBlock", "The payloads of one tree's leaves.")
      .def_prop_ro("n_leaves", &LeafBlock::n_leaves)
      .def_prop_ro("n_outputs", &LeafBlock::n_columns, "Outputs that a leaf is for.");
  bind_topk_leaves(m);
  bind_linear_leaves(m);
  m.def("add_leaf_values", &add_leaves, nb::arg("raw").noconvert(), nb::arg("leaf_of_row"),
        nb::arg("leaves"), nb::arg("output") = -1, nb::arg("n_threads") = 1,
        nb::arg("features").noconvert() = nb::none(),
        "raw[i] += leaves[leaf_of_row[i]], in place, as Forest.predict does. leaves: as in "
        "Forest.append;\n"
        "output >= 0: leaves of one column go to that column; features: float32 (n_features, "
        "n_rows), where\n"
        "leaves are linear.");
}

}  // namespace polyleaf
