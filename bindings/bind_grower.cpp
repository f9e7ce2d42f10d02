// Bins, Channels, Grower and leaf fitting at the border.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <optional>
#include <stdexcept>
#include <string>

#include "../cpp/grower.h"
#include "../cpp/leaves/newton.h"
#include "../cpp/parallel.h"
#include "arrays.h"

namespace polyleaf {
namespace {

template <class T>
using Optional1 = std::optional<Array1<T>>;
template <class T>
using Optional2 = std::optional<Array2<T>>;

void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

void require_leaf_ids(const Array1<const int32_t>& leaf_of_row, int32_t n_leaves, int n_threads) {
  const int32_t* ids = leaf_of_row.data();
  const int64_t n = static_cast<int64_t>(leaf_of_row.size()), block = 1 << 16;
  std::atomic<bool> bad{false};
  parallel_for(n_threads, Block::count(n, block), [&](int64_t task, int) {
    const Block rows(n, block, task);
    uint32_t largest = 0;  // a negative id is a large unsigned one
    for (int64_t i = rows.begin; i < rows.end; ++i)
      largest = std::max(largest, static_cast<uint32_t>(ids[i]));
    if (largest >= static_cast<uint32_t>(n_leaves)) bad = true;
  });
  require(!bad, "A leaf id is out of range.");
}

RowSample sample_of(int64_t n_all, const Optional1<const uint32_t>& rows,
                    const Optional1<const float>& multiplier) {
  require(n_all >= 1, "There must be at least one row.");
  RowSample sample;
  sample.n_all = n_all;
  if (rows) {
    require(rows->size() >= 1, "A row sample must not be empty.");
    sample.rows = rows->data();
    sample.n_rows = static_cast<int64_t>(rows->size());
    for (int64_t i = 0; i < sample.n_rows; ++i)
      require(sample.rows[i] < n_all && (i == 0 || sample.rows[i - 1] < sample.rows[i]),
              "A row sample must be ascending row numbers below the number of rows.");
  }
  if (multiplier) {
    require(static_cast<int64_t>(multiplier->size()) == n_all, "A multiplier needs one entry per row.");
    sample.multiplier = multiplier->data();
  }
  return sample;
}

Curvature curvature_of(const std::string& kind) {
  if (kind == "unit") return Curvature::unit;
  if (kind == "shared") return Curvature::shared;
  if (kind == "diagonal") return Curvature::diagonal;
  throw std::invalid_argument("The curvature of channels must be unit, shared or diagonal, not '" + kind +
                              "'.");
}

void quantise(Channels& channels, Array2<const float> g, const Optional2<const float>& h,
              const std::string& kind, const Optional1<const uint32_t>& rows,
              const Optional1<const float>& multiplier, int n_threads) {
  const Curvature curvature = curvature_of(kind);
  const int n_outputs = static_cast<int>(g.shape(1));
  require(n_outputs >= 1, "There must be at least one output.");
  require((curvature == Curvature::unit) == !h.has_value(),
          "h is needed exactly for shared and diagonal curvature.");
  if (h) {
    require(h->shape(0) == g.shape(0), "g and h must have the same number of rows.");
    require(h->shape(1) == (curvature == Curvature::shared ? 1 : g.shape(1)),
            "h must have one column for shared curvature, one per output for diagonal curvature.");
  }
  const RowSample sample = sample_of(static_cast<int64_t>(g.shape(0)), rows, multiplier);
  nb::gil_scoped_release release;
  channels.quantise(g.data(), h ? h->data() : nullptr, n_outputs, curvature, sample, std::max(1, n_threads));
}

nb::ndarray<nb::numpy, float> steps(const float* from, size_t n) {
  NewArray<float> out({n});
  std::copy(from, from + n, out.data);
  return out.array;
}

nb::ndarray<nb::numpy, int32_t> dense(const Channels& channels) {
  const ChannelLayout& layout = channels.layout();
  const size_t width = static_cast<size_t>(layout.n_outputs + layout.n_curvature());
  const size_t n = static_cast<size_t>(channels.sample().n_used());
  NewArray<int32_t> out({n, width});
  for (size_t i = 0; i < n; ++i) {
    const int64_t row =
        channels.sample().rows != nullptr ? channels.sample().rows[i] : static_cast<int64_t>(i);
    std::copy(channels.row(row), channels.row(row) + width, out.data + i * width);
  }
  return out.array;
}

void bind_channels(nb::module_& m) {
  nb::class_<Channels>(m, "Channels", "Quantised derivatives: what one row adds to a histogram bin.")
      .def(nb::init<>())
      .def(
          "__init__",
          [](Channels* self, Array2<const float> g, Optional2<const float> h, const std::string& kind,
             Optional1<const uint32_t> rows, Optional1<const float> multiplier, int n_threads) {
            new (self) Channels();
            quantise(*self, g, h, kind, rows, multiplier, n_threads);
          },
          nb::arg("g"), nb::arg("h").none(), nb::arg("kind"), nb::arg("rows") = nb::none(),
          nb::arg("multiplier") = nb::none(), nb::arg("n_threads") = 1)
      .def("quantise", &quantise, nb::arg("g"), nb::arg("h").none(), nb::arg("kind"),
           nb::arg("rows") = nb::none(), nb::arg("multiplier") = nb::none(), nb::arg("n_threads") = 1,
           "Fills the channels from g (n, K) and h: None (unit), (n, 1) (shared) or (n, K) (diagonal). "
           "Memory is reused.")
      .def("dense", &dense, "int32 (rows used, K + curvature columns): the quantised values, for tests.")
      .def_prop_ro(
          "gradient_steps", [](const Channels& c) { return steps(c.gradient_step(), c.layout().n_outputs); },
          nb::rv_policy::move)
      .def_prop_ro(
          "curvature_steps",
          [](const Channels& c) { return steps(c.curvature_step(), c.layout().n_curvature()); },
          nb::rv_policy::move);
}

void bind_config(nb::module_& m) {
  nb::class_<GrowConfig>(m, "GrowConfig", "How one tree grows; see docs/design.md section 4.")
      .def(
          "__init__",
          [](GrowConfig* self, int max_leaves, int max_depth, bool level_wise, double reg_lambda,
             double reg_alpha, double min_split_gain, double min_child_weight, int min_child_samples,
             double max_delta_step, int max_cat_to_onehot, double cat_smooth, double colsample_bynode,
             uint64_t seed, size_t histogram_memory) {
            require(max_leaves >= 1, "max_leaves must be at least 1.");
            require(colsample_bynode > 0 && colsample_bynode <= 1, "colsample_bynode must be in (0, 1].");
            require(reg_lambda >= 0 && reg_alpha >= 0 && max_delta_step >= 0 && cat_smooth >= 0,
                    "reg_lambda, reg_alpha, max_delta_step and cat_smooth must not be negative.");
            new (self) GrowConfig();
            self->max_leaves = max_leaves;
            self->max_depth = max_depth;
            self->level_wise = level_wise;
            self->colsample_bynode = colsample_bynode;
            self->seed = seed;
            self->histogram_memory = histogram_memory;
            self->split.reg_lambda = static_cast<float>(reg_lambda);
            self->split.reg_alpha = static_cast<float>(reg_alpha);
            self->split.max_delta_step = static_cast<float>(max_delta_step);
            self->split.min_child_weight = static_cast<float>(min_child_weight);
            self->split.min_child_samples = std::max(1, min_child_samples);
            self->split.min_split_gain = min_split_gain;
            self->split.max_cat_to_onehot = max_cat_to_onehot;
            self->split.cat_smooth = cat_smooth;
          },
          nb::kw_only(), nb::arg("max_leaves") = 31, nb::arg("max_depth") = -1, nb::arg("level_wise") = false,
          nb::arg("reg_lambda") = 1.0, nb::arg("reg_alpha") = 0.0, nb::arg("min_split_gain") = 0.0,
          nb::arg("min_child_weight") = 0.0, nb::arg("min_child_samples") = 1,
          nb::arg("max_delta_step") = 0.0, nb::arg("max_cat_to_onehot") = 4, nb::arg("cat_smooth") = 10.0,
          nb::arg("colsample_bynode") = 1.0, nb::arg("seed") = 0,
          nb::arg("histogram_memory") = size_t{1} << 30);
}

void bind_leaves(nb::module_& m) {
  m.def(
      "newton_leaves",
      [](Array2<const float> g, Optional2<const float> h, Array1<const int32_t> leaf_of_row, int32_t n_leaves,
         double reg_lambda, double reg_alpha, double max_delta_step, double learning_rate,
         Optional1<const uint32_t> rows, Optional1<const float> multiplier, int n_threads) {
        const RowSample sample = sample_of(static_cast<int64_t>(g.shape(0)), rows, multiplier);
        require(leaf_of_row.size() == g.shape(0), "leaf_of_row needs one entry per row.");
        require(n_leaves >= 1, "There must be at least one leaf.");
        if (h)
          require(h->shape(0) == g.shape(0) && (h->shape(1) == 1 || h->shape(1) == g.shape(1)),
                  "h must have g's rows, and one column or one per output.");
        require_leaf_ids(leaf_of_row, n_leaves, std::max(1, n_threads));
        NewArray<float> out({static_cast<size_t>(n_leaves), g.shape(1)});
        {
          nb::gil_scoped_release release;
          newton_leaves(g.data(), h ? h->data() : nullptr, static_cast<int>(g.shape(1)),
                        h ? static_cast<int>(h->shape(1)) : 0, sample, leaf_of_row.data(), n_leaves,
                        {reg_lambda, reg_alpha, max_delta_step, learning_rate}, std::max(1, n_threads),
                        out.data);
        }
        return out.array;
      },
      nb::arg("g"), nb::arg("h").none(), nb::arg("leaf_of_row"), nb::arg("n_leaves"),
      nb::arg("reg_lambda") = 1.0, nb::arg("reg_alpha") = 0.0, nb::arg("max_delta_step") = 0.0,
      nb::arg("learning_rate") = 1.0, nb::arg("rows") = nb::none(), nb::arg("multiplier") = nb::none(),
      nb::arg("n_threads") = 1,
      "Newton leaf values, float32 (n_leaves, K), times the learning rate (GBDT-MO eq. 15).");
  m.def(
      "add_leaf_values",
      [](Array2<float> raw, Array1<const int32_t> leaf_of_row, Array2<const float> values, int output,
         int n_threads) {
        require(raw.shape(0) == leaf_of_row.size(), "raw and leaf_of_row must have the same number of rows.");
        require(output >= 0 ? values.shape(1) == 1 && output < static_cast<int>(raw.shape(1))
                            : values.shape(1) == raw.shape(1),
                "Leaf values do not fit the raw scores.");
        const int32_t n_leaves = static_cast<int32_t>(values.shape(0));
        require_leaf_ids(leaf_of_row, n_leaves, std::max(1, n_threads));
        nb::gil_scoped_release release;
        add_leaf_values(raw.data(), static_cast<int64_t>(raw.shape(0)), static_cast<int>(raw.shape(1)),
                        output, leaf_of_row.data(), values.data(), std::max(1, n_threads));
      },
      nb::arg("raw"), nb::arg("leaf_of_row"), nb::arg("values"), nb::arg("output") = -1,
      nb::arg("n_threads") = 1,
      "raw[i] += values[leaf_of_row[i]], in place; output >= 0: values (n_leaves, 1) go to that column.");
}

}  // namespace

void bind_grower(nb::module_& m) {
  nb::class_<Bins>(m, "Bins", "Feature codes packed for training: tiles of eight features, one word per row.")
      .def(
          "__init__",
          [](Bins* self, Array2<const uint8_t> codes, Array1<const uint16_t> n_bins,
             Array1<const bool> is_categorical, int n_threads) {
            require(codes.shape(0) == n_bins.size() && codes.shape(0) == is_categorical.size(),
                    "codes must have one row per feature, as n_bins and is_categorical have entries.");
            require(codes.shape(0) >= 1, "There must be at least one feature.");
            nb::gil_scoped_release release;
            new (self) Bins(codes.data(), static_cast<int64_t>(codes.shape(1)),
                            static_cast<int>(codes.shape(0)), n_bins.data(),
                            reinterpret_cast<const uint8_t*>(is_categorical.data()), std::max(1, n_threads));
          },
          nb::arg("codes"), nb::arg("n_bins"), nb::arg("is_categorical"), nb::arg("n_threads") = 1)
      .def_prop_ro("n_rows", &Bins::n_rows)
      .def_prop_ro("n_features", &Bins::n_features)
      .def_prop_ro("nbytes", &Bins::n_bytes);
  bind_channels(m);
  bind_config(m);
  nb::class_<Grower>(m, "Grower", "Grows trees on one Bins; memory is reused over trees.")
      .def(nb::init<const Bins&, int>(), nb::arg("bins"), nb::arg("n_threads") = 1, nb::keep_alive<1, 2>())
      .def(
          "grow",
          [](Grower& self, const Channels& channels, const GrowConfig& config,
             Optional1<const bool> features) {
            require(channels.sample().n_all == self.bins().n_rows(),
                    "The channels must have as many rows as the bins.");
            if (features)
              require(static_cast<int>(features->size()) == self.bins().n_features(),
                      "features needs one flag per feature.");
            nb::gil_scoped_release release;
            return self.grow(channels, config,
                             features ? reinterpret_cast<const uint8_t*>(features->data()) : nullptr);
          },
          nb::arg("channels"), nb::arg("config"), nb::arg("features") = nb::none(),
          "One tree. `features`: bool (n_features,), the features it may use.")
      .def_prop_ro(
          "leaf_of_row",
          [](nb::handle self) {
            const Grower& grower = nb::cast<const Grower&>(self);
            return nb::ndarray<nb::numpy, const int32_t, nb::ndim<1>>(
                grower.leaf_of_row(), {static_cast<size_t>(grower.bins().n_rows())}, self);
          },
          nb::rv_policy::reference,
          "int32 (n_rows,), read-only view: the leaf of every row in the last tree, overwritten by the "
          "next.");
  bind_leaves(m);
}

}  // namespace polyleaf
