// Trees and dense leaves with any number of threads, with and without sampling, from dense and
// sparse codes.
#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "data/bins.h"
#include "digest.h"
#include "forest/forest.h"
#include "grower/grower.h"
#include "grower/host_row_partitioner.h"
#include "leaves/leaf_kinds.h"
#include "leaves/newton.h"
#include "problem.h"
#include "quantised_gradients/quantised_gradients.h"
#include "search/histogram_search.h"
#include "tests.h"

namespace polyleaf::tests {
namespace {

// Grow one tree and its leaf values for every thread count, sampled or not: results must be equal.
void test_grow(const Problem& p, HessianKind hessian, const GrowConfig& config, bool sampled) {
  std::vector<uint32_t> rows;
  std::vector<float> multiplier(p.n, 1.0f);
  for (int64_t i = 0; i < p.n; i += 1 + i % 3) rows.push_back(static_cast<uint32_t>(i));
  for (int64_t i = 0; i < p.n; ++i) multiplier[i] = i % 4 == 0 ? 2.5f : 1.0f;
  RowSample sample;
  sample.n_all = p.n;
  if (sampled) {
    sample.rows = rows.data();
    sample.n_rows = static_cast<int64_t>(rows.size());
    sample.multiplier = multiplier.data();
  }
  const int h_columns = hessian == HessianKind::diagonal ? p.n_outputs : 1;
  const float* h = hessian == HessianKind::unit ? nullptr : p.h.data();
  std::vector<float> first;
  std::vector<int32_t> first_leaves;
  for (int n_threads : {1, 2, 3}) {
    const Bins bins(p.codes.data(), p.n, p.n_features, p.n_bins.data(), p.categorical.data(),
                    n_threads);
    QuantisedGradients channels;
    Grower grower(bins, n_threads);
    HistogramSearch search(bins, n_threads);
    Tree tree;
    for (int again = 0; again < 2; ++again) {  // memory is reused
      channels.quantise(p.g.data(), h, p.n_outputs, hessian, sample, n_threads);
      search.use(channels);
      tree = grower.grow(search, config, nullptr);
      check_tree(tree, grower.leaf_of_row(), p.n);
    }
    std::vector<float> values(static_cast<size_t>(tree.n_leaves) * p.n_outputs);
    fit_newton_leaves({p.g.data(), p.n, p.n_outputs}, {h, p.n, h_columns}, sample,
                      grower.leaf_of_row(), kStep, n_threads,
                      {values.data(), tree.n_leaves, p.n_outputs});
    std::vector<int32_t> leaves(grower.leaf_of_row(), grower.leaf_of_row() + p.n);
    if (n_threads == 1) {
      first = values;
      first_leaves = leaves;
      note("tree feature", tree.feature);
      note("tree threshold", tree.threshold);
      note("tree missing_left", tree.missing_left);
      note("tree gain", tree.gain);
      note("tree count", tree.count);
      note("tree cover", tree.cover);
      note("tree output_gain", tree.output_gain);
      note("tree leaves", leaves);
      note("leaf values", values);
    }
    CHECK(values == first && leaves == first_leaves);

    const HeldLabels held(p);
    const Bins cell_bins(held.dense.data(), p.n, p.n_features, p.n_bins.data(),
                         p.categorical.data(), n_threads, held.columns());
    Grower label_grower(cell_bins, n_threads);
    HistogramSearch label_search(cell_bins, n_threads);
    for (int again = 0; again < 2; ++again) {
      label_search.use(channels);
      const Tree same = label_grower.grow(label_search, config, nullptr);
      CHECK(same.gain == tree.gain && same.threshold == tree.threshold &&
            same.feature == tree.feature);
      CHECK(std::equal(leaves.begin(), leaves.end(), label_grower.leaf_of_row()));
    }

    Forest forest(p.n_outputs);
    const auto block = std::make_shared<const DenseLeaves>(
        MatrixView<const float>(values.data(), tree.n_leaves, p.n_outputs));
    forest.append(std::make_shared<const Tree>(tree), block, {});
    std::vector<float> raw(p.n * p.n_outputs, 0.0f), expected(raw);
    forest.predict({p.codes.data(), p.n_features, p.n}, {}, raw.data(), {0, 1}, n_threads);
    add_leaf_values({expected.data(), p.n, p.n_outputs}, {}, leaves.data(), block->view(), {},
                    n_threads);
    CHECK(raw == expected);
    note("raw scores", raw);
    std::vector<int32_t> applied(p.n);
    forest.apply({p.codes.data(), p.n_features, p.n}, applied.data(), {0, 1}, n_threads);
    CHECK(applied == leaves);
  }
}

}  // namespace

void test_growing() {
  uint32_t seed = 0;
  for (int n_outputs : {1, 3, 16, 37, 70})
    for (HessianKind hessian : {HessianKind::unit, HessianKind::shared, HessianKind::diagonal})
      for (bool sampled : {false, true}) {
        const Problem p = make_problem(++seed, sampled ? 700 : 900, 11, n_outputs);
        GrowConfig config = grow_config();
        config.max_leaves = 20;
        config.split.min_child_samples = 3;
        config.level_wise = seed % 2 == 0;
        config.colsample_bynode = seed % 3 == 0 ? 0.5 : 1.0;
        config.histogram_memory = seed % 4 == 0 ? 0 : size_t{1} << 30;
        config.split.reg_alpha = seed % 5 == 0 ? 0.1f : 0.0f;
        test_grow(p, hessian, config, sampled);
      }
  GrowConfig deep = grow_config();
  deep.max_leaves = 3000;
  test_grow(make_problem(99, 40000, 3, 2), HessianKind::shared, deep,
            false);                                                      // chunks, kept histograms
  test_grow(make_problem(98, 1, 2, 2), HessianKind::unit, deep, false);  // one row
}

// Sums must not depend on the order of rows: neither when runs of rows are packed, nor for very
// frequent codes.
void test_orders() {
  constexpr int64_t n = 50001;
  constexpr int kFeatures = 8;
  Problem p = make_problem(11, n, kFeatures, 1);
  std::fill(p.n_bins.begin(), p.n_bins.end(), 200);
  std::fill(p.categorical.begin(), p.categorical.end(), 0);
  uint32_t state = 1;
  const auto random = [&state] { return (state = state * 1664525u + 1013904223u) >> 8; };
  for (uint8_t& code : p.codes) code = static_cast<uint8_t>(random() % 10 < 3 ? 7 : random() % 200);
  std::vector<int64_t> order(n);
  for (int64_t i = 0; i < n; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return p.codes[a] < p.codes[b]; });
  Problem sorted = p;
  for (int64_t i = 0; i < n; ++i) {
    for (int f = 0; f < kFeatures; ++f) sorted.codes[f * n + i] = p.codes[f * n + order[i]];
    sorted.g[i] = p.g[order[i]];
    sorted.h[i] = p.h[order[i]];
  }
  GrowConfig config = grow_config();
  config.max_leaves = 12;
  RowSample sample;
  sample.n_all = n;
  std::vector<Tree> trees;
  for (const Problem* problem : {&p, &sorted})
    for (const int n_threads : {1, 3}) {
      const Bins bins(problem->codes.data(), n, kFeatures, problem->n_bins.data(),
                      problem->categorical.data(), n_threads);
      QuantisedGradients channels;
      channels.quantise(problem->g.data(), problem->h.data(), 1, HessianKind::shared, sample,
                        n_threads);
      HistogramSearch search(bins, n_threads);
      search.use(channels);
      Grower grower(bins, n_threads);
      trees.push_back(grower.grow(search, config, nullptr));
      const Tree &first = trees.front(), &tree = trees.back();
      CHECK(tree.n_leaves > 6 && tree.gain == first.gain && tree.cover == first.cover &&
            tree.count == first.count && tree.feature == first.feature &&
            tree.threshold == first.threshold);
    }
}

// The words of a node's rows must match its ids, whether they are read in place or gathered.
void test_words() {
  Problem p = make_problem(7, 30000, 9, 1);
  std::fill(p.n_bins.begin(), p.n_bins.end(), 100);
  for (size_t i = 0; i < p.codes.size(); ++i)
    p.codes[i] = static_cast<uint8_t>(i * 2654435761u >> 13) % 100;
  std::vector<uint32_t> some;
  for (int64_t i = 0; i < p.n; i += 3) some.push_back(static_cast<uint32_t>(i));
  for (const bool sampled : {false, true})
    for (const int n_threads : {1, 5}) {
      const Bins bins(p.codes.data(), p.n, 9, p.n_bins.data(), p.categorical.data(), n_threads);
      RowSample sample;
      sample.n_all = p.n;
      if (sampled) {
        sample.rows = some.data();
        sample.n_rows = static_cast<int64_t>(some.size());
      }
      HostRowPartitioner partition(bins, n_threads);
      RowRange rows = partition.start(sample);
      for (int depth = 0; depth < 9; ++depth) {
        std::vector<RowPartitioner::PartitionRequest> division(1);
        division[0].rows = rows;
        division[0].feature = depth;
        division[0].threshold = 45;
        partition.partition_rows(division);
        CHECK(division[0].left.size() + division[0].right.size() == rows.size());
        rows = depth % 2 == 0 ? division[0].left : division[0].right;
        std::vector<uint64_t> room(static_cast<size_t>(rows.size()) + 8);
        for (int t = 0; t < bins.n_tiles(); ++t) {
          const uint64_t* words = partition.words(rows, t, 0, rows.size(), room.data());
          for (int64_t i = 0; i < rows.size(); ++i)
            CHECK(words[i] == bins.words(t)[partition.ids(rows)[i]]);
        }
      }
    }
}

void test_invalid_input() {
  Problem p = make_problem(5, 100, 3, 2);
  p.codes[7] = 254;
  p.n_bins = {2, 2, 2};
  bool rejected = false;
  try {
    Bins bins(p.codes.data(), p.n, 3, p.n_bins.data(), p.categorical.data(), 2);
  } catch (const std::invalid_argument&) {
    rejected = true;
  }
  CHECK(rejected);
  const int32_t beyond[] = {1, 9};  // must be rejected before it is used as an index
  const uint8_t common[] = {0, 0};
  const int64_t begin[] = {0, 0, 0};
  rejected = false;
  try {
    const CompressedColumns columns{.n = 2, .features = beyond, .common = common, .begin = begin};
    Bins bins(p.codes.data(), p.n, 3, p.n_bins.data(), p.categorical.data(), 2, columns);
  } catch (const std::invalid_argument&) {
    rejected = true;
  }
  CHECK(rejected);
  p.g[3] = std::nanf("");
  rejected = false;
  RowSample sample;
  sample.n_all = p.n;
  try {
    QuantisedGradients().quantise(p.g.data(), nullptr, 2, HessianKind::unit, sample, 3);
  } catch (const std::invalid_argument&) {
    rejected = true;
  }
  CHECK(rejected);
}

}  // namespace polyleaf::tests
