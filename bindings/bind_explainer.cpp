// Explainer for Python: checked arrays in, contributions added to the caller's array.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "context_caster.h"
#include "conversions.h"
#include "explain/explainer.h"
#include "forest/forest.h"
#include "leaf_blocks.h"

namespace polyleaf {
namespace {

using AnyOut = nb::ndarray<float, nb::c_contig, nb::device::cpu>;

void make(Explainer* self, const Forest& forest, int32_t first, std::optional<int32_t> last,
          const Optional2<const uint8_t>& background, const AnyFeatures& features,
          const Context& context) {
  const TreeRange range{first, last.value_or(forest.n_trees())};
  nb::gil_scoped_release release;
  if (background)
    new (self)
        Explainer(forest, range, code_matrix(*background), feature_matrix(features), context);
  else
    new (self) Explainer(forest, range);
}

ExplainedOutputs checked_outputs(const Explainer& explainer, const Array1<const int32_t>& outputs,
                                 const Optional1<const double>& scale) {
  std::vector<bool> seen(static_cast<size_t>(explainer.n_outputs()), false);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int32_t k = outputs.data()[i];
    require(k >= 0 && k < explainer.n_outputs(),
            "There is no output " + std::to_string(k) + " among the " +
                std::to_string(explainer.n_outputs()) + " outputs.");
    require(!seen[k], "Output " + std::to_string(k) + " is asked for twice.");
    seen[k] = true;
  }
  require(!scale || scale->size() == outputs.size(),
          "`scale` must have one number for each of the outputs.");
  return {outputs.data(), static_cast<int64_t>(outputs.size()), scale ? scale->data() : nullptr};
}

nb::ndarray<nb::numpy, double> expected_values(const Explainer& explainer,
                                               const Array1<const int32_t>& outputs) {
  const ExplainedOutputs chosen = checked_outputs(explainer, outputs, {});
  NewArray<double> result({outputs.size()});
  {
    nb::gil_scoped_release release;
    explainer.expected_values(chosen, result.data);
  }
  return result.array;
}

void explain(const Explainer& explainer, const Array2<const uint8_t>& codes, const AnyOut& out,
             const Array1<const int32_t>& outputs, const Optional1<const double>& scale,
             bool interactions, const Context& context, const AnyFeatures& features) {
  const ExplainedOutputs chosen = checked_outputs(explainer, outputs, scale);
  std::vector<size_t> shape{codes.shape(1)};
  shape.insert(shape.end(), interactions ? 2 : 1, codes.shape(0));
  shape.push_back(outputs.size());
  bool fits = out.ndim() == shape.size();
  for (size_t i = 0; fits && i < shape.size(); ++i) fits = out.shape(i) == shape[i];
  require(fits, interactions ? "`out` must have shape (n_rows, n_features, n_features, outputs)."
                             : "`out` must have shape (n_rows, n_features, outputs).");
  nb::gil_scoped_release release;
  explainer.explain(code_matrix(codes), feature_matrix(features), chosen, interactions, out.data(),
                    context);
}

}  // namespace

void bind_explainer(nb::module_& m) {
  nb::class_<Explainer>(
      m, "Explainer",
      "Contributions of features to the raw sums of trees first .. last - 1: Shapley's values.\n"
      "Without a background (codes (n_features, n_rows), and features where leaves are linear)\n"
      "what is not known of a row is as the counts of the nodes say.")
      .def("__init__", &make, nb::arg("forest"), nb::arg("first") = 0, nb::arg("last") = nb::none(),
           nb::arg("background") = nb::none(), nb::arg("features").noconvert() = nb::none(),
           nb::arg("n_threads") = 1)
      .def("expected_values", &expected_values, nb::arg("outputs"),
           "float64 (n,): the sums of the outputs int32 (n,) of a row of which nothing is known.")
      .def("explain", &explain, nb::arg("codes"), nb::arg("out").noconvert(), nb::arg("outputs"),
           nb::arg("scale") = nb::none(), nb::arg("interactions") = false, nb::arg("n_threads") = 1,
           nb::arg("features").noconvert() = nb::none(),
           "out float32 (n_rows, n_features, n) += contributions to the outputs, which differ, "
           "times scale\n"
           "float64 (n,); with interactions (n_rows, n_features, n_features, n).");
}

}  // namespace polyleaf
