// From numbers to thresholds, codes and a tree; its predictions for plain numbers, and SHAP values.
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "check.h"
#include "data/binning.h"
#include "data/bins.h"
#include "digest.h"
#include "explain/explainer.h"
#include "forest/forest.h"
#include "forest/row_predictor.h"
#include "grower/grower.h"
#include "leaves/leaf_kinds.h"
#include "leaves/newton.h"
#include "leaves/quantile.h"
#include "problem.h"
#include "quantised_gradients/quantised_gradients.h"
#include "search/histogram_search.h"
#include "tests.h"

namespace polyleaf::tests {
namespace {

constexpr int64_t kRows = 1500;
constexpr int kFeatures = 6, kOutputs = 3;

// Feature-major numbers and targets.
struct NumberProblem {
  std::vector<double> x;
  std::vector<float> y;

  NumberProblem() {
    std::mt19937 random(21);
    const Normal normal;
    for (int64_t i = 0; i < kFeatures * kRows; ++i)
      x.push_back(random() % 13 == 0 ? std::nan("") : double{normal(random)} * 1000 / 7);
    for (int64_t i = 0; i < kRows; ++i)
      for (int k = 0; k < kOutputs; ++k)
        y.push_back(normal(random) + static_cast<float>(x[k * kRows + i] > 0 ? k + 1 : 0));
  }
  Columns columns() const {
    Columns columns;
    columns.n_rows = kRows;
    for (int32_t f = 0; f < kFeatures; ++f)
      columns.dense.push_back(
          {f, ValueType::f64, reinterpret_cast<const char*>(x.data() + f * kRows), sizeof(double)});
    return columns;
  }
  NumberRows rows() const {
    return {reinterpret_cast<const char*>(x.data()),
            ValueType::f64,
            kRows,
            kFeatures,
            static_cast<ptrdiff_t>(sizeof(double)),
            kRows * ptrdiff_t{sizeof(double)}};
  }
};

// Results of a training and of its predictions.
struct Results {
  std::vector<double> thresholds, scores, expected, gains;
  std::vector<uint8_t> codes;
  std::vector<float> medians, shap, interactions, background;
  bool operator==(const Results&) const = default;
};

// Explain some rows.
std::vector<float> explain(const Explainer& explainer, const uint8_t* codes, bool interactions,
                           int n_threads) {
  const int32_t outputs[] = {0, 2};
  const size_t per_row = 2 * kFeatures * (interactions ? kFeatures : 1);
  std::vector<float> out(kRows * per_row, 0.0f);
  explainer.explain({codes, kFeatures, kRows}, {}, {outputs, 2, nullptr}, interactions, out.data(),
                    n_threads);
  return out;
}

Results train(const NumberProblem& p, int n_threads) {
  Results results;
  const std::vector<Thresholds> thresholds =
      find_thresholds(p.columns(), {kRows, nullptr, nullptr}, kFeatures, 63, n_threads);
  std::vector<uint16_t> n_bins;
  for (const Thresholds& of_feature : thresholds) {
    n_bins.push_back(static_cast<uint16_t>(of_feature.values.size() + 1));
    results.thresholds.insert(results.thresholds.end(), of_feature.values.begin(),
                              of_feature.values.end());
  }
  const auto table = std::make_shared<const BinTable>(thresholds);
  std::vector<int32_t> code_rows;
  for (int32_t f = 0; f < kFeatures; ++f) code_rows.push_back(f);
  results.codes.resize(kFeatures * kRows);
  table->transform(p.columns(), results.codes.data(), n_threads, code_rows.data());

  const std::vector<uint8_t> categorical(kFeatures, 0);
  const Bins bins(results.codes.data(), kRows, kFeatures, n_bins.data(), categorical.data(),
                  n_threads);
  RowSample sample;
  sample.n_all = kRows;
  std::vector<float> gradients;
  for (const float y : p.y) gradients.push_back(-y);
  QuantisedGradients channels;
  channels.quantise(gradients.data(), nullptr, kOutputs, HessianKind::unit, sample, n_threads);
  HistogramSearch search(bins, n_threads);
  search.use(channels);
  Grower grower(bins, n_threads);
  GrowConfig config = grow_config();
  config.max_leaves = 12;
  const Tree tree = grower.grow(search, config, nullptr);
  results.gains = tree.gain;
  std::vector<float> values(static_cast<size_t>(tree.n_leaves) * kOutputs);
  fit_newton_leaves({gradients.data(), kRows, kOutputs}, {}, sample, grower.leaf_of_row(), kStep,
                    n_threads, {values.data(), tree.n_leaves, kOutputs});
  const std::vector<double> level(kOutputs, 0.5);
  results.medians.resize(values.size());
  fit_quantile_leaves<float>({p.y.data(), kRows, kOutputs}, {}, sample, grower.leaf_of_row(), level,
                             n_threads, {results.medians.data(), tree.n_leaves, kOutputs});

  const auto forest = std::make_shared<Forest>(kOutputs);
  forest->append(std::make_shared<const Tree>(tree),
                 std::make_shared<const DenseLeaves>(
                     MatrixView<const float>(values.data(), tree.n_leaves, kOutputs)),
                 {});
  const RowPredictor predictor(forest, table, {}, {}, std::vector<double>(kOutputs, 0.25), {}, {});
  results.scores.resize(kRows * kOutputs);
  predictor.scores(p.rows(), results.scores.data(), n_threads);

  const Explainer count_explainer(*forest, {0, 1});
  const int32_t outputs[] = {0, 2};
  results.expected.resize(2);
  count_explainer.expected_values({outputs, 2, nullptr}, results.expected.data());
  results.shap = explain(count_explainer, results.codes.data(), false, n_threads);
  results.interactions = explain(count_explainer, results.codes.data(), true, n_threads);
  const Explainer background_explainer(*forest, {0, 1}, {results.codes.data(), kFeatures, kRows},
                                       {}, n_threads);
  results.background = explain(background_explainer, results.codes.data(), false, n_threads);
  return results;
}

}  // namespace

void test_model() {
  const NumberProblem p;
  const Results first = train(p, 1);
  for (int n_threads : {2, 3}) CHECK(train(p, n_threads) == first);
  note("thresholds", first.thresholds);
  note("codes", first.codes);
  note("gains of a model", first.gains);
  note("quantile leaves", first.medians);
  note("scores of rows", first.scores);
  note("expected values", first.expected);
  note("SHAP values", first.shap);
  note("SHAP interactions", first.interactions);
  note("SHAP values with background", first.background);
  // Contributions add up to the score.
  for (int64_t i = 0; i < kRows; ++i) {
    double sum = first.expected[0] + 0.25;
    for (int f = 0; f < kFeatures; ++f) sum += first.shap[(i * kFeatures + f) * 2];
    CHECK(std::fabs(sum - first.scores[i * kOutputs]) < 1e-4);
  }
}

}  // namespace polyleaf::tests
