// Bindings of losses: check shapes, then call the core without the GIL.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <string>

#include "arrays.h"
#include "base/elementary_functions.h"
#include "base/exact_totals.h"
#include "context_caster.h"
#include "conversions.h"
#include "leaves/leaf_block.h"
#include "leaves/quantile.h"
#include "losses/likelihoods.h"
#include "losses/objectives.h"

namespace polyleaf {

namespace {

using FloatMatrix = Array2<const float>;
using OptionalMatrix = std::optional<FloatMatrix>;

int64_t rows(const auto& array) {
  return static_cast<int64_t>(array.shape(0));
}
int64_t columns(const auto& array) {
  return static_cast<int64_t>(array.shape(1));
}

// Return the part of the input that element-wise and class losses share.
LossInput make_loss_input(const FloatMatrix& raw, const OptionalMatrix& weight,
                          const Array1<const float>& offset) {
  LossInput input;
  input.n_rows = rows(raw);
  input.n_outputs = columns(raw);
  input.raw = raw.data();
  require(rows(offset) == input.n_outputs, "offset must have one value for each output.");
  input.offset = offset.data();
  if (weight) {
    require(rows(*weight) == input.n_rows, "weight must have one row for each row of raw.");
    input.weight = weight->data();
    input.weight_columns = columns(*weight);
  }
  return input;
}

LossInput element_input(const FloatMatrix& raw, const FloatMatrix& target,
                        const OptionalMatrix& weight, const Array1<const float>& offset,
                        const Array1<const float>& parameter) {
  LossInput input = make_loss_input(raw, weight, offset);
  require(rows(target) == input.n_rows && columns(target) == input.n_outputs,
          "target must be shaped like raw.");
  require(rows(parameter) == input.n_outputs, "parameter must have one value for each output.");
  input.target = target.data();
  input.parameter = parameter.data();
  return input;
}

// The target of a class loss: class ids, or shares of the classes.
void set_classes(const Array1<const int32_t>& label, LossInput& input) {
  require(rows(label) == input.n_rows, "target must have one class id for each row of raw.");
  input.label = label.data();
}

void set_classes(const FloatMatrix& shares, LossInput& input) {
  require(rows(shares) == input.n_rows && columns(shares) == input.n_outputs,
          "target must be shaped like raw.");
  input.shares = shares.data();
}

template <class T>
LossInput class_input(const FloatMatrix& raw, const T& target, const OptionalMatrix& weight,
                      const Array1<const float>& offset) {
  LossInput input = make_loss_input(raw, weight, offset);
  set_classes(target, input);
  return input;
}

void loss_derivatives(const Loss& loss, const FloatMatrix& raw, const FloatMatrix& target,
                      const OptionalMatrix& weight, const Array1<const float>& offset,
                      const Array1<const float>& parameter, const Array2<float>& g,
                      const Optional2<float>& h, const Context& context) {
  const LossInput input = element_input(raw, target, weight, offset, parameter);
  require(rows(g) == input.n_rows && columns(g) == input.n_outputs, "g must be shaped like raw.");
  require(!h || rows(*h) == input.n_rows, "h must have one row for each row of raw.");
  nb::gil_scoped_release release;
  derivatives(loss, input, g.data(), h ? h->data() : nullptr, h ? columns(*h) : 0, context);
}

double loss_mean(const Loss& loss, const FloatMatrix& raw, const FloatMatrix& target,
                 const OptionalMatrix& weight, const Array1<const float>& offset,
                 const Array1<const float>& parameter, const Context& context) {
  const LossInput input = element_input(raw, target, weight, offset, parameter);
  nb::gil_scoped_release release;
  return mean_loss(loss, input, context);
}

void require_like(const Array2<float>& array, const FloatMatrix& raw, int64_t n_columns,
                  const char* message) {
  require(rows(array) == rows(raw) && columns(array) == n_columns, message);
}

template <class T>
void class_loss_derivatives(const ClassLoss& loss, const FloatMatrix& raw, const T& target,
                            const OptionalMatrix& weight, const Array1<const float>& offset,
                            const Array2<float>& g, const Array2<float>& h, const Context& context,
                            const Optional1<const int32_t>& leaf_of_row,
                            const OptionalMatrix& leaves) {
  LossInput input = class_input(raw, target, weight, offset);
  if (leaf_of_row && leaves) {
    require(rows(*leaf_of_row) == input.n_rows && columns(*leaves) == input.n_outputs,
            "leaf_of_row needs a leaf for each row of raw, and leaves a column for each of raw's.");
    check_leaf_ids({leaf_of_row->data(), leaf_of_row->size()}, static_cast<int32_t>(rows(*leaves)),
                   context);
    input.leaf_of_row = leaf_of_row->data();
    input.leaves = leaves->data();
  }
  require_like(g, raw, input.n_outputs, "g must be shaped like raw.");
  require_like(h, raw, input.n_outputs, "h must be shaped like raw.");
  nb::gil_scoped_release release;
  derivatives(loss, input, g.data(), h.data(), context);
}

template <class T>
void class_loss_hessians(const ClassLoss& loss, const FloatMatrix& raw, const T& target,
                         const OptionalMatrix& weight, const Array1<const float>& offset,
                         const Array2<float>& g, const Array2<float>& h, const Context& context) {
  const LossInput input = class_input(raw, target, weight, offset);
  require_like(g, raw, input.n_outputs, "g must be shaped like raw.");
  require_like(h, raw, packed_size(input.n_outputs),
               "h must have K (K + 1) / 2 columns for K outputs.");
  nb::gil_scoped_release release;
  hessians(loss, input, g.data(), h.data(), context);
}

template <class T>
double class_loss_mean(const ClassLoss& loss, const FloatMatrix& raw, const T& target,
                       const OptionalMatrix& weight, const Array1<const float>& offset,
                       const Context& context) {
  const LossInput input = class_input(raw, target, weight, offset);
  nb::gil_scoped_release release;
  return mean_loss(loss, input, context);
}

// The functions of class losses, for one type of target.
template <class T>
void bind_class_loss(nb::module_& m) {
  m.def("class_derivatives", &class_loss_derivatives<T>, nb::arg("loss"),
        nb::arg("raw").noconvert(), nb::arg("target").noconvert(),
        nb::arg("weight").noconvert().none(), nb::arg("offset").noconvert(),
        nb::arg("g").noconvert(), nb::arg("h").noconvert(), nb::arg("n_threads"),
        nb::arg("leaf_of_row").noconvert() = nb::none(), nb::arg("leaves").noconvert() = nb::none(),
        "Write the gradients and diagonal Hessians of a class loss into g and h, at raw scores\n"
        "or, with a tree, at raw + leaves[leaf_of_row].");
  m.def("class_hessians", &class_loss_hessians<T>, nb::arg("loss"), nb::arg("raw").noconvert(),
        nb::arg("target").noconvert(), nb::arg("weight").noconvert().none(),
        nb::arg("offset").noconvert(), nb::arg("g").noconvert(), nb::arg("h").noconvert(),
        nb::arg("n_threads"),
        "Write the gradients and packed Hessians (n, K (K + 1) / 2) of a class loss into g and h.");
  m.def("class_mean", &class_loss_mean<T>, nb::arg("loss"), nb::arg("raw").noconvert(),
        nb::arg("target").noconvert(), nb::arg("weight").noconvert().none(),
        nb::arg("offset").noconvert(), nb::arg("n_threads"),
        "Return the weighted mean of a class loss of class ids (n,), or of shares (n, K).");
}

template <class T>
void check_weight(const Array2<const T>& values, const OptionalMatrix& weight) {
  if (!weight) return;
  require(rows(*weight) == rows(values), "weight must have one row for each row of values.");
  require(columns(*weight) == 1 || columns(*weight) == columns(values),
          "weight must have one column, or one for each column of values.");
}

template <class T>
auto totals(const Array2<const T>& values, const OptionalMatrix& weight,
            const Optional1<const int32_t>& group, int64_t n_groups, const Context& context) {
  check_weight(values, weight);
  require(n_groups >= 1, "n_groups must be at least 1.");
  TotalsInput input{rows(values), columns(values)};
  if (weight) input.weight = weight->data(), input.weight_columns = columns(*weight);
  if (group) {
    require(rows(*group) == rows(values), "group must have one number for each row of values.");
    input.group = group->data();
    input.n_groups = n_groups;
    const auto [least, most] = std::minmax_element(input.group, input.group + input.n_rows);
    require(input.n_rows == 0 || (*least >= 0 && *most < n_groups), "A group is out of range.");
  }
  NewArray<double> out({2, static_cast<size_t>(input.n_groups), values.shape(1)});
  {
    nb::gil_scoped_release release;
    exact_totals(values.data(), input, out.data, context);
  }
  return out.array;
}

template <class T>
auto quantiles(const Array2<const T>& values, const OptionalMatrix& weight,
               const Optional1<const int32_t>& leaf_of_row, int32_t n_leaves,
               const Optional1<const uint32_t>& used, const Array1<const double>& level,
               const Context& context) {
  check_weight(values, weight);
  require(n_leaves >= 1, "n_leaves must be at least 1.");
  require(rows(level) == columns(values), "level must have one value for each column of values.");
  const RowSample sample = make_row_sample(rows(values), used, std::nullopt, context);
  if (leaf_of_row) {
    require(rows(*leaf_of_row) == rows(values),
            "leaf_of_row must have one id for each row of values.");
    const int32_t* leaf = leaf_of_row->data();
    require(std::all_of(leaf, leaf + rows(values), [&](int32_t id) { return id < n_leaves; }),
            "A leaf id is out of range.");
  }
  NewArray<T> out({static_cast<size_t>(n_leaves), values.shape(1)});
  {
    nb::gil_scoped_release release;
    MatrixView<const float> weights;
    if (weight)
      weights = {non_null_data(weight->data(), weight->size()), rows(*weight), columns(*weight)};
    fit_quantile_leaves(matrix_view(values), weights, sample,
                        leaf_of_row ? leaf_of_row->data() : nullptr, span(level), context,
                        MatrixView<T>(out.data, n_leaves, columns(values)));
  }
  return out.array;
}

// Bind a function of float64 numbers and arrays.
template <double (*kFunction)(double)>
void bind_rounded(nb::module_& m, const char* name, const char* description) {
  m.def(name, kFunction, nb::arg("x").noconvert());
  m.def(
      name,
      [](const nb::ndarray<const double, nb::c_contig, nb::device::cpu>& x) {
        double* out = new double[x.size() + 1];
        std::transform(x.data(), x.data() + x.size(), out, kFunction);
        nb::capsule owner(out, [](void* p) noexcept { delete[] static_cast<double*>(p); });
        const std::vector<size_t> shape(x.shape_ptr(), x.shape_ptr() + x.ndim());
        return nb::ndarray<nb::numpy, double>(out, shape.size(), shape.data(), owner);
      },
      nb::arg("x"), description);
}

template <void (*ObjectiveKernels::*kFunction)(const float*, float*, int64_t)>
auto elementary(const Array1<const float>& x) {
  NewArray<float> out({x.shape(0)});
  (POLYLEAF_SELECT(objective_kernels).*kFunction)(x.data(), out.data, rows(x));
  return out.array;
}

}  // namespace

void bind_objectives(nb::module_& m) {
  bind_loss<Loss>(m, "Loss", "Element-wise loss.")
      .def_prop_ro(
          "unit_hessian", [](const Loss& loss) { return loss.kernels().unit_hessian; },
          "Whether the Hessian of unweighted rows is 1 for every output.");
  bind_loss<ClassLoss>(m, "ClassLoss", "Loss for single-label classification.");

  m.def("loss_derivatives", &loss_derivatives, nb::arg("loss"), nb::arg("raw").noconvert(),
        nb::arg("target").noconvert(), nb::arg("weight").noconvert().none(),
        nb::arg("offset").noconvert(), nb::arg("parameter").noconvert(), nb::arg("g").noconvert(),
        nb::arg("h").noconvert().none(), nb::arg("n_threads"),
        "Write the gradients and Hessians of an element-wise loss into g and h.");
  m.def("loss_mean", &loss_mean, nb::arg("loss"), nb::arg("raw").noconvert(),
        nb::arg("target").noconvert(), nb::arg("weight").noconvert().none(),
        nb::arg("offset").noconvert(), nb::arg("parameter").noconvert(), nb::arg("n_threads"),
        "Return the weighted mean of an element-wise loss.");
  bind_class_loss<Array1<const int32_t>>(m);
  bind_class_loss<FloatMatrix>(m);
  m.def("exact_totals", &totals<float>, nb::arg("values").noconvert(),
        nb::arg("weight").noconvert().none(), nb::arg("group").noconvert().none(),
        nb::arg("n_groups"), nb::arg("n_threads"));
  m.def("exact_totals", &totals<double>, nb::arg("values").noconvert(),
        nb::arg("weight").noconvert().none(), nb::arg("group").noconvert().none(),
        nb::arg("n_groups"), nb::arg("n_threads"),
        "Return the sums of weight * value and of weight over the rows of each group.\n\n"
        "The result, float64 (2, n_groups, n_columns), does not depend on the order of the rows.");
  m.def("fit_quantile_leaves", &quantiles<float>, nb::arg("values").noconvert(),
        nb::arg("weight").noconvert().none(), nb::arg("leaf_of_row").noconvert().none(),
        nb::arg("n_leaves"), nb::arg("rows").noconvert().none(), nb::arg("level").noconvert(),
        nb::arg("n_threads"));
  m.def("fit_quantile_leaves", &quantiles<double>, nb::arg("values").noconvert(),
        nb::arg("weight").noconvert().none(), nb::arg("leaf_of_row").noconvert().none(),
        nb::arg("n_leaves"), nb::arg("rows").noconvert().none(), nb::arg("level").noconvert(),
        nb::arg("n_threads"),
        "Return the lower weighted quantile of each column in each leaf, (n_leaves, n_columns).");
  bind_rounded<rounded_exp>(m, "exp", "Return exp(x) in float64, correctly rounded.");
  bind_rounded<rounded_log>(m, "log", "Return ln(x) in float64, correctly rounded.");
  bind_rounded<rounded_log1p>(m, "log1p", "Return ln(1 + x) in float64, correctly rounded.");
  bind_rounded<digamma_excess>(m, "digamma_excess", "Return digamma(x) - ln x in float64.");
  m.def("_exp", &elementary<&ObjectiveKernels::exp>, nb::arg("x").noconvert(),
        "Return exp(x) as the kernels compute it, for tests.");
  m.def("_log", &elementary<&ObjectiveKernels::log>, nb::arg("x").noconvert(),
        "Return log(x) as the kernels compute it, for tests.");
}

// Bindings of likelihoods: check shapes, then call the core without the GIL.

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
  bind_loss<Likelihood>(m, "Likelihood", "Likelihood with two scores per target.");
  m.def("likelihood_derivatives", &likelihood_derivatives, nb::arg("likelihood"),
        nb::arg("raw").noconvert(), nb::arg("target").noconvert(),
        nb::arg("weight").noconvert().none(), nb::arg("offset").noconvert(),
        nb::arg("g").noconvert(), nb::arg("h").noconvert(), nb::arg("n_threads"),
        "Write the gradients and Fisher information of a likelihood, (n, 2 T), into g and h.");
  m.def("_digamma_excess", &elementary<&LikelihoodTable::digamma_excess>, nb::arg("x").noconvert(),
        "Return digamma(x) - ln x as the kernels compute it, for tests.");
  m.def("_trigamma_excess", &elementary<&LikelihoodTable::trigamma_excess>,
        nb::arg("x").noconvert(),
        "Return x (x trigamma(x) - 1) as the kernels compute it, for tests.");
}

}  // namespace polyleaf
