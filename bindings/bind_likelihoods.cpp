// Likelihoods at the border: checks of shapes, then the core with the GIL released.
#include <nanobind/stl/optional.h>

#include <optional>

#include "arrays.h"
#include "context_caster.h"
#include "conversions.h"
#include "losses/likelihoods.h"

namespace polyleaf {
namespace {

void likelihood_derivatives(const Likelihood& likelihood, const Array2<const float>& raw,
                            const Array2<const float>& target,
                            const std::optional<Array2<const float>>& weight,
                            const Array1<const float>& offset, const Array2<float>& g,
                            const Array2<float>& h, const Context& context) {
  const size_t n = target.shape(0), scores = 2 * target.shape(1);
  require(raw.shape(0) == n && raw.shape(1) == scores,
          "raw must have two columns for each of target.");
  require(offset.shape(0) == scores, "offset must have one value for each column of raw.");
  require(g.shape(0) == n && g.shape(1) == scores, "g must be shaped like raw.");
  require(h.shape(0) == n && h.shape(1) == scores, "h must be shaped like raw.");
  require(!weight || weight->shape(0) == n, "weight must have one row for each row of raw.");
  LikelihoodInput input;
  input.n_rows = static_cast<int64_t>(n);
  input.n_targets = static_cast<int64_t>(target.shape(1));
  input.raw = raw.data();
  input.target = target.data();
  input.offset = offset.data();
  if (weight) {
    input.weight = weight->data();
    input.weight_columns = static_cast<int64_t>(weight->shape(1));
  }
  nb::gil_scoped_release release;
  derivatives(likelihood, input, g.data(), h.data(), context);
}

template <void (*LikelihoodTable::*kFunction)(const float*, float*, int64_t)>
auto elementary(const Array1<const float>& x) {
  NewArray<float> out({x.shape(0)});
  (POLYLEAF_SELECT(likelihood_kernels).*kFunction)(x.data(), out.data,
                                                   static_cast<int64_t>(x.shape(0)));
  return out.array;
}

}  // namespace

void bind_likelihoods(nb::module_& m) {
  bind_loss<Likelihood>(m, "Likelihood", "A likelihood of two scores a target.");
  m.def("likelihood_derivatives", &likelihood_derivatives, nb::arg("likelihood"),
        nb::arg("raw").noconvert(), nb::arg("target").noconvert(),
        nb::arg("weight").noconvert().none(), nb::arg("offset").noconvert(),
        nb::arg("g").noconvert(), nb::arg("h").noconvert(), nb::arg("n_threads"),
        "Gradient and Fisher's information of a likelihood, (n, 2 T), written into g and h.");
  m.def("_digamma_excess", &elementary<&LikelihoodTable::digamma_excess>, nb::arg("x").noconvert(),
        "The kernels' digamma(x) - ln x, for tests.");
  m.def("_trigamma_excess", &elementary<&LikelihoodTable::trigamma_excess>,
        nb::arg("x").noconvert(), "The kernels' x (x trigamma(x) - 1), for tests.");
}

}  // namespace polyleaf
