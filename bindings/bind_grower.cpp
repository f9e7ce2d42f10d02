// Bindings of Bins, QuantisedGradients and Grower.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "arrays.h"
#include "base/rng.h"
#include "context_caster.h"
#include "conversions.h"
#include "grower/grower.h"
#include "quantised_gradients/quantised_gradients.h"
#include "quantised_gradients/random_rounding.h"
#include "search_handle.h"

namespace polyleaf {
namespace {

void quantise(QuantisedGradients& channels, Array2<const float> g, const Optional2<const float>& h,
              const std::string& kind, const Optional1<const uint32_t>& rows,
              const Optional1<const float>& multiplier, const Context& context) {
  const HessianKind hessian = parse_hessian_kind(kind);
  const int n_outputs = static_cast<int>(g.shape(1));
  require(n_outputs >= 1, "There must be at least one output.");
  check_hessian(hessian, n_outputs, h ? static_cast<int64_t>(h->shape(1)) : -1);
  require(!h || h->shape(0) == g.shape(0), "g and h must have the same number of rows.");
  const RowSample sample =
      make_row_sample(static_cast<int64_t>(g.shape(0)), rows, multiplier, context);
  nb::gil_scoped_release release;
  channels.quantise(g.data(), h ? h->data() : nullptr, n_outputs, hessian, sample, context);
}

nb::ndarray<nb::numpy, float> steps(const float* from, size_t n) {
  NewArray<float> out({n});
  std::copy(from, from + n, out.data);
  return out.array;
}

nb::ndarray<nb::numpy, int32_t> dense(const QuantisedGradients& channels) {
  const ChannelLayout& layout = channels.layout();
  const size_t width = static_cast<size_t>(layout.n_outputs + layout.n_hessian());
  const size_t n = static_cast<size_t>(channels.sample().n_used());
  NewArray<int32_t> out({n, width});
  for (size_t i = 0; i < n; ++i) {
    const int64_t row =
        channels.sample().rows != nullptr ? channels.sample().rows[i] : static_cast<int64_t>(i);
    std::copy(channels.row(row), channels.row(row) + width, out.data + i * width);
  }
  return out.array;
}

auto random_rounding(const Array2<const float>& values, const Optional1<const uint32_t>& rows,
                     const Optional1<const float>& multiplier, const Optional1<const int64_t>& ids,
                     const Array2<const uint32_t>& keys, const Context& context) {
  require(!ids || ids->shape(0) == values.shape(0), "ids must have one entry per row.");
  require(keys.shape(0) == values.shape(1) && keys.shape(1) == 2,
          "keys must have two numbers per column.");
  const RowSample sample =
      make_row_sample(static_cast<int64_t>(values.shape(0)), rows, multiplier, context);
  NewArray<float> out({values.shape(0), values.shape(1)});
  const MatrixView<float> rounded(out.data, sample.n_all, static_cast<int64_t>(values.shape(1)));
  {
    nb::gil_scoped_release release;
    round_at_random(matrix_view(values), sample,
                    ids ? non_null_data(ids->data(), ids->size()) : nullptr, matrix_view(keys),
                    rounded, context);
  }
  return out.array;
}

void bind_channels(nb::module_& m) {
  nb::class_<QuantisedGradients>(
      m, "QuantisedGradients",
      "Quantised gradients and Hessians of rows, the addends of histogram bins.")
      .def(nb::init<>())
      .def(
          "__init__",
          [](QuantisedGradients* self, Array2<const float> g, Optional2<const float> h,
             const std::string& kind, Optional1<const uint32_t> rows,
             Optional1<const float> multiplier, const Context& context) {
            new (self) QuantisedGradients();
            quantise(*self, g, h, kind, rows, multiplier, context);
          },
          nb::arg("g"), nb::arg("h").none(), nb::arg("kind"), nb::arg("rows").none(),
          nb::arg("multiplier").none(), nb::arg("n_threads"))
      .def("quantise", &quantise, nb::arg("g"), nb::arg("h").none(), nb::arg("kind"),
           nb::arg("rows").none(), nb::arg("multiplier").none(), nb::arg("n_threads"),
           "Quantise the gradients g (n, K) and the Hessians h; memory is reused.\n\n"
           "The shape of h depends on `kind`: None (unit), (n, 1) (shared), (n, K) (diagonal)\n"
           "or (n, K (K + 1) / 2) (full: lower triangles in row-major order).")
      .def("dense", &dense,
           "Return the quantised values, int32 (rows used, K + Hessian columns), for tests.")
      .def_prop_ro(
          "gradient_steps",
          [](const QuantisedGradients& c) {
            return steps(c.gradient_step(), c.layout().n_outputs);
          },
          nb::rv_policy::move)
      .def_prop_ro(
          "hessian_steps",
          [](const QuantisedGradients& c) {
            return steps(c.hessian_step(), c.layout().n_hessian());
          },
          nb::rv_policy::move);
  m.def(
      "hash_ids",
      [](const Array1<const uint32_t>& ids, const Array1<const uint32_t>& keys) {
        require(keys.size() == 2, "keys must have two numbers.");
        NewArray<uint32_t> out({ids.size()});
        for (size_t i = 0; i < ids.size(); ++i) out.data[i] = hash_id(ids.data()[i], keys.data());
        return out.array;
      },
      nb::arg("ids"), nb::arg("keys"), "Hash ids, uint32 (n,), by two keys: a bijection.");
  m.def(
      "round_at_random", &random_rounding, nb::arg("values"), nb::arg("rows").none(),
      nb::arg("multiplier").none(), nb::arg("ids").none(), nb::arg("keys"), nb::arg("n_threads"),
      "Return derivatives, float32 (n, m), as multiples of the steps of their quantisation, each\n"
      "rounded up or down at random.\n\n"
      "Random numbers are hashes of `ids`, int64 (n,), or of the positions of the rows, by\n"
      "`keys`, uint32 (m, 2).");
  m.def(
      "channel_lanes",
      [](int n_outputs, const std::string& kind, int regressors) {
        require(n_outputs >= 1, "There must be at least one output.");
        return ChannelLayout::make(n_outputs, parse_hessian_kind(kind), regressors).lanes;
      },
      nb::arg("n_outputs"), nb::arg("kind"), nb::arg("regressors"),
      "Return the number of channels per row; `regressors` is -1 for constant leaves.");
}

void set_interaction_constraints(GrowerHandle& self,
                                 const std::optional<Array2<const bool>>& groups,
                                 int32_t max_features) {
  require(!groups || static_cast<int>(groups->shape(1)) == self.grower.bins().n_features(),
          "groups must have one flag per feature.");
  require(max_features >= 0, "max_features must not be negative.");
  InteractionConstraints interactions{{}, max_features};
  for (size_t g = 0; groups && g < groups->shape(0); ++g) {
    const bool* flags = groups->data() + g * groups->shape(1);
    interactions.groups.emplace_back(flags, flags + groups->shape(1));
  }
  self.grower.set_interaction_constraints(std::move(interactions));
}

Tree grow(GrowerHandle& self, SearchHandle& search, const GrowConfig& config,
          const Optional1<const bool>& features) {
  Search& ready = search.get(self.grower.bins());
  const uint8_t* flags = self.flags(features);
  self.held.reset();
  search.grower = nullptr;
  nb::gil_scoped_release release;
  return self.grower.grow(ready, config, flags);
}

void begin(GrowerHandle& self, const nb::handle_t<SearchHandle>& handle, const GrowConfig& config,
           const Optional1<const bool>& features) {
  auto& search = nb::cast<SearchHandle&>(handle);
  Search& ready = search.get(self.grower.bins());
  const uint8_t* flags = self.flags(features);
  self.held = nb::borrow(handle);
  search.grower = &self;
  nb::gil_scoped_release release;
  self.grower.begin(ready, config, flags);
  self.grower.evaluate(false);
}

bool split(GrowerHandle& self) {
  self.search();
  nb::gil_scoped_release release;
  return self.grower.split();
}

void evaluate(GrowerHandle& self) {
  self.search().get(self.grower.bins());
  nb::gil_scoped_release release;
  self.grower.evaluate(true);
}

Tree finish(GrowerHandle& self) {
  self.search();
  self.held.reset();
  nb::gil_scoped_release release;
  return self.grower.finish();
}

nb::ndarray<nb::numpy, const int32_t, nb::ndim<1>> leaf_of_row(nb::handle self) {
  Grower& grower = nb::cast<GrowerHandle&>(self).grower;
  return {grower.leaf_of_row(), {static_cast<size_t>(grower.bins().n_rows())}, self};
}

void bind_growers(nb::module_& m) {
  nb::class_<GrowerHandle>(m, "Grower", "Tree grower for one Bins; memory is reused over trees.")
      .def(nb::init<const Bins&, const Context&>(), nb::arg("bins"), nb::arg("n_threads"),
           nb::keep_alive<1, 2>())
      .def(
          "__init__",
          [](GrowerHandle* self, const DeviceBins& bins, const Context& context) {
            new (self) GrowerHandle(std::make_unique<DeviceRowPartitioner>(bins), context);
          },
          nb::arg("bins"), nb::arg("n_threads"), nb::keep_alive<1, 2>(),
          "Create a grower that partitions rows on the GPU of the bins.")
      .def("set_interaction_constraints", &set_interaction_constraints, nb::arg("groups").none(),
           nb::arg("max_features"),
           "Set the interaction constraints of the next trees.\n\n"
           "`groups`: bool (n_groups, n_features), each path uses features of one group only;\n"
           "None: any features. `max_features`: maximum number of different features on a\n"
           "path; 0: no limit.")
      .def("grow", &grow, nb::arg("search"), nb::arg("config"), nb::arg("features").none(),
           "Grow a tree and return it.\n\n"
           "`features`: bool (n_features,), the features that it may split on; None: all features.")
      .def("begin", &begin, nb::arg("search"), nb::arg("config"), nb::arg("features").none(),
           "Begin a tree that is grown layer by layer.\n\n"
           "For each layer call `split`, set new gradients of the search, and call `evaluate`.\n"
           "Then call `finish`.")
      .def("split", &split, "Split the next nodes; return False if growth has ended.")
      .def("evaluate", &evaluate,
           "Find the best splits of the nodes that the last `split` created, with the current "
           "gradients.")
      .def(
          "assign_leaf_ids", [](GrowerHandle& self) { return self.grower.assign_leaf_ids(); },
          nb::call_guard<nb::gil_scoped_release>(),
          "Return the current tree and update `leaf_of_row`.")
      .def("finish", &finish, "Finish the tree, return it and update `leaf_of_row`.")
      .def_prop_ro(
          "can_split_further",
          [](const GrowerHandle& self) { return self.grower.can_split_further(); },
          "Whether any node that the last `split` created can be split.")
      .def_prop_ro(
          "node_of_leaf",
          [](const GrowerHandle& self) {
            const std::vector<int32_t>& nodes = self.grower.node_of_leaf();
            NewArray<int32_t> out({nodes.size()});
            std::copy(nodes.begin(), nodes.end(), out.data);
            return out.array;
          },
          nb::rv_policy::move, "Node ids of the leaves before pruning, int32 (n_leaves,).")
      .def_prop_ro("leaf_of_row", &leaf_of_row, nb::rv_policy::reference,
                   "Leaf ids of all rows in the last tree, int32 (n_rows,).\n\n"
                   "This is a read-only view, which the next tree overwrites.");
}

// (features, common codes, begin, rows, codes)
using EntryArrays = std::tuple<Array1<const int32_t>, Array1<const uint8_t>, Array1<const int64_t>,
                               Array1<const int32_t>, Array1<const uint8_t>>;

CompressedColumns parse_sparse_columns(const std::optional<EntryArrays>& sparse) {
  if (!sparse.has_value()) return {};
  const auto& [features, common, begin, rows, codes] = *sparse;
  const size_t n = features.size();
  require(common.size() == n && begin.size() == n + 1 && rows.size() == codes.size(),
          "The arrays of sparse codes do not match.");
  for (size_t i = 0; i < n; ++i)
    require(begin.data()[i] >= 0 && begin.data()[i] <= begin.data()[i + 1],
            "Sparse columns must begin one after another.");
  require(begin.data()[n] <= static_cast<int64_t>(rows.size()),
          "Sparse columns end outside their arrays.");
  return {static_cast<int64_t>(n),
          features.data(),
          common.data(),
          begin.data(),
          rows.data(),
          codes.data()};
}

int count_features(const Array1<const uint16_t>& n_bins, const Array1<const bool>& is_categorical) {
  require(n_bins.size() >= 1, "There must be at least one feature.");
  require(n_bins.size() == is_categorical.size(),
          "n_bins and is_categorical must have one entry per feature.");
  return static_cast<int>(n_bins.size());
}

// Check the codes of some rows of external bins and return the number of rows.
template <class T>
int64_t check_rows(const Bins& bins, const Array2<T>& codes, int64_t first) {
  require(bins.is_external(), "Only bins in memory of the caller can be packed and unpacked.");
  const auto n = static_cast<int64_t>(codes.shape(1));
  require(static_cast<int64_t>(codes.shape(0)) == bins.n_features(),
          "codes must have one row per feature.");
  require(first >= 0 && first <= bins.n_rows() && n <= bins.n_rows() - first,
          "codes must not extend beyond the rows of the bins.");
  return n;
}

}  // namespace

void bind_grower(nb::module_& m) {
  nb::class_<Bins>(
      m, "Bins",
      "Feature codes packed for training: tiles of eight features with one word per row.")
      .def(
          "__init__",
          [](Bins* self, Array2<const uint8_t> codes, Array1<const uint16_t> n_bins,
             Array1<const bool> is_categorical, const Context& context,
             std::optional<EntryArrays> sparse) {
            const CompressedColumns columns = parse_sparse_columns(sparse);
            require(codes.shape(0) + static_cast<size_t>(columns.n) == n_bins.size() &&
                        n_bins.size() == is_categorical.size(),
                    "codes must have one row per feature that is not sparse, and n_bins and "
                    "is_categorical one entry per feature.");
            require(n_bins.size() >= 1, "There must be at least one feature.");
            nb::gil_scoped_release release;
            new (self)
                Bins(codes.data(), static_cast<int64_t>(codes.shape(1)),
                     static_cast<int>(n_bins.size()), n_bins.data(),
                     reinterpret_cast<const uint8_t*>(is_categorical.data()), context, columns);
          },
          nb::arg("codes"), nb::arg("n_bins"), nb::arg("is_categorical"), nb::arg("n_threads"),
          nb::arg("sparse").none(),
          "Pack `codes`, uint8 (n_dense_features, n_rows).\n\n"
          "`sparse` contains the codes of all other features as compressed columns: (features\n"
          "int32 (m,), common uint8 (m,), begin int64 (m + 1,), rows int32 (nnz,), codes\n"
          "uint8 (nnz,)).")
      .def_static(
          "at",
          [](Array1<uint64_t> words, int64_t n_rows, Array1<const uint16_t> n_bins,
             Array1<const bool> is_categorical) {
            const int n_features = count_features(n_bins, is_categorical);
            require(static_cast<int64_t>(words.size()) ==
                        Bins::n_words(n_rows, n_features, n_bins.data()),
                    "words must have n_words(...) entries.");
            return new Bins(words.data(), n_rows, n_features, n_bins.data(),
                            reinterpret_cast<const uint8_t*>(is_categorical.data()));
          },
          nb::arg("words").noconvert(), nb::arg("n_rows"), nb::arg("n_bins"),
          nb::arg("is_categorical"), nb::rv_policy::take_ownership, nb::keep_alive<0, 1>(),
          "Create bins in memory of the caller, which `pack` fills; training does not copy it.")
      .def_static(
          "n_words",
          [](int64_t n_rows, Array1<const uint16_t> n_bins) {
            require(n_rows >= 1, "There must be at least one row.");
            return Bins::n_words(n_rows, static_cast<int>(n_bins.size()), n_bins.data());
          },
          nb::arg("n_rows"), nb::arg("n_bins"), "Return the number of words that `at` requires.")
      .def(
          "pack",
          [](Bins& self, Array2<const uint8_t> codes, int64_t first, const Context& context) {
            const int64_t n = check_rows(self, codes, first);
            nb::gil_scoped_release release;
            self.pack(codes.data(), first, n, context);
          },
          nb::arg("codes"), nb::arg("first"), nb::arg("n_threads"),
          "Pack the codes (F, m) of the rows first .. first + m - 1.")
      .def(
          "unpack",
          [](const Bins& self, Array2<uint8_t> codes, int64_t first, const Context& context) {
            const int64_t n = check_rows(self, codes, first);
            nb::gil_scoped_release release;
            self.unpack(codes.data(), first, n, context);
          },
          nb::arg("codes").noconvert(), nb::arg("first"), nb::arg("n_threads"),
          "Write the codes of the rows first .. first + m - 1 into `codes` (F, m).")
      .def_prop_ro("n_rows", &Bins::n_rows)
      .def_prop_ro("n_features", &Bins::n_features)
      .def_prop_ro("nbytes", &Bins::n_bytes);
  bind_channels(m);
  bind_growers(m);
}

}  // namespace polyleaf
