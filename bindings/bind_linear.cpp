// Linear leaves at the border: what features are worth as regressors, and the leaf fitter.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "leaf_blocks.h"
#include "leaves/linear.h"
#include "linear_channels.h"
#include "sample.h"

namespace polyleaf {
namespace {

void init_table(LinearTable* self, const Bins& bins, const Array2<const float>& features,
                const Optional1<const float>& weight, int n_threads) {
  require(static_cast<int>(features.shape(0)) == bins.n_features() &&
              static_cast<int64_t>(features.shape(1)) == bins.n_rows(),
          "features must have one row for each feature and one column for each row of the bins.");
  require(!weight || static_cast<int64_t>(weight->size()) == bins.n_rows(),
          "weight needs one entry per row.");
  nb::gil_scoped_release release;
  new (self) LinearTable(bins, features.data(), weight ? weight->data() : nullptr, std::max(1, n_threads));
}

std::shared_ptr<LinearLeaves> fit(const Tree& tree, const Array2<const float>& g,
                                  const Optional2<const float>& h, const Array1<const int32_t>& leaf_of_row,
                                  const Array2<const float>& features, const LinearTable& table,
                                  double reg_lambda, double linear_lambda, int max_regressors, bool clip,
                                  double learning_rate, const Optional1<const uint32_t>& rows,
                                  const Optional1<const float>& multiplier, int n_threads) {
  const auto n = static_cast<int64_t>(g.shape(0));
  const RowSample sample = sample_of(n, rows, multiplier);
  require(leaf_of_row.size() == g.shape(0), "leaf_of_row needs one entry per row.");
  if (h)
    require(h->shape(0) == g.shape(0) && (h->shape(1) == 1 || h->shape(1) == g.shape(1)),
            "h must have g's rows, and one column or one per output.");
  require(static_cast<int>(features.shape(0)) == table.n_features() && features.shape(1) == g.shape(0),
          "features must have one row for each feature of the table and one column for each row of g.");
  n_threads = std::max(1, n_threads);
  check_leaf_ids(leaf_of_row.data(), n, tree.n_leaves, n_threads);
  for (int32_t f : tree.feature) require(f < table.n_features(), "The tree splits on unknown features.");
  nb::gil_scoped_release release;
  return fit_linear_leaves(g.data(), h ? h->data() : nullptr, static_cast<int>(g.shape(1)),
                           h ? static_cast<int>(h->shape(1)) : 1, sample, leaf_of_row.data(), tree,
                           {features.data(), static_cast<int64_t>(features.shape(0)), n}, table,
                           {reg_lambda, linear_lambda, learning_rate, max_regressors, clip}, n_threads);
}

void renew(LinearChannels& channels, const Array2<const float>& g, const Optional2<const float>& h,
           const std::string& kind, const std::string& fit, int max_regressors, double linear_lambda,
           const Optional1<const uint32_t>& rows, const Optional1<const float>& multiplier, int n_threads) {
  const bool diagonal = kind == "diagonal";
  require(kind == "unit" || kind == "shared" || diagonal, "The curvature must be unit, shared or diagonal.");
  require(fit == "half_additive" || fit == "full", "fit must be half_additive or full.");
  require(h.has_value() == (kind != "unit"), "h is needed exactly for curvature that is not unit.");
  require(g.shape(1) >= 1, "There must be at least one output.");
  require(!h || (h->shape(0) == g.shape(0) && h->shape(1) == (diagonal ? g.shape(1) : 1)),
          "h must have g's rows, and one column for all outputs or, where diagonal, one for each.");
  require(max_regressors >= 0 && linear_lambda >= 0,
          "max_regressors and linear_lambda must not be negative.");
  const bool full = fit == "full";
  require(!full || max_regressors <= kMostFullRegressors, "The full fit takes at most 8 regressors.");
  require(!full || !diagonal, "The full fit needs one curvature for all outputs.");
  const RowSample sample = sample_of(static_cast<int64_t>(g.shape(0)), rows, multiplier);
  nb::gil_scoped_release release;
  channels.use(g.data(), h ? h->data() : nullptr, static_cast<int>(g.shape(1)),
               !h                           ? Curvature::unit
               : diagonal && g.shape(1) > 1 ? Curvature::diagonal
                                            : Curvature::shared,
               sample, {full, max_regressors, linear_lambda}, std::max(1, n_threads));
}

}  // namespace

void bind_linear(nb::module_& m) {
  nb::class_<LinearTable>(m, "LinearTable",
                          "What features are worth as regressors: centre, scale and bin means.")
      .def("__init__", &init_table, nb::arg("bins"), nb::arg("features").noconvert(),
           nb::arg("weight") = nb::none(), nb::arg("n_threads") = 1,
           "features: float32 (n_features, n_rows), NaN where missing; weight: float32 (n_rows,).")
      .def_prop_ro(
          "centre",
          [](nb::handle self) {
            const auto& table = nb::cast<const LinearTable&>(self);
            return view<double>(table.centres().data(), {table.centres().size()}, self);
          },
          "float64 (n_features,): weighted mean")
      .def_prop_ro(
          "scale",
          [](nb::handle self) {
            const auto& table = nb::cast<const LinearTable&>(self);
            return view<double>(table.scales().data(), {table.scales().size()}, self);
          },
          "float64 (n_features,): weighted standard deviation; 0 where a feature can be no regressor")
      .def_prop_ro(
          "means",
          [](nb::handle self) {
            const auto& table = nb::cast<const LinearTable&>(self);
            return view<double>(table.means(0), {table.scales().size(), 256}, self);
          },
          "float64 (n_features, 256): mean of a bin by code, less the centre, over the scale");
  nb::class_<LinearChannels>(m, "LinearChannels",
                             "Derivatives that splits are judged by where leaves will be linear.")
      .def(nb::init<const LinearTable&>(), nb::arg("table"), nb::keep_alive<1, 2>())
      .def("renew", &renew, nb::arg("g"), nb::arg("h").none(), nb::arg("kind"),
           nb::arg("fit") = "half_additive", nb::arg("max_regressors") = 5, nb::arg("linear_lambda") = 1.0,
           nb::arg("rows") = nb::none(), nb::arg("multiplier") = nb::none(), nb::arg("n_threads") = 1,
           "Takes g (n, K) and h: None (unit) or (n, 1) (shared).");
  m.def("linear_leaves", &fit, nb::arg("tree"), nb::arg("g"), nb::arg("h").none(), nb::arg("leaf_of_row"),
        nb::arg("features").noconvert(), nb::arg("table"), nb::arg("reg_lambda") = 1.0,
        nb::arg("linear_lambda") = 1.0, nb::arg("max_regressors") = 5, nb::arg("clip") = true,
        nb::arg("learning_rate") = 1.0, nb::arg("rows") = nb::none(), nb::arg("multiplier") = nb::none(),
        nb::arg("n_threads") = 1,
        "LinearLeaves on the first features that each leaf's path splits on (GBDT-PL eq. 6), times the "
        "learning rate.");
}

}  // namespace polyleaf
