// Random problems, and properties of any tree.
#pragma once
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "base/settings.h"
#include "check.h"
#include "data/sparse_columns.h"
#include "grower/tree.h"

namespace polyleaf::tests {

// Normal numbers, as far as tests care: sums of twelve uniform ones, exact in float32. Those of
// std::normal_distribution depend on the standard library.
struct Normal {
  float operator()(std::mt19937& random) const {
    int32_t sum = -6 * 65536;
    for (int i = 0; i < 12; ++i) sum += static_cast<int32_t>(random() >> 16);
    return static_cast<float>(sum) / 65536.0f;
  }
};

// Settings for tests that do not depend on them.
inline GrowConfig grow_config() {
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
          .histogram_memory = size_t{1} << 30,
          .factors = {}};
}

inline constexpr LeafConfig kStep{.reg_lambda = 1.0,
                                  .reg_alpha = 0.0,
                                  .max_delta_step = 0.0,
                                  .learning_rate = 1.0,
                                  .block_size = 0};
inline constexpr LinearLeafConfig kLinearStep{.reg_lambda = 1.0,
                                              .linear_lambda = 1.0,
                                              .learning_rate = 1.0,
                                              .max_regressors = 5,
                                              .clip = true};

struct Problem {
  int64_t n;
  int n_features, n_outputs;
  std::vector<uint8_t> codes, categorical;
  std::vector<uint16_t> n_bins;
  std::vector<float> g, h;
};

inline Problem make_problem(uint32_t seed, int64_t n, int n_features, int n_outputs) {
  std::mt19937 random(seed);
  Problem p{n, n_features, n_outputs, {}, {}, {}, {}, {}};
  const int sizes[] = {1, 2, 3, 4, 15, 16, 63, 64, 255};
  for (int f = 0; f < n_features; ++f) {
    const int bins = sizes[random() % 9];
    p.n_bins.push_back(static_cast<uint16_t>(bins));
    p.categorical.push_back(f % 5 == 4);
    for (int64_t i = 0; i < n; ++i) p.codes.push_back(random() % 11 == 0 ? 255 : random() % bins);
  }
  const Normal normal;
  for (int64_t i = 0; i < n * n_outputs; ++i) {
    p.g.push_back(normal(random) + p.codes[i / n_outputs] * 0.01f);
    p.h.push_back(std::fabs(normal(random)));
  }
  return p;
}

// The problem's codes, with numeric features as compressed columns and the others dense.
struct HeldLabels {
  std::vector<int32_t> features, rows;
  std::vector<uint8_t> common, codes, dense;
  std::vector<int64_t> begin = {0};

  explicit HeldLabels(const Problem& p) {
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
  CompressedColumns columns() const {
    return {static_cast<int64_t>(features.size()),
            features.data(),
            common.data(),
            begin.data(),
            rows.data(),
            codes.data()};
  }
};

inline void check_tree(const Tree& tree, const int32_t* leaf_of_row, int64_t n) {
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

}  // namespace polyleaf::tests
