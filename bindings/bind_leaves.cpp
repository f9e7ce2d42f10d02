// Bindings of leaf blocks, leaf fitters and linear tables.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

#include "arrays.h"
#include "base/packed.h"
#include "context_caster.h"
#include "conversions.h"
#include "leaf_blocks.h"
#include "leaves/leaf_kinds.h"
#include "leaves/linear.h"
#include "leaves/monotone_leaves.h"
#include "leaves/newton.h"
#include "leaves/topk.h"
#include "search/linear_gradients.h"

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
  count_leaves(indptr);
  new (self) TopkLeaves(span(indptr), span(outputs), span(values), n_outputs);
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
  new (self) LinearLeaves({span(indptr), span(features), matrix_view(weights), span(centre),
                           matrix_view(intercept), matrix_view(lower), matrix_view(upper)});
}

// Define a read-only property: an array with one entry per regressor or output of a leaf.
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

// Define a read-only property: a matrix with one row per leaf or regressor and one column per
// output.
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
      "Sparse leaves with values for some of the outputs; the other outputs are 0.\n\n"
      "Arrays are read-only views.");
  sparse.def("__init__", &init_topk, nb::arg("indptr"), nb::arg("outputs"), nb::arg("values"),
             nb::arg("n_outputs"),
             "Create leaves from indptr int64 (n_leaves + 1,), outputs int32 (nnz,), ascending\n"
             "in each leaf, and values float32 (nnz,).\n\n"
             "Raises ValueError unless the arrays are consistent and finite.");
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
      "Leaves that are linear in a few raw features.\n\n"
      "The value of a row is clip(intercept + sum_j weights_j * (x_j - centre_j), lower,\n"
      "upper), in float32, summed in order; a missing x_j adds 0. Arrays are read-only\n"
      "views.");
  linear.def("__init__", &init_linear, nb::arg("indptr"), nb::arg("features"), nb::arg("weights"),
             nb::arg("centre"), nb::arg("intercept"), nb::arg("lower"), nb::arg("upper"),
             "Create leaves from indptr int64 (n_leaves + 1,), features int32 (nnz,), ascending\n"
             "in each leaf, weights float32 (nnz, K), centre float32 (nnz,), and intercept,\n"
             "lower and upper float32 (n_leaves, K).\n\n"
             "Raises ValueError unless the arrays are consistent and finite; lower may be -inf,\n"
             "and upper inf.");
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
                     "1 + the largest feature that a leaf reads; 0 if there is none.");
}

void add_leaves(const Array2<float>& raw, const Array1<const int32_t>& leaf_of_row,
                const AnyLeaves& leaves, const AnyOutputs& any_outputs, const Context& context,
                const AnyFeatures& features) {
  const MatrixView<float> scores = matrix_view(raw);
  const auto* block = std::get_if<std::shared_ptr<LeafBlock>>(&leaves);
  const LeafView view = get_leaf_view(leaves);
  const int32_t n_leaves =
      block != nullptr ? (*block)->n_leaves()
                       : static_cast<int32_t>(std::get<Array2<const float>>(leaves).shape(0));
  if (raw.shape(0) != leaf_of_row.size())
    throw std::invalid_argument("raw and leaf_of_row must have the same number of rows.");
  const OutputList outputs = output_list(any_outputs);
  check_outputs(view, n_leaves, outputs, static_cast<int32_t>(scores.n_columns));
  check_leaf_ids(span(leaf_of_row), n_leaves, context);
  if (block != nullptr)
    check_features(feature_matrix(features), (*block)->n_features(), scores.n_rows);
  nb::gil_scoped_release release;
  add_leaf_values(scores, outputs, leaf_of_row.data(), view, feature_matrix(features), context);
}

}  // namespace

void bind_leaf_blocks(nb::module_& m) {
  nb::class_<LeafBlock>(m, "LeafBlock", "Leaf values of one tree.")
      .def_prop_ro("n_leaves", &LeafBlock::n_leaves)
      .def_prop_ro("n_outputs", &LeafBlock::n_columns, "Number of outputs.");
  bind_topk_leaves(m);
  bind_linear_leaves(m);
  m.def("add_leaf_values", &add_leaves, nb::arg("raw").noconvert(), nb::arg("leaf_of_row"),
        nb::arg("leaves"), nb::arg("outputs") = nb::none(), nb::arg("n_threads") = 1,
        nb::arg("features").noconvert() = nb::none(),
        "Add leaf values to raw scores in place: raw[i] += leaves[leaf_of_row[i]], as "
        "Forest.predict.\n\n"
        "`leaves`, `outputs`: as in Forest.append. `features`: float32 (n_features, n_rows),\n"
        "for linear leaves.");
}

namespace {

using Leaves = Array1<const int32_t>;  // leaf id of each row
using SampleRows = Optional1<const uint32_t>;
using Multiplier = Optional1<const float>;
using Derivatives = Array2<const float>;
using Hessians = Optional2<const float>;

// Check the leaf ids of all n rows of a tree and return the row sample.
RowSample checked_rows(int64_t n, const Leaves& leaf_of_row, int32_t n_leaves,
                       const SampleRows& rows, const Multiplier& multiplier,
                       const Context& context) {
  const RowSample sample = make_row_sample(n, rows, multiplier, context);
  require(static_cast<int64_t>(leaf_of_row.size()) == n,
          "leaf_of_row must have one entry per row.");
  require(n_leaves >= 1, "There must be at least one leaf.");
  check_leaf_ids(span(leaf_of_row), n_leaves, context);
  return sample;
}

void check_hessian(const Derivatives& g, const Hessians& h) {
  require(g.shape(1) >= 1, "There must be at least one output.");
  require(!h || (h->shape(0) == g.shape(0) && (h->shape(1) == 1 || h->shape(1) == g.shape(1))),
          "h must have as many rows as g, and one column or one per output.");
}

int columns(const Hessians& h) {
  return h ? static_cast<int>(h->shape(1)) : 0;
}

nb::ndarray<nb::numpy, float> fit_newton(const Derivatives& g, const Hessians& h,
                                         const Leaves& leaf_of_row, int32_t n_leaves,
                                         const LeafConfig& step, const SampleRows& rows,
                                         const Multiplier& multiplier, const Context& context) {
  const size_t n = g.shape(0), k = g.shape(1);
  const RowSample sample =
      checked_rows(static_cast<int64_t>(n), leaf_of_row, n_leaves, rows, multiplier, context);
  require(
      !h || (h->shape(0) == n &&
             (h->shape(1) == 1 || h->shape(1) == k || h->shape(1) == packed_size(k))),
      "h must have as many rows as g, and one column, one per output, or K (K + 1) / 2 columns.");
  NewArray<float> out({static_cast<size_t>(n_leaves), k});
  {
    nb::gil_scoped_release release;
    fit_newton_leaves(matrix_view(g), matrix_view(h), sample, leaf_of_row.data(), step, context,
                      {out.data, n_leaves, static_cast<int64_t>(k)});
  }
  return out.array;
}

std::shared_ptr<LeafBlock> fit_topk(const Derivatives& g, const Hessians& h,
                                    const Leaves& leaf_of_row, int32_t n_leaves, int32_t leaf_k,
                                    const Tree* shared, const LeafConfig& step,
                                    const SampleRows& rows, const Multiplier& multiplier,
                                    const Context& context) {
  const RowSample sample = checked_rows(static_cast<int64_t>(g.shape(0)), leaf_of_row, n_leaves,
                                        rows, multiplier, context);
  check_hessian(g, h);
  require(leaf_k >= 1, "leaf_k must be at least 1.");
  require(shared == nullptr || shared->n_leaves == n_leaves, "The tree must have n_leaves leaves.");
  nb::gil_scoped_release release;
  const TopkLeafArrays leaves =
      fit_topk_leaves(matrix_view(g), matrix_view(h), sample, leaf_of_row.data(), n_leaves, step,
                      leaf_k, shared, context);
  return make_topk_block(leaves, static_cast<int64_t>(g.shape(1)));
}

std::shared_ptr<LeafBlock> fit_topk_sparse(const SparseRows& g,
                                           const Optional1<const float>& weight,
                                           const Leaves& leaf_of_row, int32_t n_leaves,
                                           int32_t leaf_k, const LeafConfig& step,
                                           const SampleRows& rows, const Multiplier& multiplier,
                                           const Context& context) {
  const RowSample sample =
      checked_rows(g.n_rows(), leaf_of_row, n_leaves, rows, multiplier, context);
  require(!weight || static_cast<int64_t>(weight->size()) == g.n_rows(),
          "weight must have one entry per row.");
  require(leaf_k >= 1, "leaf_k must be at least 1.");
  nb::gil_scoped_release release;
  const TopkLeafArrays leaves =
      fit_topk_leaves(g, weight ? weight->data() : nullptr, sample, leaf_of_row.data(), n_leaves,
                      step, leaf_k, context);
  return make_topk_block(leaves, g.n_outputs());
}

std::shared_ptr<LinearLeaves> fit_linear(const Derivatives& g, const Hessians& h,
                                         const Leaves& leaf_of_row, const Tree& tree,
                                         const Array2<const float>& features,
                                         const LinearTable& table, const LinearLeafConfig& step,
                                         const SampleRows& rows, const Multiplier& multiplier,
                                         const Context& context) {
  const auto n = static_cast<int64_t>(g.shape(0));
  const RowSample sample = checked_rows(n, leaf_of_row, tree.n_leaves, rows, multiplier, context);
  check_hessian(g, h);
  require(
      static_cast<int>(features.shape(0)) == table.n_features() && features.shape(1) == g.shape(0),
      "features must have one row for each feature of the table and one column for each row of g.");
  for (int32_t f : tree.feature)
    require(f < table.n_features(), "The tree splits on features that are out of range.");
  nb::gil_scoped_release release;
  return fit_linear_leaves(matrix_view(g), matrix_view(h), sample, leaf_of_row.data(), tree,
                           {features.data(), static_cast<int64_t>(features.shape(0)), n}, table,
                           step, context);
}

auto leaf_hessians(const Hessians& h, const Leaves& leaf_of_row, int32_t n_leaves,
                   const SampleRows& rows, const Multiplier& multiplier, const Context& context) {
  const RowSample sample = checked_rows(static_cast<int64_t>(leaf_of_row.size()), leaf_of_row,
                                        n_leaves, rows, multiplier, context);
  require(!h || h->shape(0) == leaf_of_row.size(),
          "h must have one row for each entry of leaf_of_row.");
  NewArray<double> out({static_cast<size_t>(n_leaves), static_cast<size_t>(h ? columns(h) : 1)});
  nb::gil_scoped_release release;
  const std::vector<double> sums =
      sum_leaf_hessians(matrix_view(h), sample, leaf_of_row.data(), n_leaves, context);
  std::copy(sums.begin(), sums.end(), out.data);
  return out.array;
}

nb::ndarray<nb::numpy, float> monotone_leaves(const Array2<const float>& values,
                                              const Array2<const int8_t>& directions,
                                              const Array1<const uint16_t>& n_bins,
                                              const Tree& tree, const Array2<const double>& weights,
                                              const Context& context) {
  const size_t k = values.shape(1), features = n_bins.size();
  require(static_cast<int32_t>(values.shape(0)) == tree.n_leaves && k >= 1,
          "values must have one row per leaf.");
  require(directions.shape(0) == features && directions.shape(1) == k,
          "directions must have one row per feature and one column per output.");
  require(weights.shape(0) == values.shape(0) && (weights.shape(1) == 1 || weights.shape(1) == k),
          "weights must have one row per leaf, and one column or one per output.");
  for (int32_t f : tree.feature)
    require(f < static_cast<int32_t>(features),
            "The tree splits on features that are out of range.");
  for (size_t f = 0; f < features; ++f)
    require(n_bins.data()[f] <= kMissingCode, "A feature must have at most 255 bins.");
  NewArray<float> out({values.shape(0), k});
  std::copy_n(values.data(), values.size(), out.data);
  const std::vector<double> own(weights.data(), weights.data() + weights.size());
  nb::gil_scoped_release release;
  enforce_monotone_constraints(tree, n_bins.data(),
                               {directions.data(), static_cast<int>(features), static_cast<int>(k)},
                               own, static_cast<int>(weights.shape(1)), context, out.data);
  return out.array;
}

}  // namespace

void bind_fitters(nb::module_& m) {
  m.def("fit_newton_leaves", &fit_newton, nb::arg("g"), nb::arg("h").none(), nb::arg("leaf_of_row"),
        nb::arg("n_leaves"), nb::arg("step"), nb::arg("rows").none(), nb::arg("multiplier").none(),
        nb::arg("n_threads"),
        "Return Newton leaf values, float32 (n_leaves, K), times the learning rate (GBDT-MO eq. "
        "15).");
  m.def(
      "fit_topk_leaves", &fit_topk, nb::arg("g"), nb::arg("h").none(), nb::arg("leaf_of_row"),
      nb::arg("n_leaves"), nb::arg("leaf_k"), nb::arg("shared").none(), nb::arg("step"),
      nb::arg("rows").none(), nb::arg("multiplier").none(), nb::arg("n_threads"),
      "Return TopkLeaves with the leaf_k outputs of each leaf whose Newton steps lower\n"
      "the loss most (GBDT-MO eq. 19).\n\n"
      "`shared`: the tree, if the two children of a node must use the same outputs (Algorithm 4).");
  m.def("fit_topk_leaves_sparse", &fit_topk_sparse, nb::arg("g"), nb::arg("weight").none(),
        nb::arg("leaf_of_row"), nb::arg("n_leaves"), nb::arg("leaf_k"), nb::arg("step"),
        nb::arg("rows").none(), nb::arg("multiplier").none(), nb::arg("n_threads"),
        "Return TopkLeaves like fit_topk_leaves, from sparse gradients (GBDT-SPARSE eq. 19).\n\n"
        "The Hessian of all outputs of a row is its `weight`, float32 (n_rows,); None: 1.");
  m.def("fit_linear_leaves", &fit_linear, nb::arg("g"), nb::arg("h").none(), nb::arg("leaf_of_row"),
        nb::arg("tree"), nb::arg("features").noconvert(), nb::arg("table"), nb::arg("step"),
        nb::arg("rows").none(), nb::arg("multiplier").none(), nb::arg("n_threads"),
        "Return LinearLeaves times the learning rate (GBDT-PL eq. 6).\n\n"
        "The regressors of a leaf are the first features that its path splits on.");
  m.def("sum_leaf_hessians", &leaf_hessians, nb::arg("h").none(), nb::arg("leaf_of_row"),
        nb::arg("n_leaves"), nb::arg("rows").none(), nb::arg("multiplier").none(),
        nb::arg("n_threads"),
        "Return the sum of h over the rows of each leaf, float64 (n_leaves, columns); h None: 1 "
        "per row.");
  m.def("enforce_monotone_constraints", &monotone_leaves, nb::arg("values"), nb::arg("directions"),
        nb::arg("n_bins"), nb::arg("tree"), nb::arg("weights"), nb::arg("n_threads"),
        "Return the leaf values, float32 (n_leaves, K), nearest to `values` that satisfy\n"
        "the monotone constraints `directions`, int8 (n_features, K).\n\n"
        "The distance is the sum of squares weighted by `weights`, float64 (n_leaves, 1 or K).");
}

namespace {

void init_table(LinearTable* self, const Bins& bins, const Array2<const float>& features,
                const Optional1<const float>& weight, const Context& context) {
  require(static_cast<int>(features.shape(0)) == bins.n_features() &&
              static_cast<int64_t>(features.shape(1)) == bins.n_rows(),
          "features must have one row for each feature and one column for each row of the bins.");
  require(!weight || static_cast<int64_t>(weight->size()) == bins.n_rows(),
          "weight must have one entry per row.");
  nb::gil_scoped_release release;
  new (self) LinearTable(bins, features.data(), weight ? weight->data() : nullptr, context);
}

void quantise(LinearGradients& channels, const Array2<const float>& g,
              const Optional2<const float>& h, const std::string& kind,
              const Optional1<const uint32_t>& rows, const Optional1<const float>& multiplier,
              const Context& context) {
  const bool diagonal = kind == "diagonal";
  require(kind == "unit" || kind == "shared" || diagonal,
          "The Hessian kind must be unit, shared or diagonal.");
  require(h.has_value() == (kind != "unit"),
          "h is needed for every Hessian kind except unit, and only then.");
  require(g.shape(1) >= 1, "There must be at least one output.");
  require(
      !h || (h->shape(0) == g.shape(0) && h->shape(1) == (diagonal ? g.shape(1) : 1)),
      "h must have as many rows as g, and one column, or one per output for a diagonal Hessian.");
  require(!channels.config().full || !diagonal,
          "The full fit does not support a diagonal Hessian.");
  const RowSample sample =
      make_row_sample(static_cast<int64_t>(g.shape(0)), rows, multiplier, context);
  nb::gil_scoped_release release;
  channels.quantise(g.data(), h ? h->data() : nullptr, static_cast<int>(g.shape(1)),
                    !h                           ? HessianKind::unit
                    : diagonal && g.shape(1) > 1 ? HessianKind::diagonal
                                                 : HessianKind::shared,
                    sample, context);
}

}  // namespace

void bind_linear(nb::module_& m) {
  nb::class_<LinearTable>(m, "LinearTable",
                          "Statistics of features as regressors: centre, scale and bin means.")
      .def("__init__", &init_table, nb::arg("bins"), nb::arg("features").noconvert(),
           nb::arg("weight").none(), nb::arg("n_threads"),
           "Compute the statistics of `features`, float32 (n_features, n_rows), NaN where "
           "missing.\n\n"
           "`weight`: float32 (n_rows,); None: 1.")
      .def_prop_ro(
          "centre",
          [](nb::handle self) {
            const auto& table = nb::cast<const LinearTable&>(self);
            return view<double>(table.centres().data(), {table.centres().size()}, self);
          },
          "Weighted mean of each feature, float64 (n_features,).")
      .def_prop_ro(
          "scale",
          [](nb::handle self) {
            const auto& table = nb::cast<const LinearTable&>(self);
            return view<double>(table.scales().data(), {table.scales().size()}, self);
          },
          "Weighted standard deviation of each feature, float64 (n_features,); 0: not a regressor.")
      .def_prop_ro(
          "means",
          [](nb::handle self) {
            const auto& table = nb::cast<const LinearTable&>(self);
            return view<double>(table.means(0), {table.scales().size(), 256}, self);
          },
          "Standardised mean of each bin by code, float64 (n_features, 256).");
  nb::class_<LinearGradients>(
      m, "LinearGradients",
      "Gradients and Hessians for the gain of splits that anticipate linear leaves.")
      .def(
          "__init__",
          [](LinearGradients* self, const LinearTable& table, const LinearConfig& config) {
            require(!config.full || config.max_regressors <= kMaxRegressors,
                    "The full fit supports at most 8 regressors.");
            new (self) LinearGradients(table, config);
          },
          nb::arg("table"), nb::arg("config"), nb::keep_alive<1, 2>())
      .def("quantise", &quantise, nb::arg("g"), nb::arg("h").none(), nb::arg("kind"),
           nb::arg("rows").none(), nb::arg("multiplier").none(), nb::arg("n_threads"),
           "Set the gradients g (n, K) and the Hessians h: None (unit), (n, 1) (shared) or (n,\n"
           "K) (diagonal).");
}

}  // namespace polyleaf
