// Leaf fitters at the border: from rows and unquantised derivatives to the leaves of one tree.

#include <algorithm>

#include "base/packed.h"
#include "context_caster.h"
#include "conversions.h"
#include "leaf_blocks.h"
#include "leaves/linear.h"
#include "leaves/monotone.h"
#include "leaves/newton.h"
#include "leaves/topk.h"

namespace polyleaf {
namespace {

using Leaves = Array1<const int32_t>;  // of rows
using SampleRows = Optional1<const uint32_t>;
using Multiplier = Optional1<const float>;
using Derivatives = Array2<const float>;
using Hessians = Optional2<const float>;

// The sample of a tree's n rows, of which each is in one of the leaves.
RowSample checked_rows(int64_t n, const Leaves& leaf_of_row, int32_t n_leaves,
                       const SampleRows& rows, const Multiplier& multiplier,
                       const Context& context) {
  const RowSample sample = make_row_sample(n, rows, multiplier, context);
  require(static_cast<int64_t>(leaf_of_row.size()) == n, "leaf_of_row needs one entry per row.");
  require(n_leaves >= 1, "There must be at least one leaf.");
  check_leaf_ids(leaf_of_row.data(), n, n_leaves, context);
  return sample;
}

void check_hessian(const Derivatives& g, const Hessians& h) {
  require(g.shape(1) >= 1, "There must be at least one output.");
  require(!h || (h->shape(0) == g.shape(0) && (h->shape(1) == 1 || h->shape(1) == g.shape(1))),
          "h must have g's rows, and one column or one per output.");
}

const float* data(const Hessians& h) {
  return h ? h->data() : nullptr;
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
  require(!h || (h->shape(0) == n &&
                 (h->shape(1) == 1 || h->shape(1) == k || h->shape(1) == packed_size(k))),
          "h must have g's rows, and one column, one per output, or K (K + 1) / 2.");
  NewArray<float> out({static_cast<size_t>(n_leaves), k});
  {
    nb::gil_scoped_release release;
    fit_newton_leaves(g.data(), data(h), static_cast<int>(k), columns(h), sample,
                      leaf_of_row.data(), n_leaves, step, context, out.data);
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
  require(shared == nullptr || shared->n_leaves == n_leaves,
          "The tree has another number of leaves.");
  nb::gil_scoped_release release;
  const TopkLeafArrays leaves =
      fit_topk_leaves(g.data(), data(h), static_cast<int>(g.shape(1)), columns(h), sample,
                      leaf_of_row.data(), n_leaves, step, leaf_k, shared, context);
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
          "Weights need one entry per row.");
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
    require(f < table.n_features(), "The tree splits on unknown features.");
  nb::gil_scoped_release release;
  return fit_linear_leaves(g.data(), data(h), static_cast<int>(g.shape(1)), h ? columns(h) : 1,
                           sample, leaf_of_row.data(), tree,
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
      sum_leaf_hessians(data(h), h ? columns(h) : 1, sample, leaf_of_row.data(), n_leaves, context);
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
    require(f < static_cast<int32_t>(features), "The tree splits on unknown features.");
  for (size_t f = 0; f < features; ++f)
    require(n_bins.data()[f] <= kMissingCode, "A feature has at most 255 bins.");
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
        "Newton leaf values, float32 (n_leaves, K), times the learning rate (GBDT-MO eq. 15).");
  m.def("fit_topk_leaves", &fit_topk, nb::arg("g"), nb::arg("h").none(), nb::arg("leaf_of_row"),
        nb::arg("n_leaves"), nb::arg("leaf_k"), nb::arg("shared").none(), nb::arg("step"),
        nb::arg("rows").none(), nb::arg("multiplier").none(), nb::arg("n_threads"),
        "TopkLeaves with the leaf_k outputs of each leaf whose Newton step lowers the loss most "
        "(GBDT-MO "
        "eq. 19); `shared`: the tree, whose nodes' children share theirs (Algorithm 4).");
  m.def("fit_topk_leaves_sparse", &fit_topk_sparse, nb::arg("g"), nb::arg("weight").none(),
        nb::arg("leaf_of_row"), nb::arg("n_leaves"), nb::arg("leaf_k"), nb::arg("step"),
        nb::arg("rows").none(), nb::arg("multiplier").none(), nb::arg("n_threads"),
        "The same from sparse gradients (GBDT-SPARSE eq. 19); every output has the Hessian of "
        "its row, "
        "`weight` or 1.");
  m.def("fit_linear_leaves", &fit_linear, nb::arg("g"), nb::arg("h").none(), nb::arg("leaf_of_row"),
        nb::arg("tree"), nb::arg("features").noconvert(), nb::arg("table"), nb::arg("step"),
        nb::arg("rows").none(), nb::arg("multiplier").none(), nb::arg("n_threads"),
        "LinearLeaves on the first features that each leaf's path splits on (GBDT-PL eq. 6), times "
        "the "
        "learning rate.");
  m.def("sum_leaf_hessians", &leaf_hessians, nb::arg("h").none(), nb::arg("leaf_of_row"),
        nb::arg("n_leaves"), nb::arg("rows").none(), nb::arg("multiplier").none(),
        nb::arg("n_threads"),
        "What the rows of each leaf sum to in each column of h, float64 (n_leaves, columns); None: "
        "1 a row.");
  m.def(
      "enforce_monotone_constraints", &monotone_leaves, nb::arg("values"), nb::arg("directions"),
      nb::arg("n_bins"), nb::arg("tree"), nb::arg("weights"), nb::arg("n_threads"),
      "The values (n_leaves, K) of leaves, float32, nearest to these that obey the directions int8 "
      "(n_features, K), in squares weighted by `weights`, (n_leaves, 1 or K).");
}

}  // namespace polyleaf
