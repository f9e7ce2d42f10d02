// The Python module `polyleaf._core`: one bind_* function for each part of the core.
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "base/isa.h"
#include "base/parallel.h"

namespace polyleaf {
void bind_binning(nb::module_& m);
void bind_device(nb::module_& m);
void bind_likelihoods(nb::module_& m);
void bind_objectives(nb::module_& m);
void bind_fitters(nb::module_& m);
void bind_grower(nb::module_& m);
void bind_leaf_blocks(nb::module_& m);
void bind_linear(nb::module_& m);
void bind_explainer(nb::module_& m);
void bind_predict(nb::module_& m);
void bind_query_losses(nb::module_& m);
void bind_row_predictor(nb::module_& m);
void bind_searches(nb::module_& m);
void bind_settings(nb::module_& m);
void bind_sketch(nb::module_& m);
void bind_sparse(nb::module_& m);
void bind_device_parts(nb::module_& m);
void bind_csr_product(nb::module_& m);
}  // namespace polyleaf

NB_MODULE(_core, m) {
  nb::set_leak_warnings(false);
  m.def(
      "isa", [] { return std::string(polyleaf::isa_name(polyleaf::active_isa())); },
      "Return the name of the instruction set in use: baseline, avx2 or avx512.");
  m.def("available_isas", &polyleaf::available_isas,
        "Return the instruction sets that this CPU and this build have.");
  m.def(
      "start_timing",
      [] {
        for (auto& nanoseconds : polyleaf::phase_times.nanoseconds) nanoseconds = 0;
        polyleaf::phase_times.is_on = true;
      },
      "Measure the phases of tree building from now on, in all threads of the process.");
  m.def(
      "stop_timing",
      [] {
        polyleaf::phase_times.is_on = false;
        const auto& nanoseconds = polyleaf::phase_times.nanoseconds;
        const char* names[polyleaf::kPhases] = {"histograms", "split finding", "partition"};
        std::map<std::string, double> seconds;
        for (int i = 0; i < polyleaf::kPhases; ++i)
          seconds[names[i]] = 1e-9 * static_cast<double>(nanoseconds[i].load());
        return seconds;
      },
      "Stop measuring, and return the seconds of each phase, summed over threads.");
  polyleaf::bind_binning(m);
  polyleaf::bind_objectives(m);
  polyleaf::bind_likelihoods(m);
  polyleaf::bind_query_losses(m);
  polyleaf::bind_settings(m);
  polyleaf::bind_device(m);
  polyleaf::bind_grower(m);
  polyleaf::bind_leaf_blocks(m);
  polyleaf::bind_linear(m);
  polyleaf::bind_explainer(m);
  polyleaf::bind_fitters(m);
  polyleaf::bind_predict(m);
  polyleaf::bind_row_predictor(m);
  polyleaf::bind_searches(m);
  polyleaf::bind_device_parts(m);
  polyleaf::bind_sketch(m);
  polyleaf::bind_sparse(m);
  polyleaf::bind_csr_product(m);
}
