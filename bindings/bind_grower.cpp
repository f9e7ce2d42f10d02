// Bins, Channels, Grower and leaf fitting at the border.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "../cpp/exact_search.h"
#include "../cpp/grower.h"
#include "../cpp/histogram_search.h"
#include "../cpp/leaves/leaf_block.h"
#include "../cpp/leaves/newton.h"
#include "../cpp/linear_channels.h"
#include "../cpp/verified_search.h"
#include "arrays.h"
#include "sample.h"

namespace polyleaf {
namespace {

Curvature curvature_of(const std::string& kind) {
  if (kind == "unit") return Curvature::unit;
  if (kind == "shared") return Curvature::shared;
  if (kind == "diagonal") return Curvature::diagonal;
  if (kind == "full") return Curvature::full;
  throw std::invalid_argument("The curvature of channels must be unit, shared, diagonal or full, not '" +
                              kind + "'.");
}

void quantise(Channels& channels, Array2<const float> g, const Optional2<const float>& h,
              const std::string& kind, const Optional1<const uint32_t>& rows,
              const Optional1<const float>& multiplier, int n_threads) {
  const Curvature curvature = curvature_of(kind);
  const int n_outputs = static_cast<int>(g.shape(1));
  require(n_outputs >= 1, "There must be at least one output.");
  require((curvature == Curvature::unit) == !h.has_value(),
          "h is needed exactly for curvatures other than unit.");
  if (h) {
    require(h->shape(0) == g.shape(0), "g and h must have the same number of rows.");
    ChannelLayout layout;
    layout.n_outputs = n_outputs;
    layout.curvature = curvature;
    require(static_cast<int>(h->shape(1)) == layout.n_curvature(),
            "h must have one column for shared curvature, one per output for diagonal curvature, and K (K + "
            "1) / 2 "
            "for full curvature.");
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
    const int64_t row = channels.sample().row(static_cast<int64_t>(i));
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
           "Fills the channels from g (n, K) and h: None (unit), (n, 1) (shared), (n, K) (diagonal) or "
           "(n, K (K + 1) / 2) (full: lower triangles, row after row). Memory is reused.")
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
             uint64_t seed, size_t histogram_memory, bool post_prune, int block_size, int leaf_k,
             bool shared_support) {
            require(max_leaves >= 1, "max_leaves must be at least 1.");
            require(leaf_k >= 0, "leaf_k must not be negative.");
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
            self->post_prune = post_prune;
            self->split.block_size = block_size;
            self->split.leaf_k = leaf_k;
            self->split.shared_support = shared_support;
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
          nb::arg("histogram_memory") = size_t{1} << 30, nb::arg("post_prune") = false,
          nb::arg("block_size") = 0, nb::arg("leaf_k") = 0, nb::arg("shared_support") = false);
}

void bind_leaves(nb::module_& m) {
  nb::class_<LeafConfig>(m, "LeafConfig", "What bounds the step of a leaf.")
      .def(
          "__init__",
          [](LeafConfig* self, double reg_lambda, double reg_alpha, double max_delta_step,
             double learning_rate) {
            require(reg_lambda >= 0 && reg_alpha >= 0 && max_delta_step >= 0,
                    "reg_lambda, reg_alpha and max_delta_step must not be negative.");
            new (self) LeafConfig{reg_lambda, reg_alpha, max_delta_step, learning_rate};
          },
          nb::kw_only(), nb::arg("reg_lambda") = 1.0, nb::arg("reg_alpha") = 0.0,
          nb::arg("max_delta_step") = 0.0, nb::arg("learning_rate") = 1.0);
  m.def(
      "newton_leaves",
      [](Array2<const float> g, Optional2<const float> h, Array1<const int32_t> leaf_of_row, int32_t n_leaves,
         double reg_lambda, double reg_alpha, double max_delta_step, double learning_rate,
         Optional1<const uint32_t> rows, Optional1<const float> multiplier, int n_threads, int block_size) {
        const RowSample sample = sample_of(static_cast<int64_t>(g.shape(0)), rows, multiplier);
        const size_t k = g.shape(1);
        require(leaf_of_row.size() == g.shape(0), "leaf_of_row needs one entry per row.");
        require(n_leaves >= 1, "There must be at least one leaf.");
        if (h)
          require(h->shape(0) == g.shape(0) &&
                      (h->shape(1) == 1 || h->shape(1) == k || h->shape(1) == packed_size(k)),
                  "h must have g's rows, and one column, one per output, or K (K + 1) / 2.");
        check_leaf_ids(leaf_of_row.data(), static_cast<int64_t>(leaf_of_row.size()), n_leaves,
                       std::max(1, n_threads));
        NewArray<float> out({static_cast<size_t>(n_leaves), g.shape(1)});
        {
          nb::gil_scoped_release release;
          newton_leaves(g.data(), h ? h->data() : nullptr, static_cast<int>(g.shape(1)),
                        h ? static_cast<int>(h->shape(1)) : 0, sample, leaf_of_row.data(), n_leaves,
                        {reg_lambda, reg_alpha, max_delta_step, learning_rate, block_size},
                        std::max(1, n_threads), out.data);
        }
        return out.array;
      },
      nb::arg("g"), nb::arg("h").none(), nb::arg("leaf_of_row"), nb::arg("n_leaves"),
      nb::arg("reg_lambda") = 1.0, nb::arg("reg_alpha") = 0.0, nb::arg("max_delta_step") = 0.0,
      nb::arg("learning_rate") = 1.0, nb::arg("rows") = nb::none(), nb::arg("multiplier") = nb::none(),
      nb::arg("n_threads") = 1, nb::arg("block_size") = 0,
      "Newton leaf values, float32 (n_leaves, K), times the learning rate (GBDT-MO eq. 15).");
}

// A grower with the searches that it may need; their memory is reused over trees.
struct TreeGrower {
  TreeGrower(const Bins& bins, int n_threads)
      : grower(bins, n_threads),
        histograms(bins, n_threads),
        verified(bins, histograms, n_threads),
        exact(bins, n_threads) {}
  Grower grower;
  HistogramSearch histograms;
  VerifiedSearch verified;
  ExactSearch exact;

  // LinearChannels are not const: they make channels anew for every node.
  template <class AnyChannels>
  Search& search(AnyChannels& channels) {
    require(channels.sample().n_all == grower.bins().n_rows(),
            "The channels must have as many rows as the bins.");
    histograms.use(channels);
    return histograms;
  }
  const uint8_t* flags(const Optional1<const bool>& features) const {
    if (!features) return nullptr;
    require(static_cast<int>(features->size()) == grower.bins().n_features(),
            "features needs one flag per feature.");
    return reinterpret_cast<const uint8_t*>(features->data());
  }
};

template <class AnyChannels>
Tree grow(TreeGrower& self, AnyChannels& channels, const GrowConfig& config,
          const Optional1<const bool>& features) {
  Search& search = self.search(channels);
  const uint8_t* flags = self.flags(features);
  nb::gil_scoped_release release;
  return self.grower.grow(search, config, flags);
}

void check_sparse(const TreeGrower& self, const SparseRows& gradients, const Optional1<const float>& weight,
                  int32_t leaf_k) {
  require(gradients.n_rows() == self.grower.bins().n_rows(),
          "The gradients must have as many rows as the bins.");
  require(!weight || static_cast<int64_t>(weight->size()) == gradients.n_rows(),
          "Weights need one entry per row.");
  require(leaf_k >= 1, "leaf_k must be at least 1.");
}

nb::ndarray<nb::numpy, const int32_t, nb::ndim<1>> leaf_of_row(nb::handle self) {
  const Grower& grower = nb::cast<const TreeGrower&>(self).grower;
  return {grower.leaf_of_row(), {static_cast<size_t>(grower.bins().n_rows())}, self};
}

void bind_growers(nb::module_& m) {
  nb::class_<TreeGrower>(m, "Grower", "Grows trees on one Bins; memory is reused over trees.")
      .def(nb::init<const Bins&, int>(), nb::arg("bins"), nb::arg("n_threads") = 1, nb::keep_alive<1, 2>())
      .def("grow", &grow<const Channels>, nb::arg("channels"), nb::arg("config"),
           nb::arg("features") = nb::none(),
           "One tree. `features`: bool (n_features,), the features it may use.")
      .def("grow", &grow<LinearChannels>, nb::arg("channels"), nb::arg("config"),
           nb::arg("features") = nb::none(), "The same, whose splits look ahead to linear leaves.")
      .def(
          "grow_sparse",
          [](TreeGrower& self, const SparseRows& gradients, Optional1<const float> weight,
             const Channels& sketch, const GrowConfig& config, Optional1<const bool> features,
             const LeafConfig& step, int32_t leaf_k) {
            self.search(sketch);
            check_sparse(self, gradients, weight, leaf_k);
            const uint8_t* flags = self.flags(features);
            nb::gil_scoped_release release;
            self.verified.use(gradients, weight ? weight->data() : nullptr, sketch.sample(), {step, leaf_k});
            return self.grower.grow(self.verified, config, flags);
          },
          nb::arg("gradients"), nb::arg("weight").none(), nb::arg("sketch"), nb::arg("config"),
          nb::arg("features").none(), nb::arg("step"), nb::arg("leaf_k"),
          "One tree on sparse gradients: splits are proposed by channels of a sketch of them, and judged by "
          "exact sums over the leaf_k outputs that gain most.")
      .def(
          "grow_sparse_exactly",
          [](TreeGrower& self, const SparseRows& gradients, Optional1<const float> weight,
             Optional1<const uint32_t> rows, Optional1<const float> multiplier, const GrowConfig& config,
             Optional1<const bool> features, const LeafConfig& step, int32_t leaf_k, double threshold_step) {
            check_sparse(self, gradients, weight, leaf_k);
            require(threshold_step >= 0 && threshold_step < 1, "threshold_step must be in [0, 1).");
            for (int f = 0; f < self.grower.bins().n_features(); ++f)
              require(!self.grower.bins().is_categorical(f), "Exact search is for numeric features only.");
            const RowSample sample = sample_of(gradients.n_rows(), rows, multiplier);
            const uint8_t* flags = self.flags(features);
            nb::gil_scoped_release release;
            self.exact.use(gradients, weight ? weight->data() : nullptr, sample,
                           {step, leaf_k, threshold_step});
            return self.grower.grow(self.exact, config, flags);
          },
          nb::arg("gradients"), nb::arg("weight").none(), nb::arg("rows").none(),
          nb::arg("multiplier").none(), nb::arg("config"), nb::arg("features").none(), nb::arg("step"),
          nb::arg("leaf_k"), nb::arg("threshold_step") = 0.05,
          "The same by exact sums of every feature, with thresholds at every threshold_step of a node's rows "
          "(GBDT-SPARSE, Algorithm 1).")
      .def(
          "begin",
          [](TreeGrower& self, const Channels& channels, const GrowConfig& config,
             Optional1<const bool> features) {
            Search& search = self.search(channels);
            const uint8_t* flags = self.flags(features);
            nb::gil_scoped_release release;
            self.grower.begin(search, config, flags);
            self.grower.evaluate(false);
          },
          nb::arg("channels"), nb::arg("config"), nb::arg("features") = nb::none(),
          "Starts a tree that is grown layer by layer: `split`, new derivatives, `evaluate`, ..., `finish`.")
      .def(
          "split", [](TreeGrower& self) { return self.grower.split(); },
          nb::call_guard<nb::gil_scoped_release>(),
          "Splits the nodes whose turn it is; False where growth has ended.")
      .def(
          "evaluate",
          [](TreeGrower& self, const Channels& channels) {
            self.search(channels);
            nb::gil_scoped_release release;
            self.grower.evaluate(true);
          },
          nb::arg("channels"),
          "Finds the best splits of the nodes that the last `split` made, by new channels.")
      .def(
          "number_leaves", [](TreeGrower& self) { return self.grower.number_leaves(); },
          nb::call_guard<nb::gil_scoped_release>(), "The tree so far; fills `leaf_of_row`.")
      .def(
          "finish", [](TreeGrower& self) { return self.grower.finish(); },
          nb::call_guard<nb::gil_scoped_release>(), "The tree; fills `leaf_of_row`.")
      .def_prop_ro(
          "may_split", [](const TreeGrower& self) { return self.grower.may_split(); },
          "False where the nodes that the last `split` made cannot have children.")
      .def_prop_ro(
          "node_of_leaf",
          [](const TreeGrower& self) {
            const std::vector<int32_t>& nodes = self.grower.node_of_leaf();
            NewArray<int32_t> out({nodes.size()});
            std::copy(nodes.begin(), nodes.end(), out.data);
            return out.array;
          },
          nb::rv_policy::move,
          "int32 (n_leaves,): node of each leaf, by the numbers that nodes had before any were cut.")
      .def_prop_ro(
          "leaf_of_row", &leaf_of_row, nb::rv_policy::reference,
          "int32 (n_rows,), read-only view: the leaf of every row in the last tree, overwritten by the "
          "next.");
}

// features, common codes, begin, rows, codes
using SparseArrays = std::tuple<Array1<const int32_t>, Array1<const uint8_t>, Array1<const int64_t>,
                                Array1<const int32_t>, Array1<const uint8_t>>;

SparseCodeColumns sparse_columns(const std::optional<SparseArrays>& sparse) {
  if (!sparse.has_value()) return {};
  const auto& [features, common, begin, rows, codes] = *sparse;
  const size_t n = features.size();
  require(common.size() == n && begin.size() == n + 1 && rows.size() == codes.size(),
          "The arrays of sparse codes do not match.");
  for (size_t i = 0; i < n; ++i)
    require(begin.data()[i] >= 0 && begin.data()[i] <= begin.data()[i + 1],
            "Sparse columns must begin one after another.");
  require(begin.data()[n] <= static_cast<int64_t>(rows.size()), "Sparse columns end outside their arrays.");
  return {static_cast<int64_t>(n), features.data(), common.data(), begin.data(), rows.data(), codes.data()};
}

}  // namespace

void bind_grower(nb::module_& m) {
  nb::class_<Bins>(m, "Bins", "Feature codes packed for training: tiles of eight features, one word per row.")
      .def(
          "__init__",
          [](Bins* self, Array2<const uint8_t> codes, Array1<const uint16_t> n_bins,
             Array1<const bool> is_categorical, int n_threads, std::optional<SparseArrays> sparse) {
            const SparseCodeColumns columns = sparse_columns(sparse);
            require(codes.shape(0) + static_cast<size_t>(columns.n) == n_bins.size() &&
                        n_bins.size() == is_categorical.size(),
                    "codes must have one row per feature that is not sparse, and n_bins and is_categorical "
                    "one entry per feature.");
            require(n_bins.size() >= 1, "There must be at least one feature.");
            nb::gil_scoped_release release;
            new (self)
                Bins(codes.data(), static_cast<int64_t>(codes.shape(1)), static_cast<int>(n_bins.size()),
                     n_bins.data(), reinterpret_cast<const uint8_t*>(is_categorical.data()),
                     std::max(1, n_threads), columns);
          },
          nb::arg("codes"), nb::arg("n_bins"), nb::arg("is_categorical"), nb::arg("n_threads") = 1,
          nb::arg("sparse").none() = nb::none(),
          "`sparse`: (features int32 (m,), common uint8 (m,), begin int64 (m + 1,), rows int32 (nnz,), codes "
          "uint8 (nnz,)), the codes of features that have no row in `codes` as compressed columns.")
      .def_prop_ro("n_rows", &Bins::n_rows)
      .def_prop_ro("n_features", &Bins::n_features)
      .def_prop_ro("nbytes", &Bins::n_bytes);
  bind_channels(m);
  bind_config(m);
  bind_growers(m);
  bind_leaves(m);
}

}  // namespace polyleaf
