// Split search for linear leaves, and linear leaves.
#include <cmath>
#include <vector>

#include "check.h"
#include "data/bins.h"
#include "digest.h"
#include "grower/grower.h"
#include "leaves/linear.h"
#include "problem.h"
#include "search/histogram_search.h"
#include "search/linear_gradients.h"
#include "tests.h"

namespace polyleaf::tests {

// Trees whose splits are scored by linear leaves, and these leaves: equal for any number of
// threads.
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
        const Bins bins(p.codes.data(), p.n, p.n_features, p.n_bins.data(), p.categorical.data(),
                        n_threads);
        const LinearTable table(bins, features.data(), nullptr, n_threads);
        LinearGradients channels(table, {.full = full, .max_regressors = 5, .linear_lambda = 1.0});
        channels.quantise(p.g.data(), nullptr, n_outputs, HessianKind::unit, sample, n_threads);
        HistogramSearch search(bins, n_threads);
        search.use(channels);
        Grower grower(bins, n_threads);
        const Tree tree = grower.grow(search, config, nullptr);
        check_tree(tree, grower.leaf_of_row(), p.n);
        const FeatureMatrix x{features.data(), p.n_features, p.n};
        const auto leaves =
            fit_linear_leaves({p.g.data(), p.n, n_outputs}, {}, sample, grower.leaf_of_row(), tree,
                              x, table, kLinearStep, n_threads);
        std::vector<float> raw(p.n * n_outputs, 0.0f);
        add_leaf_values({raw.data(), p.n, n_outputs}, {}, grower.leaf_of_row(), leaves->view(), x,
                        n_threads);
        if (n_threads == 1) {
          first = raw;
          note("linear gain", tree.gain);
          note("linear raw scores", raw);
        }
        CHECK(raw == first);
      }
    }
}

}  // namespace polyleaf::tests
