// The core's own tests, for the sanitizers (scripts/sanitize): they drive every part through its memory and
// threads. That results are right is what the Python tests against tests/reference.py show; here results are
// only compared between thread counts and with what can be said in a line.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "binning.h"
#include "bins.h"
#include "channels.h"
#include "csr_product.h"
#include "exact_search.h"
#include "forest.h"
#include "grower.h"
#include "histogram_search.h"
#include "leaves/dense_block.h"
#include "leaves/linear.h"
#include "leaves/newton.h"
#include "leaves/sparse.h"
#include "leaves/sparse_block.h"
#include "linear_channels.h"
#include "objectives.h"
#include "parallel.h"
#include "sketch.h"
#include "sparse_rows.h"
#include "sparse_scores.h"
#include "sparse_text.h"
#include "verified_search.h"

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

// Settings, which have no defaults, where a test does not care.
GrowConfig grow_config() {
  const SplitConfig split{.reg_lambda = 1.0f,
                          .reg_alpha = 0.0f,
                          .max_delta_step = 0.0f,
                          .min_child_weight = 0.0f,
                          .min_child_samples = 1,
                          .min_split_gain = 0.0,
                          .max_cat_to_onehot = 4,
                          .cat_smooth = 10.0,
                          .block_size = 0,
                          .leaf_k = 0,
                          .shared_support = false};
  return {.split = split,
          .max_leaves = 31,
          .max_depth = -1,
          .level_wise = false,
          .post_prune = false,
          .colsample_bynode = 1.0,
          .seed = 0,
          .histogram_memory = size_t{1} << 30};
}

const LeafConfig kStep{
    .reg_lambda = 1.0, .reg_alpha = 0.0, .max_delta_step = 0.0, .learning_rate = 1.0, .block_size = 0};
const LinearLeafConfig kLinearStep{
    .reg_lambda = 1.0, .linear_lambda = 1.0, .learning_rate = 1.0, .max_regressors = 5, .clip = true};

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

// The problem's codes as compressed columns of the features that are no categories, the others dense.
struct HeldSparse {
  std::vector<int32_t> features, rows;
  std::vector<uint8_t> common, codes, dense;
  std::vector<int64_t> begin = {0};

  explicit HeldSparse(const Problem& p) {
    for (int f = 0; f < p.n_features; ++f) {
      const uint8_t* column = p.codes.data() + f * p.n;
      if (p.categorical[f]) {
        dense.insert(dense.end(), column, column + p.n);
        continue;
      }
      features.push_back(f);
      common.push_back(static_cast<uint8_t>(f % p.n_bins[f]));
      for (int64_t i = 0; i < p.n; ++i) {
        if (column[i] == common.back()) continue;
        rows.push_back(static_cast<int32_t>(i));
        codes.push_back(column[i]);
      }
      begin.push_back(static_cast<int64_t>(rows.size()));
    }
  }
  SparseCodeColumns columns() const {
    return {static_cast<int64_t>(features.size()),
            features.data(),
            common.data(),
            begin.data(),
            rows.data(),
            codes.data()};
  }
};

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
    HistogramSearch search(bins, n_threads);
    Tree tree;
    for (int again = 0; again < 2; ++again) {  // memory is reused
      channels.quantise(p.g.data(), h, p.n_outputs, curvature, sample, n_threads);
      search.use(channels);
      tree = grower.grow(search, config, nullptr);
      check_tree(tree, grower.leaf_of_row(), p.n);
    }
    std::vector<float> values(static_cast<size_t>(tree.n_leaves) * p.n_outputs);
    newton_leaves(p.g.data(), h, p.n_outputs, h_columns, sample, grower.leaf_of_row(), tree.n_leaves, kStep,
                  n_threads, values.data());
    std::vector<int32_t> leaves(grower.leaf_of_row(), grower.leaf_of_row() + p.n);
    if (n_threads == 1) {
      first = values;
      first_leaves = leaves;
    }
    CHECK(values == first && leaves == first_leaves);

    const HeldSparse held(p);
    const Bins sparse_bins(held.dense.data(), p.n, p.n_features, p.n_bins.data(), p.categorical.data(),
                           n_threads, held.columns());
    Grower sparse_grower(sparse_bins, n_threads);
    HistogramSearch sparse_search(sparse_bins, n_threads);
    for (int again = 0; again < 2; ++again) {
      sparse_search.use(channels);
      const Tree same = sparse_grower.grow(sparse_search, config, nullptr);
      CHECK(same.gain == tree.gain && same.threshold == tree.threshold && same.feature == tree.feature);
      CHECK(std::equal(leaves.begin(), leaves.end(), sparse_grower.leaf_of_row()));
    }

    Forest forest(p.n_outputs);
    const auto block = std::make_shared<const DenseLeaves>(values.data(), tree.n_leaves, p.n_outputs);
    forest.append(std::make_shared<const Tree>(tree), block, -1);
    std::vector<float> raw(p.n * p.n_outputs, 0.0f), expected(raw);
    forest.predict({p.codes.data(), p.n_features, p.n}, {}, raw.data(), {0, 1}, n_threads);
    add_leaf_values(expected.data(), p.n, p.n_outputs, -1, leaves.data(), block->view(), {}, n_threads);
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
        GrowConfig config = grow_config();
        config.max_leaves = 20;
        config.split.min_child_samples = 3;
        config.level_wise = seed % 2 == 0;
        config.colsample_bynode = seed % 3 == 0 ? 0.5 : 1.0;
        config.histogram_memory = seed % 4 == 0 ? 0 : size_t{1} << 30;
        config.split.reg_alpha = seed % 5 == 0 ? 0.1f : 0.0f;
        test_grow(p, curvature, config, sampled);
      }
  GrowConfig deep = grow_config();
  deep.max_leaves = 3000;
  test_grow(make_problem(99, 40000, 3, 2), Curvature::shared, deep, false);  // chunks, kept histograms
  test_grow(make_problem(98, 1, 2, 2), Curvature::unit, deep, false);        // one row
}

// Splits feature 0 in the middle of the codes that a node has, tells counts of its own, as if other rows of
// the node lay elsewhere, and bounds the one value of a node by its codes.
class ToldSearch final : public Search {
 public:
  explicit ToldSearch(int64_t n) { sample_.n_all = n; }
  const RowSample& sample() const override { return sample_; }
  int n_outputs() const override { return 0; }
  void start(const SearchScope& scope, const SearchNode&) override {
    scope_ = &scope;
    codes_ = {{0, 255}};
  }
  void evaluate(const std::vector<SearchNode>& nodes, bool, std::vector<Choice>& choices) override {
    choices.assign(nodes.size(), Choice());
    for (size_t i = 0; i < nodes.size(); ++i)
      if (scope_->can_split(nodes[i])) choices[i] = {1.0, 0, middle(nodes[i].id), false, {}, 3};
  }
  void split(int32_t parent, SearchNode& left, SearchNode& right, float*) override {
    left.state.upper = {static_cast<float>(middle(parent))};
    right.state.lower = {static_cast<float>(middle(parent))};
    codes_.resize(right.id + 1);
    codes_[left.id] = {codes_[parent][0], middle(parent)};
    codes_[right.id] = {middle(parent) + 1, codes_[parent][1]};
  }
  double cover(int32_t) const override { return 0; }

 private:
  int32_t middle(int32_t node) const { return (codes_[node][0] + codes_[node][1]) / 2; }

  RowSample sample_;
  const SearchScope* scope_ = nullptr;
  std::vector<std::array<int32_t, 2>> codes_;  // first and last of each node
};

struct ToldProblem {
  static constexpr int64_t n = 20000;
  std::vector<uint8_t> codes = std::vector<uint8_t>(n);
  const std::vector<uint8_t> categorical = {0};
  const std::vector<uint16_t> n_bins = {255};
  ToldProblem() {
    for (int64_t i = 0; i < n; ++i) codes[i] = static_cast<uint8_t>(i * 7 % 255);
  }
  Bins bins(int n_threads) const {
    return {codes.data(), n, 1, n_bins.data(), categorical.data(), n_threads};
  }
};

// Counts are what searches say; where rows go is the partition's to find.
void test_counts_are_not_ranges() {
  const ToldProblem p;
  GrowConfig config = grow_config();
  config.max_leaves = 4;
  config.split.min_child_samples = 2;
  for (int n_threads : {1, 3}) {
    const Bins bins = p.bins(n_threads);
    Grower grower(bins, n_threads);
    ToldSearch search(p.n);
    const Tree tree = grower.grow(search, config, nullptr);
    // The child of 3 rows cannot be split again, however many lie here.
    CHECK((tree.count == std::vector<int64_t>{p.n, 3, p.n - 3, 3, p.n - 6, 3, p.n - 9}));
    for (int64_t i = 0; i < p.n; ++i) {
      int32_t node = 0;
      while (tree.left[node] >= 0)
        node = tree.goes_left(node, p.codes[i]) ? tree.left[node] : tree.right[node];
      CHECK(grower.leaf_of_row()[i] == tree.leaf[node]);
    }
  }
}

// A child has its parent's state and what the search has made of it; leaves keep theirs, also where the tree
// is cut back to them.
void test_states_are_passed_on() {
  const ToldProblem p;
  const Bins bins = p.bins(1);
  for (bool cut : {false, true}) {
    GrowConfig config = grow_config();
    config.max_leaves = 4;
    config.split.min_child_samples = 2;
    config.post_prune = cut;
    config.split.min_split_gain = cut ? 2.0 : 0.0;
    Grower grower(bins, 1);
    ToldSearch search(p.n);
    const Tree tree = grower.grow(search, config, nullptr);
    using Bounds = std::vector<float>;
    const auto keeps_to = [&](int32_t leaf, const Bounds& lower, const Bounds& upper) {
      const NodeState& state = grower.state_of_leaf(leaf);
      return state.lower == lower && state.upper == upper;
    };
    if (cut) {
      CHECK(tree.n_leaves == 1 && keeps_to(0, {}, {}));
      continue;
    }
    CHECK(tree.n_leaves == 4 && keeps_to(0, {}, {127}) && keeps_to(1, {127}, {191}));
    CHECK(keeps_to(2, {191}, {223}) && keeps_to(3, {223}, {}));
  }
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

// Every entry is written, none behind the last, by one thread or three.
void test_hessians(const LossInput& given) {
  for (int64_t k : {2, 3, 16, 17}) {
    std::vector<int32_t> label(given.label, given.label + given.n_rows);
    for (auto& c : label) c %= static_cast<int32_t>(k);
    std::vector<float> offset(k, 0.1f);
    LossInput input = given;
    input.n_rows = std::min(given.n_rows, given.n_rows * given.n_outputs / k);
    input.n_outputs = k;
    input.label = label.data();
    input.offset = offset.data();
    const size_t size = input.n_rows * packed_size(k);
    std::vector<float> g(input.n_rows * k);
    for (ClassLoss loss : {ClassLoss::softmax, ClassLoss::exponential, ClassLoss::margin}) {
      auto one = std::make_unique<float[]>(size), three = std::make_unique<float[]>(size);
      std::fill_n(one.get(), size, NAN);
      class_hessians(loss, input, g.data(), one.get(), 1);
      class_hessians(loss, input, g.data(), three.get(), 3);
      for (size_t i = 0; i < size; ++i) CHECK(std::isfinite(one[i]) && one[i] == three[i]);
      CHECK(class_mean_loss(loss, input, 1) == class_mean_loss(loss, input, 3));
    }
  }
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
  test_hessians(input);
}

std::shared_ptr<const LeafBlock> random_leaves(const LeafKind* kind, std::mt19937& random, int32_t n_leaves,
                                               int32_t n_columns, int32_t n_features) {
  std::normal_distribution<float> normal;
  const auto numbers = [&](size_t n) {
    std::vector<float> values(n);
    for (float& v : values) v = normal(random);
    return values;
  };
  const size_t size = static_cast<size_t>(n_leaves) * n_columns;
  if (kind == &kDense) return std::make_shared<DenseLeaves>(numbers(size).data(), n_leaves, n_columns);
  std::vector<int64_t> begin{0};
  std::vector<int32_t> entries;
  const int32_t limit = kind == &kSparse ? n_columns : n_features;
  for (int32_t l = 0; l < n_leaves; ++l) {
    for (int32_t at = static_cast<int32_t>(random() % 4); at < limit;
         at += 1 + static_cast<int32_t>(random() % limit))
      entries.push_back(at);
    begin.push_back(static_cast<int64_t>(entries.size()));
  }
  const auto n = static_cast<int64_t>(entries.size());
  if (kind == &kSparse)
    return std::make_shared<SparseLeaves>(begin.data(), n_leaves, entries.data(), numbers(n).data(), n,
                                          n_columns);
  const std::vector<float> weights = numbers(n * n_columns), centre = numbers(n), intercept = numbers(size),
                           lower(size, -1.0f), upper(size, INFINITY);
  return std::make_shared<LinearLeaves>(LinearArrays{begin.data(), entries.data(), weights.data(),
                                                     centre.data(), intercept.data(), lower.data(),
                                                     upper.data(), n_leaves, n, n_columns});
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

// Every kind of leaves, from every number of threads: one result, in prediction, training and ranking.
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
    const int32_t output = !kind->names_outputs && t % 3 == 0 ? t % n_outputs : -1;
    const auto leaves = random_leaves(kind, random, 2, output < 0 ? n_outputs : 1, n_features);
    forest.append(stump(t % n_features, static_cast<int32_t>(random() % 255)), leaves, output);
    std::vector<int32_t> leaf_of_row(n);
    forest.apply(matrix, leaf_of_row.data(), {t, t + 1}, 2);
    check_leaf_ids(leaf_of_row.data(), n, 2, 3);
    add_leaf_values(expected.data(), n, n_outputs, output, leaf_of_row.data(), leaves->view(), x, 3);
  }
  const TreeRange all{0, n_trees};
  const bool sparse = kinds.size() == 1 && kinds[0] == &kSparse;
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
    forest.topk(matrix, x, {base.data(), nullptr, nullptr}, k, outputs.data(), scores.data(), all, n_threads);
    for (int64_t i = 0; i < n * k; ++i) {
      CHECK(outputs[i] < n_outputs && held[i] < n_outputs);
      if (outputs[i] >= 0) CHECK(scores[i] == 0.5 + double{raw[i / k * n_outputs + outputs[i]]});
      if (i % k > 0) CHECK(scores[i] <= scores[i - 1]);
    }
    if (n_threads == 1) first_outputs = outputs;
    CHECK(outputs == first_outputs);
    if (!sparse) continue;
    const CompressedRows rows = forest.sparse_scores(matrix, x, all, n_threads);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t e = rows.begin[i]; e < rows.begin[i + 1]; ++e) {
        CHECK(rows.values[e] == raw[i * n_outputs + rows.outputs[e]]);
        if (e > rows.begin[i]) CHECK(rows.outputs[e - 1] < rows.outputs[e]);
      }
  }
}

void test_leaves() {
  for (int32_t n_outputs : {1, 3, 8, 17, 70}) {
    test_leaf_blocks(n_outputs, {&kDense, &kSparse, &kLinear}, 700, 40);
    test_leaf_blocks(n_outputs, {&kSparse}, 300, 20);
  }
  test_leaf_blocks(2000, {&kSparse, &kDense}, 20, 5);
  test_leaf_blocks(2000, {&kSparse}, 300, 300);  // more trees than a block has rows
  test_leaf_blocks(100000, {&kSparse}, 20, 2);   // hashed
  const int64_t begin[] = {0, 2};
  const int32_t outputs[] = {1, 1};
  const float values[] = {1, 2};
  bool refused = false;
  try {
    SparseLeaves(begin, 1, outputs, values, 2, 3);
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  CHECK(refused);
}

// Odd sizes on purpose: the ends of rows, of blocks of rows, and of vectors.
void test_sketches() {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const auto& [n, k, d] : {std::array{1, 1, 1}, {531, 37, 5}, {2100, 19, 33}, {70, 130, 16}}) {
    const int32_t n_columns = k, dim = d;
    std::vector<float> values(static_cast<size_t>(n) * k), matrix(static_cast<size_t>(k) * d);
    for (auto& x : values) x = random() % 3 == 0 ? normal(random) : 0.0f;
    for (auto& x : matrix) x = normal(random);
    std::vector<int64_t> indptr{0};
    std::vector<int32_t> indices, columns(d);
    std::vector<float> stored, scale(d, 2.0f);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < k; ++j)
        if (values[i * k + j] != 0) {
          indices.push_back(j);
          stored.push_back(values[i * k + j]);
        }
      indptr.push_back(static_cast<int64_t>(indices.size()));
    }
    for (auto& c : columns) c = static_cast<int32_t>(random() % k);
    std::vector<float> first;
    for (int n_threads : {1, 3}) {
      std::vector<float> all, out(static_cast<size_t>(n) * d), means(n);
      std::vector<double> energy(k);
      const auto keep = [&] { all.insert(all.end(), out.begin(), out.end()); };
      project(values.data(), n, n_columns, matrix.data(), dim, 0.5f, out.data(), n_threads);
      keep();
      project_signs(values.data(), n, n_columns, 5, dim, 0.5f, out.data(), n_threads);
      keep();
      project_subspace(values.data(), n, n_columns, 5, dim, 2, 0.5f, out.data(), n_threads);
      keep();
      take_columns(values.data(), n, n_columns, columns.data(), scale.data(), dim, out.data(), n_threads);
      keep();
      csr_product({n, indptr.data(), indices.data(), stored.data()}, matrix.data(), dim, out.data(),
                  n_threads);
      keep();
      count_sketch(values.data(), n, n_columns, 5, dim, 0.5f, out.data(), n_threads);
      const std::vector<float> dense = out;
      const auto n_entries = static_cast<int64_t>(indices.size());
      count_sketch(sparse_rows(indptr.data(), indices.data(), stored.data(), n, n_entries, k, n_threads), 5,
                   dim, 0.5f, out.data(), n_threads);
      CHECK(out == dense);
      row_means(values.data(), n, n_columns, means.data(), n_threads);
      all.insert(all.end(), means.begin(), means.end());
      column_energy(values.data(), n, n_columns, energy.data(), n_threads);
      for (double e : energy) all.push_back(static_cast<float>(e));
      if (n_threads == 1) first = all;
      CHECK(all == first);
    }
  }
}

// Trees whose splits look ahead to linear leaves, and these leaves: the same from every number of threads.
void test_linear() {
  for (int n_outputs : {1, 3, 17})
    for (bool full : {false, true}) {
      const Problem p = make_problem(static_cast<uint32_t>(70 + n_outputs), 900, 9, n_outputs);
      std::vector<float> features(p.codes.size());
      for (size_t i = 0; i < features.size(); ++i)
        features[i] = p.codes[i] == 255 ? std::nanf("") : static_cast<float>(p.codes[i]) * 0.1f;
      RowSample sample;
      sample.n_all = p.n;
      GrowConfig config = grow_config();
      config.max_leaves = 9;
      config.split.min_child_samples = 10;
      std::vector<float> first;
      for (int n_threads : {1, 2, 3}) {
        const Bins bins(p.codes.data(), p.n, p.n_features, p.n_bins.data(), p.categorical.data(), n_threads);
        const LinearTable table(bins, features.data(), nullptr, n_threads);
        LinearChannels channels(table);
        channels.use(p.g.data(), nullptr, n_outputs, Curvature::unit, sample,
                     {.full = full, .max_regressors = 5, .linear_lambda = 1.0}, n_threads);
        HistogramSearch search(bins, n_threads);
        search.use(channels);
        Grower grower(bins, n_threads);
        const Tree tree = grower.grow(search, config, nullptr);
        check_tree(tree, grower.leaf_of_row(), p.n);
        const FeatureMatrix x{features.data(), p.n_features, p.n};
        const auto leaves = fit_linear_leaves(p.g.data(), nullptr, n_outputs, 0, sample, grower.leaf_of_row(),
                                              tree, x, table, kLinearStep, n_threads);
        std::vector<float> raw(p.n * n_outputs, 0.0f);
        add_leaf_values(raw.data(), p.n, n_outputs, -1, grower.leaf_of_row(), leaves->view(), x, n_threads);
        if (n_threads == 1) first = raw;
        CHECK(raw == first);
      }
    }
}

// Some rounds of training on sparse targets.
struct SparseTraining {
  int64_t n_outputs;
  SparseRows targets;
  bool exact, sampled;
};

// The raw scores and the best outputs of every row that come of it.
std::vector<double> train_sparse(const Problem& p, const SparseTraining& training, int n_threads) {
  const Bins bins(p.codes.data(), p.n, p.n_features, p.n_bins.data(), p.categorical.data(), n_threads);
  Grower grower(bins, n_threads);
  HistogramSearch histograms(bins, n_threads);
  VerifiedSearch verified(bins, histograms, n_threads);
  ExactSearch exact(bins, n_threads);
  SparseScores scores(training.targets, n_threads);
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
  LossConfig loss;
  loss.family = LossFamily::squared_hinge;
  GrowConfig config = grow_config();
  config.max_leaves = 12;
  config.level_wise = true;
  config.split.min_child_samples = 5;
  const int32_t n_rounds = 4, leaf_k = 3;
  for (int32_t round = 0; round < n_rounds; ++round) {
    SparseRows gradients;
    scores.gradients(loss, -1.0f, w, gradients, n_threads);
    Channels channels;
    Tree tree;
    if (training.exact) {
      exact.use(gradients, w, sample, kStep, leaf_k, 0.05);
      tree = grower.grow(exact, config, nullptr);
    } else {
      count_sketch(gradients, static_cast<uint64_t>(round), 8, 0.5f, sketch.data(), n_threads);
      const Curvature curvature = w != nullptr ? Curvature::shared : Curvature::unit;
      channels.quantise(sketch.data(), w, 8, curvature, sample, n_threads);
      histograms.use(channels);
      verified.use(gradients, w, channels.sample(), kStep, leaf_k);
      tree = grower.grow(verified, config, nullptr);
    }
    check_tree(tree, grower.leaf_of_row(), p.n);
    const SparseLeafArrays leaves =
        sparse_leaves(gradients, w, sample, grower.leaf_of_row(), tree.n_leaves, kStep, leaf_k, n_threads);
    const auto block = std::make_shared<const SparseLeaves>(
        leaves.begin.data(), tree.n_leaves, leaves.outputs.data(), leaves.values.data(),
        static_cast<int64_t>(leaves.outputs.size()), training.n_outputs);
    scores.add(grower.leaf_of_row(), block->view(), n_threads);
    forest.append(std::make_shared<const Tree>(tree), block, -1);
  }
  const CodeMatrix codes{p.codes.data(), p.n_features, p.n};
  const CompressedRows predicted = forest.sparse_scores(codes, {}, {0, n_rounds}, n_threads);
  std::vector<double> results;
  for (int64_t i = 0; i < p.n; ++i) {  // every output that a leaf has held is among what the row holds
    const SparseRow row = scores.raw().row(i);
    int64_t e = 0;
    for (int64_t at = predicted.begin[i]; at < predicted.begin[i + 1]; ++at) {
      while (e < row.n && row.outputs[e] < predicted.outputs[at]) ++e;
      CHECK(e < row.n && row.outputs[e] == predicted.outputs[at] && row.values[e] == predicted.values[at]);
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
          const SparseTraining training{
              n_outputs,
              sparse_rows(indptr.data(), labels.data(), nullptr, n, n_entries, n_outputs, n_threads), exact,
              sampled};
          const std::vector<double> found = train_sparse(p, training, n_threads);
          if (n_threads == 1) first = found;
          CHECK(found == first);
        }
      }
  }
  const int64_t indptr[] = {0, 2};
  const int32_t unsorted[] = {2, 1}, outside[] = {0, 3};
  for (const int32_t* outputs : {unsorted, outside}) {
    bool refused = false;
    try {
      sparse_rows(indptr, outputs, nullptr, 1, 2, 3, 1);
    } catch (const std::invalid_argument&) {
      refused = true;
    }
    CHECK(refused);
  }
}

void test_sparse_text() {
  std::string text;
  for (int i = 0; i < 40000; ++i)
    text +=
        std::to_string(i % 7) + "," + std::to_string(7 + i % 5) + " 31:" + std::to_string(i) + ".5 2:-1e-3\n";
  for (int n_threads : {1, 3}) {
    const auto size = static_cast<int64_t>(text.size());
    const TextRows rows = read_sparse_text(text.data(), size, RowSyntax::labelled, {32, 12}, 1, n_threads);
    CHECK(rows.indptr.size() == 40001 && rows.indptr.back() == 80000 && rows.label_indptr.back() == 80000);
    CHECK(rows.indices[0] == 2 && rows.indices[1] == 31 && rows.values[79999] == 39999.5f);
    const std::string again =
        write_sparse_text({40000, rows.label_indptr.data(), rows.labels.data(), rows.indptr.data(),
                           rows.indices.data(), rows.values.data(), 0});
    const TextRows back = read_sparse_text(again.data(), static_cast<int64_t>(again.size()),
                                           RowSyntax::labelled, {32, 12}, 1, n_threads);
    CHECK(back.values == rows.values && back.indices == rows.indices && back.labels == rows.labels);
    bool refused = false;
    try {
      read_sparse_text(text.data(), size, RowSyntax::labelled, {31, 12}, 1, n_threads);
    } catch (const std::invalid_argument& error) {
      refused = std::string(error.what()).rfind("line 1: feature 31", 0) == 0;
    }
    CHECK(refused);
  }
  // Every prefix of a row ends somewhere awkward; none may be read past its end.
  const std::string row = "3,17 0:0.5 12:1e-5 7:123456789012345678901234567890";
  for (size_t size = 0; size <= row.size(); ++size) {
    const std::vector<char> part(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(size));
    for (RowSyntax syntax : {RowSyntax::pairs, RowSyntax::labelled, RowSyntax::libsvm, RowSyntax::arff}) try {
        read_sparse_text(part.data(), static_cast<int64_t>(size), syntax, {100, 100}, 1, 1);
      } catch (const std::invalid_argument&) {
      }
  }
}

}  // namespace

int main() {
  test_parallel();
  test_growing();
  test_counts_are_not_ranges();
  test_states_are_passed_on();
  test_refusals();
  test_leaves();
  test_objectives();
  test_sketches();
  test_linear();
  test_sparse();
  test_sparse_text();
  std::puts("core tests passed");
}
