// Searches at the border: one object each, which a grower is handed.

#include <algorithm>

#include "context_caster.h"
#include "directions_of.h"
#include "sample_of.h"
#include "search/exact_search.h"
#include "search/histogram_search.h"
#include "search/linear_gradients.h"
#include "search/verified_search.h"
#include "search_handle.h"

namespace polyleaf {
namespace {

class HeldHistograms final : public HeldSearch {
 public:
  HeldHistograms(const Bins& bins, const Workers& workers)
      : HeldSearch(bins), search_(bins, workers) {}

  // LinearChannels are not const: they make channels anew for every node.
  template <class AnyChannels>
  void use(const nb::handle_t<AnyChannels>& handle) {
    auto& channels = nb::cast<AnyChannels&>(handle);
    release();
    search_.use(channels);
    hold(nb::borrow(handle));
  }
  void obey(const std::optional<Array2<const int8_t>>& directions) {
    search_.obey(directions_of(bins(), directions));
  }
  HistogramSearch& search() override { return search_; }

 private:
  HistogramSearch search_;
};

void check_gradients(const Bins& bins, const LabelRows& gradients,
                     const Optional1<const float>& weight, int32_t leaf_k) {
  require(gradients.n_rows() == bins.n_rows(), "The gradients must have as many rows as the bins.");
  require(!weight || static_cast<int64_t>(weight->size()) == gradients.n_rows(),
          "Weights need one entry per row.");
  require(leaf_k >= 1, "leaf_k must be at least 1.");
}

const float* weights_of(const Optional1<const float>& weight) {
  return weight ? begin_of(weight->data(), weight->size()) : nullptr;
}

class HeldVerified final : public HeldSearch {
 public:
  HeldVerified(HeldHistograms& histograms, const Workers& workers)
      : HeldSearch(histograms.bins()),
        histograms_(histograms),
        search_(histograms.bins(), histograms.search(), workers) {}

  void use(const nb::handle_t<LabelRows>& handle, const Optional1<const float>& weight,
           const nb::handle_t<Channels>& sketch, const LeafConfig& step, int32_t leaf_k,
           const Optional1<const int64_t>& numbers, uint64_t seed) {
    const auto& gradients = nb::cast<const LabelRows&>(handle);
    const RowSample& sample = nb::cast<const Channels&>(sketch).sample();
    check_gradients(bins(), gradients, weight, leaf_k);
    require(sample.n_all == gradients.n_rows(),
            "The sketch must have as many rows as the gradients.");
    require(!numbers || static_cast<int64_t>(numbers->size()) == gradients.n_rows(),
            "Numbers need one entry per row.");
    release();
    histograms_.use(sketch);
    {
      nb::gil_scoped_release unlocked;
      search_.use(gradients, weights_of(weight), sample, step, leaf_k,
                  numbers ? begin_of(numbers->data(), numbers->size()) : nullptr, seed);
    }
    hold(nb::borrow(handle), weight, numbers);
  }
  bool is_ready() const override { return HeldSearch::is_ready() && histograms_.is_ready(); }

 private:
  Search& search() override { return search_; }

  HeldHistograms& histograms_;
  VerifiedSearch search_;
};

class HeldExact final : public HeldSearch {
 public:
  HeldExact(const Bins& bins, const Workers& workers) : HeldSearch(bins), search_(bins, workers) {
    for (int f = 0; f < bins.n_features(); ++f)
      require(!bins.is_categorical(f), "Exact search is for numeric features only.");
  }

  void use(const nb::handle_t<LabelRows>& handle, const Optional1<const float>& weight,
           const Optional1<const uint32_t>& rows, const Optional1<const float>& multiplier,
           const LeafConfig& step, int32_t leaf_k, double threshold_step) {
    const auto& gradients = nb::cast<const LabelRows&>(handle);
    check_gradients(bins(), gradients, weight, leaf_k);
    require(threshold_step >= 0 && threshold_step < 1, "threshold_step must be in [0, 1).");
    const RowSample sample = sample_of(gradients.n_rows(), rows, multiplier, search_.workers());
    release();
    {
      nb::gil_scoped_release unlocked;
      search_.use(gradients, weights_of(weight), sample, step, leaf_k, threshold_step);
    }
    hold(nb::borrow(handle), weight, rows, multiplier);
  }

 private:
  Search& search() override { return search_; }

  ExactSearch search_;
};

}  // namespace

void bind_searches(nb::module_& m) {
  nb::class_<HeldSearch>(
      m, "Search",
      "Finds the best splits of nodes, for one grower at a time. Memory is reused over trees.")
      .def("release", &HeldSearch::release,
           "Lets go of what it uses, which it otherwise keeps alive until it is told to use "
           "something else.");
  nb::class_<HeldHistograms, HeldSearch>(m, "HistogramSearch",
                                         "Best splits from histograms of channels.")
      .def(nb::init<const Bins&, const Workers&>(), nb::arg("bins"), nb::arg("n_threads"),
           nb::keep_alive<1, 2>())
      .def("use", &HeldHistograms::use<Channels>, nb::arg("channels"),
           "What the next tree, or the next layer of a tree, is judged by.")
      .def("use", &HeldHistograms::use<LinearChannels>, nb::arg("channels"),
           "The same; its splits look ahead to linear leaves.")
      .def("obey", &HeldHistograms::obey, nb::arg("directions").none(), kObeyDoc);
  nb::class_<HeldVerified, HeldSearch>(
      m, "VerifiedSearch",
      "Best splits of sparse gradients: a histogram search over a sketch of "
      "them proposes, and exact sums over "
      "the outputs that gain most decide.")
      .def(nb::init<HeldHistograms&, const Workers&>(), nb::arg("histograms"), nb::arg("n_threads"),
           nb::keep_alive<1, 2>())
      .def("use", &HeldVerified::use, nb::arg("gradients"), nb::arg("weight").none(),
           nb::arg("sketch"), nb::arg("step"), nb::arg("leaf_k"),
           nb::arg("numbers").none() = nb::none(), nb::arg("seed") = 0,
           "What the next tree is judged by: gradients, the Hessian of rows (None: 1), channels "
           "of a "
           "sketch of both, and what leaves will be. The histogram search uses the sketch. Large "
           "nodes are "
           "judged by some of their rows, drawn by a seed and int64 (n_rows,) numbers (None: "
           "places).");
  nb::class_<HeldExact, HeldSearch>(
      m, "ExactSearch",
      "Best splits of sparse gradients by exact sums of every feature (GBDT-SPARSE, Algorithm 1).")
      .def(nb::init<const Bins&, const Workers&>(), nb::arg("bins"), nb::arg("n_threads"),
           nb::keep_alive<1, 2>())
      .def("use", &HeldExact::use, nb::arg("gradients"), nb::arg("weight").none(),
           nb::arg("rows").none(), nb::arg("multiplier").none(), nb::arg("step"), nb::arg("leaf_k"),
           nb::arg("threshold_step"),
           "What the next tree is judged by; thresholds are at every threshold_step of a node's "
           "rows.");
}

}  // namespace polyleaf
