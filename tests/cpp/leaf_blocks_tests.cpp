// Every kind of leaf, in prediction, training and ranking.
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "data/binning.h"
#include "digest.h"
#include "forest/forest.h"
#include "leaves/leaf_kinds.h"
#include "problem.h"
#include "tests.h"

namespace polyleaf::tests {
namespace {

std::shared_ptr<const LeafBlock> random_leaves(const LeafKind* kind, std::mt19937& random,
                                               int32_t n_leaves, int32_t n_columns,
                                               int32_t n_features) {
  const Normal normal;
  const auto numbers = [&](size_t n) {
    std::vector<float> values(n);
    for (float& v : values) v = normal(random);
    return values;
  };
  const size_t size = static_cast<size_t>(n_leaves) * n_columns;
  if (kind == &kDense)
    return std::make_shared<DenseLeaves>(
        MatrixView<const float>(numbers(size).data(), n_leaves, n_columns));
  std::vector<int64_t> begin{0};
  std::vector<int32_t> entries;
  const int32_t limit = kind == &kTopk ? n_columns : n_features;
  for (int32_t l = 0; l < n_leaves; ++l) {
    for (int32_t at = static_cast<int32_t>(random() % 4); at < limit;
         at += 1 + static_cast<int32_t>(random() % limit))
      entries.push_back(at);
    begin.push_back(static_cast<int64_t>(entries.size()));
  }
  const auto n = static_cast<int64_t>(entries.size());
  if (kind == &kTopk) return std::make_shared<TopkLeaves>(begin, entries, numbers(n), n_columns);
  const std::vector<float> weights = numbers(n * n_columns), centre = numbers(n),
                           intercept = numbers(size), lower(size, -1.0f), upper(size, INFINITY);
  return std::make_shared<LinearLeaves>(LinearArrays{begin,
                                                     entries,
                                                     {weights.data(), n, n_columns},
                                                     centre,
                                                     {intercept.data(), n_leaves, n_columns},
                                                     {lower.data(), n_leaves, n_columns},
                                                     {upper.data(), n_leaves, n_columns}});
}

// A root whose children are leaves, on one feature.
std::shared_ptr<const Tree> stump(int32_t feature, int32_t threshold) {
  Tree tree;
  tree.feature = {feature, -1, -1};
  tree.threshold = {threshold, -1, -1};
  tree.missing_left = {1, 0, 0};
  tree.left = {1, -1, -1};
  tree.right = {2, -1, -1};
  tree.leaf = {-1, 0, 1};
  tree.category_set = {-1, -1, -1};
  tree.gain = {1, 0, 0};
  tree.count = {2, 1, 1};
  tree.cover = {2, 1, 1};
  tree.n_leaves = 2;
  check_tree(tree, feature + 1);
  return std::make_shared<const Tree>(tree);
}

// Predict, train and rank with every kind of leaf and every number of threads: results must be
// equal.
void test_leaf_blocks(int32_t n_outputs, const std::vector<const LeafKind*>& kinds, int64_t n,
                      int32_t n_trees) {
  const int32_t n_features = 5;
  std::mt19937 random(static_cast<uint32_t>(n_outputs));
  std::vector<uint8_t> codes(n * n_features);
  std::vector<float> features(codes.size());
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<uint8_t>(random());
    features[i] = random() % 9 == 0 ? std::nanf("") : static_cast<float>(random() % 100);
  }
  const CodeMatrix matrix{codes.data(), n_features, n};
  const FeatureMatrix x{features.data(), n_features, n};
  Forest forest(n_outputs);
  std::vector<float> expected(n * n_outputs, 0.0f);
  for (int32_t t = 0; t < n_trees; ++t) {
    const LeafKind* kind = kinds[t % kinds.size()];
    OutputList outputs;
    if (!kind->lists_outputs && t % 3 == 0) outputs = {t % n_outputs};
    if (!kind->lists_outputs && t % 3 == 1 && n_outputs > 2) outputs = {0, n_outputs - 1};
    const int32_t n_columns = outputs.empty() ? n_outputs : static_cast<int32_t>(outputs.size());
    const auto leaves = random_leaves(kind, random, 2, n_columns, n_features);
    forest.append(stump(t % n_features, static_cast<int32_t>(random() % 255)), leaves, outputs);
    std::vector<int32_t> leaf_of_row(n);
    forest.apply(matrix, leaf_of_row.data(), {t, t + 1}, 2);
    check_leaf_ids(leaf_of_row, 2, 3);
    add_leaf_values({expected.data(), n, n_outputs}, outputs, leaf_of_row.data(), leaves->view(), x,
                    3);
  }
  const TreeRange all{0, n_trees};
  const bool sparse = kinds.size() == 1 && kinds[0] == &kTopk;
  const std::vector<double> base(n_outputs, 0.5);
  std::vector<int32_t> first_outputs;
  for (int n_threads : {1, 2, 3}) {
    std::vector<float> raw(n * n_outputs, 0.0f);
    forest.predict(matrix, x, raw.data(), all, n_threads);
    CHECK(raw == expected);
    const int32_t k = 7;
    std::vector<int32_t> outputs(n * k), held(n * k);
    std::vector<double> scores(n * k);
    forest.topk(matrix, x, {}, k, held.data(), scores.data(), all, n_threads);
    forest.topk(matrix, x, {base.data(), nullptr, nullptr}, k, outputs.data(), scores.data(), all,
                n_threads);
    for (int64_t i = 0; i < n * k; ++i) {
      CHECK(outputs[i] < n_outputs && held[i] < n_outputs);
      if (outputs[i] >= 0) CHECK(scores[i] == 0.5 + double{raw[i / k * n_outputs + outputs[i]]});
      if (i % k > 0) CHECK(scores[i] <= scores[i - 1]);
    }
    if (n_threads == 1) {
      first_outputs = outputs;
      note("raw scores of every leaf kind", raw);
      note("topk outputs", outputs);
      note("topk scores", scores);
    }
    CHECK(outputs == first_outputs);
    if (!sparse) continue;
    const SparseScores rows = forest.sparse_scores(matrix, x, all, n_threads);
    note("sparse scores", rows.values);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t e = rows.begin[i]; e < rows.begin[i + 1]; ++e) {
        CHECK(rows.values[e] == raw[i * n_outputs + rows.outputs[e]]);
        if (e > rows.begin[i]) CHECK(rows.outputs[e - 1] < rows.outputs[e]);
      }
  }
}

}  // namespace

void test_leaves() {
  for (int32_t n_outputs : {1, 3, 8, 17, 70}) {
    test_leaf_blocks(n_outputs, {&kDense, &kTopk, &kLinear}, 700, 40);
    test_leaf_blocks(n_outputs, {&kTopk}, 300, 20);
  }
  test_leaf_blocks(2000, {&kTopk, &kDense}, 20, 5);
  test_leaf_blocks(2000, {&kTopk}, 300, 300);  // more trees than a block has rows
  test_leaf_blocks(100000, {&kTopk}, 20, 2);   // hashed
  const int64_t begin[] = {0, 2};
  const int32_t outputs[] = {1, 1};
  const float values[] = {1, 2};
  bool rejected = false;
  try {
    TopkLeaves(begin, outputs, values, 3);
  } catch (const std::invalid_argument&) {
    rejected = true;
  }
  CHECK(rejected);
}

}  // namespace polyleaf::tests
