#include "leaves/topk.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "channels/label_sums.h"

namespace polyleaf {
namespace {

// An output that a leaf may hold: what it is worth, and its leaf value.
struct Candidate {
  double worth;
  int32_t output;
  float value;
};

// The k candidates of largest worth, the first outputs on ties; in order of output.
void keep_best(std::vector<Candidate>& candidates, int32_t k) {
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.worth > b.worth || (a.worth == b.worth && a.output < b.output);
  };
  if (static_cast<int64_t>(candidates.size()) > k) {
    std::nth_element(candidates.begin(), candidates.begin() + k, candidates.end(), better);
    candidates.resize(k);
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.output < b.output; });
}

TopkLeafArrays join(const std::vector<std::vector<Candidate>>& leaves) {
  TopkLeafArrays out;
  out.begin.push_back(0);
  for (const auto& leaf : leaves) {
    for (const Candidate& c : leaf) {
      out.outputs.push_back(c.output);
      out.values.push_back(c.value);
    }
    out.begin.push_back(static_cast<int64_t>(out.outputs.size()));
  }
  return out;
}

float leaf_value(const NewtonStep& step, const LeafConfig& config) {
  return static_cast<float>(step.w * config.learning_rate);
}

// Sums of all nodes from those of the leaves, float64 (n_nodes, n_columns): children before parents.
std::vector<double> node_sums(const Tree& tree, const std::vector<double>& leaves, int n_columns) {
  std::vector<double> sums(static_cast<size_t>(tree.n_nodes()) * n_columns, 0.0);
  const auto of = [&](int32_t node) { return sums.data() + static_cast<size_t>(node) * n_columns; };
  for (int32_t i = tree.n_nodes() - 1; i >= 0; --i)
    for (int j = 0; j < n_columns; ++j)
      of(i)[j] = tree.left[i] < 0 ? leaves[static_cast<size_t>(tree.leaf[i]) * n_columns + j]
                                  : of(tree.left[i])[j] + of(tree.right[i])[j];
  return sums;
}

}  // namespace

TopkLeafArrays topk_leaves(const float* g, const float* h, int n_outputs, int h_columns,
                           const RowSample& sample, const int32_t* leaf_of_row, int32_t n_leaves,
                           const LeafConfig& config, int32_t leaf_k, const Tree* shared,
                           const Workers& workers) {
  std::vector<double> G = leaf_sums(g, n_outputs, sample, leaf_of_row, n_leaves, workers);
  std::vector<double> H = curvature_sums(h, h_columns, sample, leaf_of_row, n_leaves, workers);
  if (h == nullptr) h_columns = 1;
  std::vector<std::vector<Candidate>> leaves(n_leaves);
  // Candidates of a set of rows; the worth is its own, and that of the rows beside it where they are given.
  const auto candidates = [&](const std::vector<double>& G, const std::vector<double>& H, int64_t set,
                              int64_t beside) {
    std::vector<Candidate> found;
    const auto step = [&](int64_t of, int k) {
      return NewtonStep(G[of * n_outputs + k], H[of * h_columns + (h_columns == 1 ? 0 : k)], config);
    };
    for (int k = 0; k < n_outputs; ++k) {
      const NewtonStep own = step(set, k);
      const double worth = beside < 0 ? own.worth : own.worth + step(beside, k).worth;
      if (worth > 0) found.push_back({worth, k, leaf_value(own, config)});
    }
    keep_best(found, leaf_k);
    return found;
  };
  if (shared == nullptr || shared->n_leaves == 1) {
    for (int32_t leaf = 0; leaf < n_leaves; ++leaf) leaves[leaf] = candidates(G, H, leaf, -1);
    return join(leaves);
  }
  G = node_sums(*shared, G, n_outputs);
  H = node_sums(*shared, H, h_columns);
  for (int32_t i = 0; i < shared->n_nodes(); ++i) {
    if (shared->left[i] < 0) continue;
    const int32_t left = shared->left[i], right = shared->right[i];
    if (shared->left[left] < 0) leaves[shared->leaf[left]] = candidates(G, H, left, right);
    if (shared->left[right] < 0) leaves[shared->leaf[right]] = candidates(G, H, right, left);
  }
  return join(leaves);
}

namespace {

struct Scratch {
  Buffer<int64_t> sums;  // one an output, zero but for those touched
  TouchedOutputs touched;
  std::vector<Candidate> candidates;
};

}  // namespace

TopkLeafArrays topk_leaves(const LabelRows& g, const float* weight, const RowSample& sample,
                           const int32_t* leaf_of_row, int32_t n_leaves, const LeafConfig& config,
                           int32_t leaf_k, const Workers& workers) {
  const FixedPoint fixed = fixed_point(g, sample, workers);
  const std::vector<double> H =
      curvature_sums(weight, weight != nullptr ? 1 : 0, sample, leaf_of_row, n_leaves, workers);
  std::vector<uint32_t> rows(static_cast<size_t>(sample.n_used()));
  const std::vector<int64_t> begin = rows_by_leaf(sample, leaf_of_row, n_leaves, rows.data());
  std::vector<Scratch> scratch(static_cast<size_t>(workers.n_threads));
  std::vector<std::vector<Candidate>> leaves(static_cast<size_t>(n_leaves));
  parallel_for(workers, n_leaves, [&](int64_t leaf, int thread) {
    Scratch& s = scratch[thread];
    if (s.sums.size() == 0) {
      s.sums.reserve(static_cast<size_t>(g.n_outputs()));
      std::fill_n(s.sums.data(), g.n_outputs(), int64_t{0});
      s.touched.reserve(g.n_outputs());
    }
    for (int64_t i = begin[leaf]; i < begin[leaf + 1]; ++i) {
      const LabelRow row = g.row(rows[i]);
      const float m = sample.factor(rows[i]);
      for (int64_t e = 0; e < row.n; ++e) {
        s.touched.touch(row.outputs[e]);
        s.sums[row.outputs[e]] += fixed(row.values[e] * m);
      }
    }
    s.candidates.clear();
    for (int32_t k : s.touched.outputs()) {
      const double sum = static_cast<double>(s.sums[k]) * fixed.unit;
      const NewtonStep step(sum, H[leaf], config);
      // Curvature is one for all outputs, so the largest steps are those of the largest sums.
      if (step.worth > 0) s.candidates.push_back({std::fabs(sum), k, leaf_value(step, config)});
      s.sums[k] = 0;
    }
    s.touched.clear();
    keep_best(s.candidates, leaf_k);
    leaves[leaf] = s.candidates;
  });
  return join(leaves);
}

}  // namespace polyleaf
