// The core's own tests, for the sanitizers (scripts/sanitize): they drive every part through its memory and
// threads. That results are right is what the Python tests against tests/reference.py show; here results are
// only compared between thread counts and with what can be said in a line.
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "binning.h"
#include "bins.h"
#include "channels.h"
#include "forest.h"
#include "grower.h"
#include "leaves/newton.h"
#include "objectives.h"
#include "parallel.h"

namespace {

using namespace polyleaf;

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      std::fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                 \
    }                                                                               \
  } while (false)

void test_parallel() {
  for (int n_threads : {1, 2, 3, 8}) {
    std::vector<int> ran(1000, 0);
    parallel_for(n_threads, 1000, [&](int64_t task, int thread) {
      CHECK(thread >= 0 && thread < n_threads);
      ++ran[task];
    });
    for (int count : ran) CHECK(count == 1);
  }
  std::atomic<int> inner{0};
  parallel_for(2, 4, [&](int64_t, int) { parallel_for(2, 5, [&](int64_t, int) { ++inner; }); });
  CHECK(inner == 20);
  bool thrown = false;
  try {
    parallel_for(3, 100, [](int64_t task, int) {
      if (task == 17) throw std::runtime_error("17");
    });
  } catch (const std::runtime_error& error) {
    thrown = std::strcmp(error.what(), "17") == 0;
  }
  CHECK(thrown);
  std::atomic<int> after{0};
  parallel_for(3, 10, [&](int64_t, int) { ++after; });
  CHECK(after == 10);
}

struct Problem {
  int64_t n;
  int n_features, n_outputs;
  std::vector<uint8_t> codes, categorical;
  std::vector<uint16_t> n_bins;
  std::vector<float> g, h;
};

Problem make_problem(uint32_t seed, int64_t n, int n_features, int n_outputs) {
  std::mt19937 random(seed);
  Problem p{n, n_features, n_outputs, {}, {}, {}, {}, {}};
  const int sizes[] = {1, 2, 3, 4, 15, 16, 63, 64, 255};
  for (int f = 0; f < n_features; ++f) {
    const int bins = sizes[random() % 9];
    p.n_bins.push_back(static_cast<uint16_t>(bins));
    p.categorical.push_back(f % 5 == 4);
    for (int64_t i = 0; i < n; ++i) p.codes.push_back(random() % 11 == 0 ? 255 : random() % bins);
  }
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < n * n_outputs; ++i) {
    p.g.push_back(normal(random) + p.codes[i / n_outputs] * 0.01f);
    p.h.push_back(std::fabs(normal(random)));
  }
  return p;
}

void check_tree(const Tree& tree, const int32_t* leaf_of_row, int64_t n) {
  int32_t leaves = 0;
  for (int32_t i = 0; i < tree.n_nodes(); ++i) {
    if (tree.left[i] < 0) {
      CHECK(tree.leaf[i] == leaves++);
      continue;
    }
    CHECK(tree.left[i] > i && tree.right[i] == tree.left[i] + 1 && tree.right[i] < tree.n_nodes());
    CHECK(tree.count[i] == tree.count[tree.left[i]] + tree.count[tree.right[i]]);
    CHECK(tree.gain[i] > 0);
  }
  CHECK(leaves == tree.n_leaves);
  for (int64_t i = 0; i < n; ++i) CHECK(leaf_of_row[i] >= 0 && leaf_of_row[i] < leaves);
}

// One tree and its leaf values for every thread count, sampled or not: the same each time.
void test_grow(const Problem& p, Curvature curvature, const GrowConfig& config, bool sampled) {
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
  const int h_columns = curvature == Curvature::diagonal ? p.n_outputs : 1;
  const float* h = curvature == Curvature::unit ? nullptr : p.h.data();
  std::vector<float> first;
  std::vector<int32_t> first_leaves;
  for (int n_threads : {1, 2, 3}) {
    const Bins bins(p.codes.data(), p.n, p.n_features, p.n_bins.data(), p.categorical.data(), n_threads);
    Channels channels;
    Grower grower(bins, n_threads);
    Tree tree;
    for (int again = 0; again < 2; ++again) {  // memory is reused
      channels.quantise(p.g.data(), h, p.n_outputs, curvature, sample, n_threads);
      tree = grower.grow(channels, config, nullptr);
      check_tree(tree, grower.leaf_of_row(), p.n);
    }
    std::vector<float> values(static_cast<size_t>(tree.n_leaves) * p.n_outputs);
    newton_leaves(p.g.data(), h, p.n_outputs, h_columns, sample, grower.leaf_of_row(), tree.n_leaves, {},
                  n_threads, values.data());
    std::vector<int32_t> leaves(grower.leaf_of_row(), grower.leaf_of_row() + p.n);
    if (n_threads == 1) {
      first = values;
      first_leaves = leaves;
    }
    CHECK(values == first && leaves == first_leaves);

    Forest forest(p.n_outputs);
    forest.append(std::make_shared<const Tree>(tree), values.data(), p.n_outputs, -1);
    std::vector<float> raw(p.n * p.n_outputs, 0.0f), expected(raw);
    forest.predict({p.codes.data(), p.n_features, p.n}, raw.data(), {0, 1}, n_threads);
    add_leaf_values(expected.data(), p.n, p.n_outputs, -1, leaves.data(), values.data(), n_threads);
    CHECK(raw == expected);
    std::vector<int32_t> applied(p.n);
    forest.apply({p.codes.data(), p.n_features, p.n}, applied.data(), {0, 1}, n_threads);
    CHECK(applied == leaves);
  }
}

void test_growing() {
  uint32_t seed = 0;
  for (int n_outputs : {1, 3, 16, 37, 70})
    for (Curvature curvature : {Curvature::unit, Curvature::shared, Curvature::diagonal})
      for (bool sampled : {false, true}) {
        const Problem p = make_problem(++seed, sampled ? 700 : 900, 11, n_outputs);
        GrowConfig config;
        config.max_leaves = 20;
        config.split.min_child_samples = 3;
        config.level_wise = seed % 2 == 0;
        config.colsample_bynode = seed % 3 == 0 ? 0.5 : 1.0;
        config.histogram_memory = seed % 4 == 0 ? 0 : size_t{1} << 30;
        config.split.reg_alpha = seed % 5 == 0 ? 0.1f : 0.0f;
        test_grow(p, curvature, config, sampled);
      }
  GrowConfig deep;
  deep.max_leaves = 3000;
  test_grow(make_problem(99, 40000, 3, 2), Curvature::shared, deep, false);  // chunks, kept histograms
  test_grow(make_problem(98, 1, 2, 2), Curvature::unit, deep, false);        // one row
}

void test_refusals() {
  Problem p = make_problem(5, 100, 3, 2);
  p.codes[7] = 254;
  p.n_bins = {2, 2, 2};
  bool refused = false;
  try {
    Bins bins(p.codes.data(), p.n, 3, p.n_bins.data(), p.categorical.data(), 2);
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  CHECK(refused);
  p.g[3] = std::nanf("");
  refused = false;
  RowSample sample;
  sample.n_all = p.n;
  try {
    Channels().quantise(p.g.data(), nullptr, 2, Curvature::unit, sample, 3);
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  CHECK(refused);
}

void test_objectives() {
  const int64_t n = 1003, k = 5;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> raw(n * k), target(n * k), g(n * k), h(n * k), offset(k, 0.1f), parameter(k, 0.5f);
  std::vector<int32_t> label(n);
  for (auto& x : raw) x = 3 * normal(random);
  for (auto& y : target) y = normal(random) > 0 ? 1.0f : 0.0f;
  for (auto& c : label) c = static_cast<int32_t>(random() % k);
  LossInput input;
  input.n_rows = n;
  input.n_outputs = k;
  input.raw = raw.data();
  input.target = target.data();
  input.label = label.data();
  input.offset = offset.data();
  input.parameter = parameter.data();
  for (LossFamily family :
       {LossFamily::squared_error, LossFamily::absolute_error, LossFamily::quantile, LossFamily::huber,
        LossFamily::log_link, LossFamily::logistic, LossFamily::squared_hinge}) {
    LossConfig config;
    config.family = family;
    derivatives(config, input, g.data(), has_unit_curvature(family) ? nullptr : h.data(), k, 3);
    for (float x : g) CHECK(std::isfinite(x));
    CHECK(mean_loss(config, input, 1) == mean_loss(config, input, 3));
  }
  softmax_derivatives(SoftmaxCurvature::scaled, 1.0f, input, g.data(), h.data(), 2);
  for (int64_t i = 0; i < n; ++i) {
    float sum = 0;
    for (int64_t j = 0; j < k; ++j) sum += g[i * k + j];
    CHECK(std::fabs(sum) < 1e-5f);
  }
}

}  // namespace

int main() {
  test_parallel();
  test_growing();
  test_refusals();
  test_objectives();
  std::puts("core tests passed");
}
