// Training on sparse targets: both searches, leaves, raw scores and prediction.
#include <array>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "data/bins.h"
#include "data/sparse_rows.h"
#include "digest.h"
#include "forest/forest.h"
#include "forest/sparse_raw_scores.h"
#include "grower/grower.h"
#include "leaves/leaf_kinds.h"
#include "leaves/topk.h"
#include "losses/objectives.h"
#include "problem.h"
#include "quantised_gradients/quantised_gradients.h"
#include "search/exact_search.h"
#include "search/histogram_search.h"
#include "search/verified_search.h"
#include "sketch/sketch.h"
#include "tests.h"

namespace polyleaf::tests {
namespace {

// Some rounds of training on sparse targets.
struct LabelTraining {
  int64_t n_outputs;
  SparseRows targets;
  bool exact, sampled;
};

// The resulting raw scores and best outputs of each row.
std::vector<double> train_labels(const Problem& p, const LabelTraining& training, int n_threads) {
  const Bins bins(p.codes.data(), p.n, p.n_features, p.n_bins.data(), p.categorical.data(),
                  n_threads);
  Grower grower(bins, n_threads);
  HistogramSearch histograms(bins, n_threads);
  VerifiedSearch verified(bins, histograms, n_threads);
  ExactSearch exact(bins, n_threads);
  SparseRawScores scores(training.targets, n_threads);
  Forest forest(static_cast<int32_t>(training.n_outputs));
  std::vector<uint32_t> rows;
  std::vector<float> multiplier(p.n, 1.0f), weight(p.n), sketch(p.n * 8);
  for (int64_t i = 0; i < p.n; ++i) {
    if (i % 5 != 0) rows.push_back(static_cast<uint32_t>(i));
    if (i % 3 == 0) multiplier[i] = 2.5f;
    weight[i] = 0.5f + static_cast<float>(i % 4);
  }
  RowSample sample;
  sample.n_all = p.n;
  if (training.sampled) {
    sample.rows = rows.data();
    sample.n_rows = static_cast<int64_t>(rows.size());
    sample.multiplier = multiplier.data();
  }
  const float* w = training.sampled ? weight.data() : nullptr;
  const Loss loss("squared_hinge", {});
  GrowConfig config = grow_config();
  config.max_leaves = 12;
  config.level_wise = true;
  config.split.min_child_samples = 5;
  const int32_t n_rounds = 4, leaf_k = 3;
  for (int32_t round = 0; round < n_rounds; ++round) {
    SparseRows gradients;
    scores.gradients(loss, -1.0f, w, gradients, n_threads);
    QuantisedGradients channels;
    Tree tree;
    if (training.exact) {
      exact.use(gradients, w, sample, kStep, leaf_k, 0.05);
      tree = grower.grow(exact, config, nullptr);
    } else {
      count_sketch(gradients, static_cast<uint64_t>(round), 0.5f, {sketch.data(), p.n, 8},
                   n_threads);
      const HessianKind hessian = w != nullptr ? HessianKind::shared : HessianKind::unit;
      channels.quantise(sketch.data(), w, 8, hessian, sample, n_threads);
      histograms.use(channels);
      verified.use(gradients, w, channels.sample(), kStep, leaf_k, nullptr, 0);
      tree = grower.grow(verified, config, nullptr);
    }
    check_tree(tree, grower.leaf_of_row(), p.n);
    const TopkLeafArrays leaves = fit_topk_leaves(gradients, w, sample, grower.leaf_of_row(),
                                                  tree.n_leaves, kStep, leaf_k, n_threads);
    const auto block = std::make_shared<const TopkLeaves>(leaves.begin, leaves.outputs,
                                                          leaves.values, training.n_outputs);
    scores.add(grower.leaf_of_row(), block->view(), n_threads);
    forest.append(std::make_shared<const Tree>(tree), block, {});
  }
  const CodeMatrix codes{p.codes.data(), p.n_features, p.n};
  const SparseScores predicted = forest.sparse_scores(codes, {}, {0, n_rounds}, n_threads);
  std::vector<double> results;
  for (int64_t i = 0; i < p.n;
       ++i) {  // every output that a leaf has held is among what the row holds
    const SparseRow row = scores.raw().row(i);
    int64_t e = 0;
    for (int64_t at = predicted.begin[i]; at < predicted.begin[i + 1]; ++at) {
      while (e < row.n && row.outputs[e] < predicted.outputs[at]) ++e;
      CHECK(e < row.n && row.outputs[e] == predicted.outputs[at] &&
            row.values[e] == predicted.values[at]);
    }
    results.insert(results.end(), row.values, row.values + row.n);
  }
  const int32_t k = 4;
  std::vector<int32_t> outputs(p.n * k);
  std::vector<double> best(p.n * k);
  forest.topk(codes, {}, {}, k, outputs.data(), best.data(), {0, n_rounds}, n_threads);
  results.insert(results.end(), outputs.begin(), outputs.end());
  scores.topk(k, outputs.data(), best.data(), n_threads);
  results.insert(results.end(), outputs.begin(), outputs.end());
  return results;
}

}  // namespace

void test_sparse() {
  for (const auto& [n, n_outputs] : {std::array<int64_t, 2>{600, 40}, {2600, 7000}, {1, 3}}) {
    std::mt19937 random(static_cast<uint32_t>(n));
    std::vector<int64_t> indptr{0};
    std::vector<int32_t> labels;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t label = random() % 9; label < n_outputs; label += 1 + random() % (n_outputs / 2))
        labels.push_back(static_cast<int32_t>(label));
      indptr.push_back(static_cast<int64_t>(labels.size()));
    }
    Problem p = make_problem(static_cast<uint32_t>(n), n, 9, 1);
    for (bool exact : {false, true})
      for (bool sampled : {false, n > 1}) {
        if (exact) p.categorical.assign(p.categorical.size(), 0);
        std::vector<double> first;
        for (int n_threads : {1, 2, 3}) {
          const auto n_entries = static_cast<int64_t>(labels.size());
          const LabelTraining training{n_outputs,
                                       make_sparse_rows(indptr.data(), labels.data(), nullptr, n,
                                                        n_entries, n_outputs, n_threads),
                                       exact, sampled};
          const std::vector<double> found = train_labels(p, training, n_threads);
          if (n_threads == 1) {
            first = found;
            note(exact ? "labels exact" : "labels verified", found);
          }
          CHECK(found == first);
        }
      }
  }
  const int64_t indptr[] = {0, 2};
  const int32_t unsorted[] = {2, 1}, outside[] = {0, 3};
  for (const int32_t* outputs : {unsorted, outside}) {
    bool rejected = false;
    try {
      make_sparse_rows(indptr, outputs, nullptr, 1, 2, 3, 1);
    } catch (const std::invalid_argument&) {
      rejected = true;
    }
    CHECK(rejected);
  }
}

}  // namespace polyleaf::tests
