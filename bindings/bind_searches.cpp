// Bindings of split searches.

#include <algorithm>

#include "context_caster.h"
#include "conversions.h"
#include "leaves/leaf_block.h"
#include "search/exact_search.h"
#include "search/histogram_search.h"
#include "search/linear_gradients.h"
#include "search/node_sums.h"
#include "search/verified_search.h"
#include "search_handle.h"

namespace polyleaf {
namespace {

class HistogramSearchHandle final : public SearchHandle {
 public:
  HistogramSearchHandle(const Bins& bins, const Context& context)
      : SearchHandle(bins), search_(bins, context) {}

  // LinearGradients are not const: they compute new channels for every node.
  template <class AnyChannels>
  void use(const nb::handle_t<AnyChannels>& handle) {
    auto& channels = nb::cast<AnyChannels&>(handle);
    reset();
    search_.use(channels);
    retain(nb::borrow(handle));
  }
  void set_monotone_constraints(const std::optional<Array2<const int8_t>>& constraints) {
    search_.set_monotone_constraints(parse_monotone_constraints(bins(), constraints));
  }
  HistogramSearch& search() override { return search_; }

 private:
  HistogramSearch search_;
};

void check_gradients(const Bins& bins, const SparseRows& gradients,
                     const Optional1<const float>& weight, int32_t leaf_k) {
  require(gradients.n_rows() == bins.n_rows(), "gradients must have as many rows as the bins.");
  require(!weight || static_cast<int64_t>(weight->size()) == gradients.n_rows(),
          "weight must have one entry per row.");
  require(leaf_k >= 1, "leaf_k must be at least 1.");
}

const float* get_weight_data(const Optional1<const float>& weight) {
  return weight ? non_null_data(weight->data(), weight->size()) : nullptr;
}

class VerifiedSearchHandle final : public SearchHandle {
 public:
  VerifiedSearchHandle(HistogramSearchHandle& histograms, const Context& context)
      : SearchHandle(histograms.bins()),
        histograms_(histograms),
        search_(histograms.bins(), histograms.search(), context) {}

  void use(const nb::handle_t<SparseRows>& handle, const Optional1<const float>& weight,
           const nb::handle_t<QuantisedGradients>& sketch, const LeafConfig& step, int32_t leaf_k,
           const Optional1<const int64_t>& row_ids, uint64_t seed) {
    const auto& gradients = nb::cast<const SparseRows&>(handle);
    const RowSample& sample = nb::cast<const QuantisedGradients&>(sketch).sample();
    check_gradients(bins(), gradients, weight, leaf_k);
    require(sample.n_all == gradients.n_rows(), "sketch must have as many rows as gradients.");
    require(!row_ids || static_cast<int64_t>(row_ids->size()) == gradients.n_rows(),
            "row_ids must have one entry per row.");
    reset();
    histograms_.use(sketch);
    {
      nb::gil_scoped_release unlocked;
      search_.use(gradients, get_weight_data(weight), sample, step, leaf_k,
                  row_ids ? non_null_data(row_ids->data(), row_ids->size()) : nullptr, seed);
    }
    retain(nb::borrow(handle), weight, row_ids);
  }
  bool is_ready() const override { return SearchHandle::is_ready() && histograms_.is_ready(); }

 private:
  Search& search() override { return search_; }

  HistogramSearchHandle& histograms_;
  VerifiedSearch search_;
};

class ExactSearchHandle final : public SearchHandle {
 public:
  ExactSearchHandle(const Bins& bins, const Context& context)
      : SearchHandle(bins), search_(bins, context) {
    for (int f = 0; f < bins.n_features(); ++f)
      require(!bins.is_categorical(f), "ExactSearch supports numeric features only.");
  }

  void use(const nb::handle_t<SparseRows>& handle, const Optional1<const float>& weight,
           const Optional1<const uint32_t>& rows, const Optional1<const float>& multiplier,
           const LeafConfig& step, int32_t leaf_k, double threshold_step) {
    const auto& gradients = nb::cast<const SparseRows&>(handle);
    check_gradients(bins(), gradients, weight, leaf_k);
    require(threshold_step >= 0 && threshold_step < 1, "threshold_step must be in [0, 1).");
    const RowSample sample =
        make_row_sample(gradients.n_rows(), rows, multiplier, search_.context());
    reset();
    {
      nb::gil_scoped_release unlocked;
      search_.use(gradients, get_weight_data(weight), sample, step, leaf_k, threshold_step);
    }
    retain(nb::borrow(handle), weight, rows, multiplier);
  }

 private:
  Search& search() override { return search_; }

  ExactSearch search_;
};

nb::ndarray<nb::numpy, double> new_array(const std::vector<double>& numbers) {
  NewArray<double> out({numbers.size()});
  std::copy(numbers.begin(), numbers.end(), out.data);
  return out.array;
}

void bind_node_sums(nb::module_& m) {
  nb::class_<NodeSums>(
      m, "NodeSums",
      "Sums over the nodes of a known tree, with the bits of the search that grows it.")
      .def(
          "__init__",
          [](NodeSums* self, const Tree& tree, const Array1<const int32_t>& leaf_of_row,
             const Optional1<const uint32_t>& rows, const Optional1<const float>& multiplier,
             const Context& context) {
            const RowSample sample = make_row_sample(static_cast<int64_t>(leaf_of_row.size()), rows,
                                                     multiplier, context);
            check_leaf_ids(span(leaf_of_row), tree.n_leaves, context);
            new (self) NodeSums(tree, leaf_of_row.data(), sample, context);
          },
          nb::arg("tree"), nb::arg("leaf_of_row"), nb::arg("rows").none(),
          nb::arg("multiplier").none(), nb::arg("n_threads"))
      .def_prop_ro(
          "counts",
          [](const NodeSums& self) {
            NewArray<int64_t> out({self.counts().size()});
            std::copy(self.counts().begin(), self.counts().end(), out.data);
            return out.array;
          },
          nb::rv_policy::move, "Rows of each node, on all ranks, int64 (n_nodes,).")
      .def(
          "hessians",
          [](const NodeSums& self, const Optional2<const float>& h, bool quantises_nodes,
             const Context& context) {
            require(!h || static_cast<int64_t>(h->shape(0)) == self.n_rows(),
                    "h must have one row for each row of leaf_of_row.");
            return new_array(self.sum_hessians(h ? h->data() : nullptr,
                                               h ? static_cast<int>(h->shape(1)) : 1,
                                               quantises_nodes, context));
          },
          nb::arg("h").none(), nb::arg("quantises_nodes"), nb::arg("n_threads"),
          "Return the Hessian of each node as histograms sum it, float64 (n_nodes,).\n\n"
          "`h`: float32 (n_rows, m), of which nodes have the mean over columns; None: 1.\n"
          "`quantises_nodes`: whether each node quantises its rows anew, as for linear leaves.")
      .def(
          "weights",
          [](const NodeSums& self, const Optional1<const float>& weight, const Context& context) {
            require(!weight || static_cast<int64_t>(weight->size()) == self.n_rows(),
                    "weight must have one entry for each row of leaf_of_row.");
            return new_array(self.sum_weights(get_weight_data(weight), context));
          },
          nb::arg("weight").none(), nb::arg("n_threads"),
          "Return the Hessian of each node as searches over sparse targets sum it, float64\n"
          "(n_nodes,): weights of rows, float32 (n_rows,); None: 1.");
}

}  // namespace

void bind_searches(nb::module_& m) {
  nb::class_<SearchHandle>(
      m, "Search",
      "Search for the best splits of nodes, for one grower at a time; memory is reused over trees.")
      .def("reset", &SearchHandle::reset,
           "Release the objects in use. Otherwise they stay alive until the next call of `use`.");
  nb::class_<HistogramSearchHandle, SearchHandle>(
      m, "HistogramSearch", "Search for the best splits from histograms of quantised gradients.")
      .def(nb::init<const Bins&, const Context&>(), nb::arg("bins"), nb::arg("n_threads"),
           nb::keep_alive<1, 2>())
      .def("use", &HistogramSearchHandle::use<QuantisedGradients>, nb::arg("channels"),
           "Set the quantised gradients of the next tree or layer.")
      .def("use", &HistogramSearchHandle::use<LinearGradients>, nb::arg("channels"),
           "Set the gradients of splits that anticipate linear leaves.")
      .def("set_monotone_constraints", &HistogramSearchHandle::set_monotone_constraints,
           nb::arg("constraints").none(), kMonotoneConstraintsDoc);
  m.def(
      "count_unkept_rows",
      [](double bins_per_feature, int lanes) {
        return count_unkept_rows(count_direct_rows(bins_per_feature, lanes));
      },
      nb::arg("bins_per_feature"), nb::arg("lanes"),
      "Return the number of rows up to which the histogram of a node is not kept.");
  nb::class_<VerifiedSearchHandle, SearchHandle>(
      m, "VerifiedSearch",
      "Search for the best splits of sparse gradients.\n\n"
      "A histogram search over a sketch proposes splits; exact sums over the outputs with\n"
      "the highest gain select among them.")
      .def(nb::init<HistogramSearchHandle&, const Context&>(), nb::arg("histograms"),
           nb::arg("n_threads"), nb::keep_alive<1, 2>())
      .def("use", &VerifiedSearchHandle::use, nb::arg("gradients"), nb::arg("weight").none(),
           nb::arg("sketch"), nb::arg("step"), nb::arg("leaf_k"),
           nb::arg("row_ids").none() = nb::none(), nb::arg("seed") = 0,
           "Set the gradients and the leaf configuration of the next tree.\n\n"
           "`weight`: float32 (n_rows,), Hessians of the rows; None: 1. `sketch`: quantised\n"
           "sketch of both, for the histogram search. `row_ids`: int64 (n_rows,), which\n"
           "determine with `seed` the random rows that represent large nodes; None: row\n"
           "positions.");
  nb::class_<ExactSearchHandle, SearchHandle>(
      m, "ExactSearch",
      "Search for the best splits of sparse gradients by exact sums over every feature\n"
      "(GBDT-SPARSE, Algorithm 1).")
      .def(nb::init<const Bins&, const Context&>(), nb::arg("bins"), nb::arg("n_threads"),
           nb::keep_alive<1, 2>())
      .def("use", &ExactSearchHandle::use, nb::arg("gradients"), nb::arg("weight").none(),
           nb::arg("rows").none(), nb::arg("multiplier").none(), nb::arg("step"), nb::arg("leaf_k"),
           nb::arg("threshold_step"),
           "Set the gradients of the next tree.\n\n"
           "`threshold_step`: fraction of a node's rows between two thresholds.");
  bind_node_sums(m);
}

}  // namespace polyleaf
