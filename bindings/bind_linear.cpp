// Splits that look ahead to linear leaves, at the border: what features are worth as regressors,
// and channels.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "arrays.h"
#include "context_caster.h"
#include "conversions.h"
#include "search/linear_gradients.h"

namespace polyleaf {
namespace {

void init_table(LinearTable* self, const Bins& bins, const Array2<const float>& features,
                const Optional1<const float>& weight, const Context& context) {
  require(static_cast<int>(features.shape(0)) == bins.n_features() &&
              static_cast<int64_t>(features.shape(1)) == bins.n_rows(),
          "features must have one row for each feature and one column for each row of the bins.");
  require(!weight || static_cast<int64_t>(weight->size()) == bins.n_rows(),
          "weight needs one entry per row.");
  nb::gil_scoped_release release;
  new (self) LinearTable(bins, features.data(), weight ? weight->data() : nullptr, context);
}

void renew(LinearGradients& channels, const Array2<const float>& g, const Optional2<const float>& h,
           const std::string& kind, const LinearConfig& config,
           const Optional1<const uint32_t>& rows, const Optional1<const float>& multiplier,
           const Context& context) {
  const bool diagonal = kind == "diagonal";
  require(kind == "unit" || kind == "shared" || diagonal,
          "The Hessian must be unit, shared or diagonal.");
  require(h.has_value() == (kind != "unit"), "h is needed exactly for Hessian that is not unit.");
  require(g.shape(1) >= 1, "There must be at least one output.");
  require(!h || (h->shape(0) == g.shape(0) && h->shape(1) == (diagonal ? g.shape(1) : 1)),
          "h must have g's rows, and one column for all outputs or, where diagonal, one for each.");
  require(!config.full || config.max_regressors <= kMaxRegressors,
          "The full fit takes at most 8 regressors.");
  require(!config.full || !diagonal, "The full fit needs one Hessian for all outputs.");
  const RowSample sample =
      make_row_sample(static_cast<int64_t>(g.shape(0)), rows, multiplier, context);
  nb::gil_scoped_release release;
  channels.use(g.data(), h ? h->data() : nullptr, static_cast<int>(g.shape(1)),
               !h                           ? HessianKind::unit
               : diagonal && g.shape(1) > 1 ? HessianKind::diagonal
                                            : HessianKind::shared,
               sample, config, context);
}

}  // namespace

void bind_linear(nb::module_& m) {
  nb::class_<LinearTable>(m, "LinearTable",
                          "What features are worth as regressors: centre, scale and bin means.")
      .def("__init__", &init_table, nb::arg("bins"), nb::arg("features").noconvert(),
           nb::arg("weight").none(), nb::arg("n_threads"),
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
          "float64 (n_features,): weighted standard deviation; 0 where a feature can be no "
          "regressor")
      .def_prop_ro(
          "means",
          [](nb::handle self) {
            const auto& table = nb::cast<const LinearTable&>(self);
            return view<double>(table.means(0), {table.scales().size(), 256}, self);
          },
          "float64 (n_features, 256): mean of a bin by code, less the centre, over the scale");
  nb::class_<LinearGradients>(m, "LinearGradients",
                              "Derivatives that splits are judged by where leaves will be linear.")
      .def(nb::init<const LinearTable&>(), nb::arg("table"), nb::keep_alive<1, 2>())
      .def("renew", &renew, nb::arg("g"), nb::arg("h").none(), nb::arg("kind"), nb::arg("config"),
           nb::arg("rows").none(), nb::arg("multiplier").none(), nb::arg("n_threads"),
           "Takes g (n, K) and h: None (unit) or (n, 1) (shared).");
}

}  // namespace polyleaf
