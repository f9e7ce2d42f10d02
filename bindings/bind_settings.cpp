// Bindings of settings: fields are keyword-only and have no defaults.
#include <nanobind/stl/string.h>

#include <algorithm>

#include "arrays.h"
#include "base/settings.h"

namespace polyleaf {
namespace {

void init_split_config(SplitConfig* self, double reg_lambda, double reg_alpha,
                       double max_delta_step, double min_split_gain, double min_child_weight,
                       int min_child_samples, int max_cat_to_onehot, double cat_smooth,
                       int block_size, int leaf_k, bool shared_support) {
  require(leaf_k >= 0, "leaf_k must not be negative.");
  require(reg_lambda >= 0 && reg_alpha >= 0 && max_delta_step >= 0 && cat_smooth >= 0,
          "reg_lambda, reg_alpha, max_delta_step and cat_smooth must not be negative.");
  new (self) SplitConfig{.reg_lambda = static_cast<float>(reg_lambda),
                         .reg_alpha = static_cast<float>(reg_alpha),
                         .max_delta_step = static_cast<float>(max_delta_step),
                         .min_child_weight = static_cast<float>(min_child_weight),
                         .min_child_samples = std::max(1, min_child_samples),
                         .min_split_gain = min_split_gain,
                         .max_cat_to_onehot = max_cat_to_onehot,
                         .cat_smooth = cat_smooth,
                         .block_size = block_size,
                         .leaf_k = leaf_k,
                         .shared_support = shared_support};
}

void init_grow_config(GrowConfig* self, const SplitConfig& split, int max_leaves, int max_depth,
                      bool level_wise, bool post_prune, double colsample_bynode, uint64_t seed,
                      size_t histogram_memory, const Optional1<const float>& factors) {
  require(max_leaves >= 1, "max_leaves must be at least 1.");
  require(colsample_bynode > 0 && colsample_bynode <= 1, "colsample_bynode must be in (0, 1].");
  new (self) GrowConfig{.split = split,
                        .max_leaves = max_leaves,
                        .max_depth = max_depth,
                        .level_wise = level_wise,
                        .post_prune = post_prune,
                        .colsample_bynode = colsample_bynode,
                        .seed = seed,
                        .histogram_memory = histogram_memory,
                        .factors = {}};
  if (!factors) return;
  self->factors.assign(factors->data(), factors->data() + factors->shape(0));
  for (const float factor : self->factors)
    require(factor > 0 && factor <= 1, "factors must be in (0, 1].");
}

void init_leaf_config(LeafConfig* self, double reg_lambda, double reg_alpha, double max_delta_step,
                      double learning_rate, int block_size) {
  require(reg_lambda >= 0 && reg_alpha >= 0 && max_delta_step >= 0,
          "reg_lambda, reg_alpha and max_delta_step must not be negative.");
  new (self) LeafConfig{.reg_lambda = reg_lambda,
                        .reg_alpha = reg_alpha,
                        .max_delta_step = max_delta_step,
                        .learning_rate = learning_rate,
                        .block_size = block_size};
}

void init_linear_leaf_config(LinearLeafConfig* self, double reg_lambda, double linear_lambda,
                             double learning_rate, int max_regressors, bool clip) {
  new (self) LinearLeafConfig{.reg_lambda = reg_lambda,
                              .linear_lambda = linear_lambda,
                              .learning_rate = learning_rate,
                              .max_regressors = max_regressors,
                              .clip = clip};
}

void init_linear_config(LinearConfig* self, const std::string& fit, int max_regressors,
                        double linear_lambda) {
  require(fit == "half_additive" || fit == "full", "fit must be half_additive or full.");
  require(max_regressors >= 0 && linear_lambda >= 0,
          "max_regressors and linear_lambda must not be negative.");
  new (self) LinearConfig{
      .full = fit == "full", .max_regressors = max_regressors, .linear_lambda = linear_lambda};
}

}  // namespace

void bind_settings(nb::module_& m) {
  nb::class_<SplitConfig>(m, "SplitConfig", "Configuration of splits.")
      .def("__init__", &init_split_config, nb::kw_only(), nb::arg("reg_lambda"),
           nb::arg("reg_alpha"), nb::arg("max_delta_step"), nb::arg("min_split_gain"),
           nb::arg("min_child_weight"), nb::arg("min_child_samples"), nb::arg("max_cat_to_onehot"),
           nb::arg("cat_smooth"), nb::arg("block_size"), nb::arg("leaf_k"),
           nb::arg("shared_support"));
  nb::class_<GrowConfig>(m, "GrowConfig", "Configuration of tree growth.")
      .def("__init__", &init_grow_config, nb::kw_only(), nb::arg("split"), nb::arg("max_leaves"),
           nb::arg("max_depth"), nb::arg("level_wise"), nb::arg("post_prune"),
           nb::arg("colsample_bynode"), nb::arg("seed"), nb::arg("histogram_memory"),
           nb::arg("factors").none());
  nb::class_<LeafConfig>(m, "LeafConfig", "Regularisation of leaf values.")
      .def("__init__", &init_leaf_config, nb::kw_only(), nb::arg("reg_lambda"),
           nb::arg("reg_alpha"), nb::arg("max_delta_step"), nb::arg("learning_rate"),
           nb::arg("block_size"));
  nb::class_<LinearLeafConfig>(m, "LinearLeafConfig", "Regularisation of linear leaves.")
      .def("__init__", &init_linear_leaf_config, nb::kw_only(), nb::arg("reg_lambda"),
           nb::arg("linear_lambda"), nb::arg("learning_rate"), nb::arg("max_regressors"),
           nb::arg("clip"));
  nb::class_<LinearConfig>(m, "LinearConfig",
                           "Configuration of splits that anticipate linear leaves.")
      .def("__init__", &init_linear_config, nb::kw_only(), nb::arg("fit"),
           nb::arg("max_regressors"), nb::arg("linear_lambda"), "`fit`: half_additive or full.");
}

}  // namespace polyleaf
