// Bindings of the losses of rankings: arrays of the queries, checked once.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "arrays.h"
#include "context_caster.h"
#include "losses/query_losses.h"

namespace polyleaf {

namespace {

using Ranks = Array1<const double>;

// Settings of a loss of pairs, with the arrays that they point to.
struct PairLossOptions {
  PairOptions options;
  Ranks discount, discount_sums;

  PairLossOptions(const std::string& measure, int64_t truncation, float largest_difference,
                  bool normalise, Ranks ranks, Ranks sums)
      : discount(std::move(ranks)), discount_sums(std::move(sums)) {
    require(measure == "none" || measure == "ndcg" || measure == "map",
            "measure must be none, ndcg or map.");
    require(discount_sums.size() == discount.size() + 1,
            "discount_sums must have one value more than discount.");
    options.measure = measure == "none"   ? PairMeasure::kNone
                      : measure == "ndcg" ? PairMeasure::kNdcg
                                          : PairMeasure::kMap;
    options.truncation = truncation;
    options.largest_difference = largest_difference;
    options.normalise = normalise;
    options.discount = discount.data();
    options.discount_sums = discount_sums.data();
  }
};

// Settings of a loss of neighbours in random orders, with the arrays that they point to.
struct NeighbourLossOptions {
  NeighbourOptions options;
  Ranks discount;
  Array1<const float> noise;

  NeighbourLossOptions(int64_t n_orders, Ranks ranks, Array1<const float> quantiles)
      : discount(std::move(ranks)), noise(std::move(quantiles)) {
    require(noise.size() == size_t{1} << kNoiseBits, "noise must have 4096 values.");
    options.n_orders = n_orders;
    options.truncation = static_cast<int64_t>(discount.size());
    options.discount = discount.data();
    options.noise = noise.data();
  }
};

// A loss bound to the queries of a data set.
class QueryLoss {
 public:
  QueryLoss(Array1<const int32_t> rows, Array1<const int64_t> begin, Array2<const float> target,
            Optional2<const float> weight, Array2<const double> scale,
            Optional2<const float> goal_weight, std::optional<PairLossOptions> pairs,
            std::optional<NeighbourLossOptions> neighbours)
      : rows_(std::move(rows)),
        begin_(std::move(begin)),
        target_(std::move(target)),
        weight_(std::move(weight)),
        scale_(std::move(scale)),
        goal_weight_(std::move(goal_weight)),
        pairs_(std::move(pairs)),
        neighbours_(std::move(neighbours)) {
    require(rows_.size() == target_.shape(0), "rows must list each row of target once.");
    require(!weight_ || weight_->shape(0) == target_.shape(0),
            "weight must have one row for each row of target.");
    require(begin_.size() == scale_.shape(0) + 1 && scale_.shape(1) == target_.shape(1),
            "scale must have one value for each query and goal.");
    require(!goal_weight_ || goal_weight_->shape(1) == target_.shape(1),
            "goal_weight must have one column for each goal.");
    int64_t longest = 0;
    for (size_t q = 0; q + 1 < begin_.size(); ++q)
      longest = std::max(longest, begin_.data()[q + 1] - begin_.data()[q]);
    require(!pairs_ || static_cast<int64_t>(pairs_->discount.size()) >= longest,
            "discount must have one value for each rank of the largest query.");
  }

  void derivatives(const Array2<const float>& raw, const Array2<float>& g, const Array2<float>& h,
                   const Context& context) const {
    const QueryInput input = make_input(raw);
    for (const auto& array : {g, h})
      require(array.shape(0) == raw.shape(0) && array.shape(1) == raw.shape(1),
              "g and h must be shaped like raw.");
    nb::gil_scoped_release release;
    if (neighbours_)
      neighbour_derivatives(input, neighbours_->options, g.data(), h.data(), context);
    else if (pairs_)
      pair_derivatives(input, pairs_->options, g.data(), h.data(), context);
    else
      listwise_derivatives(input, g.data(), h.data(), context);
  }

  auto losses(const Array2<const float>& raw, const Context& context) const {
    const QueryInput input = make_input(raw);
    NewArray<double> out({scale_.shape(0), raw.shape(1)});
    {
      nb::gil_scoped_release release;
      if (neighbours_)
        neighbour_losses(input, neighbours_->options, out.data, context);
      else if (pairs_)
        pair_losses(input, pairs_->options, out.data, context);
      else
        listwise_losses(input, out.data, context);
    }
    return out.array;
  }

 private:
  QueryInput make_input(const Array2<const float>& raw) const {
    require(raw.shape(0) == target_.shape(0), "raw must have one row for each row of target.");
    require(raw.shape(1) == (goal_weight_ ? goal_weight_->shape(0) : target_.shape(1)),
            "raw must have one column for each output.");
    QueryInput input;
    input.n_rows = static_cast<int64_t>(raw.shape(0));
    input.n_queries = static_cast<int64_t>(scale_.shape(0));
    input.n_outputs = static_cast<int64_t>(raw.shape(1));
    input.n_goals = static_cast<int64_t>(target_.shape(1));
    input.rows = rows_.data();
    input.begin = begin_.data();
    input.raw = raw.data();
    input.target = target_.data();
    if (weight_) {
      input.weight = weight_->data();
      input.weight_columns = static_cast<int64_t>(weight_->shape(1));
    }
    input.scale = scale_.data();
    if (goal_weight_) input.goal_weight = goal_weight_->data();
    return input;
  }

  Array1<const int32_t> rows_;
  Array1<const int64_t> begin_;
  Array2<const float> target_;
  Optional2<const float> weight_;
  Array2<const double> scale_;
  Optional2<const float> goal_weight_;
  std::optional<PairLossOptions> pairs_;
  std::optional<NeighbourLossOptions> neighbours_;
};

}  // namespace

void bind_query_losses(nb::module_& m) {
  nb::class_<PairLossOptions>(m, "PairLossOptions", "Settings of a ranking loss of pairs.")
      .def(nb::init<const std::string&, int64_t, float, bool, Ranks, Ranks>(), nb::kw_only(),
           nb::arg("measure"), nb::arg("truncation"), nb::arg("largest_difference"),
           nb::arg("normalise"), nb::arg("discount").noconvert(),
           nb::arg("discount_sums").noconvert());
  nb::class_<NeighbourLossOptions>(m, "NeighbourLossOptions",
                                   "Settings of a ranking loss of neighbours in random orders.")
      .def(nb::init<int64_t, Ranks, Array1<const float>>(), nb::kw_only(), nb::arg("n_orders"),
           nb::arg("discount").noconvert(), nb::arg("noise").noconvert());
  nb::class_<QueryLoss>(
      m, "QueryLoss",
      "Ranking loss of the rows of queries: listwise, of `pairs`, or of `neighbours`.")
      .def(nb::init<Array1<const int32_t>, Array1<const int64_t>, Array2<const float>,
                    Optional2<const float>, Array2<const double>, Optional2<const float>,
                    std::optional<PairLossOptions>, std::optional<NeighbourLossOptions>>(),
           nb::kw_only(), nb::arg("rows").noconvert(), nb::arg("begin").noconvert(),
           nb::arg("target").noconvert(), nb::arg("weight").noconvert().none(),
           nb::arg("scale").noconvert(), nb::arg("goal_weight").noconvert().none(),
           nb::arg("pairs").none(), nb::arg("neighbours").none())
      .def("derivatives", &QueryLoss::derivatives, nb::arg("raw").noconvert(),
           nb::arg("g").noconvert(), nb::arg("h").noconvert(), nb::arg("n_threads"),
           "Write the gradients and Hessians at raw scores, (n_rows, n_outputs), into g and h.")
      .def("losses", &QueryLoss::losses, nb::arg("raw").noconvert(), nb::arg("n_threads"),
           "Return the weighted loss of each query and output, (n_queries, n_outputs).");
}

}  // namespace polyleaf
