#include "leaves/topk.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/collective.h"
#include "base/parallel.h"
#include "quantised_gradients/sparse_target_sums.h"

namespace polyleaf {
namespace {

// An output that a leaf may keep: its gain and its leaf value.
struct Candidate {
  double gain;
  int32_t output;
  float value;
};

// Keep the k candidates with the largest gain (the first outputs on ties), sorted by output.
void keep_best(std::vector<Candidate>& candidates, int32_t k) {
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.gain > b.gain || (a.gain == b.gain && a.output < b.output);
  };
  if (static_cast<int64_t>(candidates.size()) > k) {
    std::nth_element(candidates.begin(), candidates.begin() + k, candidates.end(), better);
    candidates.resize(k);
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.output < b.output; });
}

TopkLeafArrays concatenate(const std::vector<std::vector<Candidate>>& leaves) {
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

// Compute the sums of all nodes, float64 (n_nodes, n_columns), from those of the leaves: children
// before parents.
std::vector<double> node_sums(const Tree& tree, const std::vector<double>& leaves, int n_columns) {
  std::vector<double> sums(static_cast<size_t>(tree.n_nodes()) * n_columns, 0.0);
  const auto values_at = [&](int32_t node) {
    return sums.data() + static_cast<size_t>(node) * n_columns;
  };
  for (int32_t i = tree.n_nodes() - 1; i >= 0; --i)
    for (int j = 0; j < n_columns; ++j)
      values_at(i)[j] = tree.left[i] < 0 ? leaves[static_cast<size_t>(tree.leaf[i]) * n_columns + j]
                                         : values_at(tree.left[i])[j] + values_at(tree.right[i])[j];
  return sums;
}

}  // namespace

TopkLeafArrays fit_topk_leaves(MatrixView<const float> g, MatrixView<const float> h,
                               const RowSample& sample, const int32_t* leaf_of_row,
                               int32_t n_leaves, const LeafConfig& config, int32_t leaf_k,
                               const Tree* shared, const Context& context) {
  std::vector<double> G = sum_by_leaf(g, sample, leaf_of_row, n_leaves, context);
  std::vector<double> H = sum_leaf_hessians(h, sample, leaf_of_row, n_leaves, context);
  return solve_topk_leaves(std::move(G), std::move(H), static_cast<int>(g.n_columns),
                           h ? static_cast<int>(h.n_columns) : 1, config, leaf_k, shared);
}

TopkLeafArrays solve_topk_leaves(std::vector<double> G, std::vector<double> H, int n_outputs,
                                 int h_columns, const LeafConfig& config, int32_t leaf_k,
                                 const Tree* shared) {
  const auto n_leaves = static_cast<int32_t>(G.size() / n_outputs);
  std::vector<std::vector<Candidate>> leaves(n_leaves);
  // Find the candidates of a set of rows; the gain includes that of the sibling if one is given.
  const auto candidates = [&](const std::vector<double>& G, const std::vector<double>& H,
                              int64_t set, int64_t sibling) {
    std::vector<Candidate> found;
    const auto step = [&](int64_t of, int k) {
      return NewtonStep(G[of * n_outputs + k], H[of * h_columns + (h_columns == 1 ? 0 : k)],
                        config);
    };
    for (int k = 0; k < n_outputs; ++k) {
      const NewtonStep own = step(set, k);
      const double gain = sibling < 0 ? own.gain : own.gain + step(sibling, k).gain;
      if (gain > 0) found.push_back({gain, k, leaf_value(own, config)});
    }
    keep_best(found, leaf_k);
    return found;
  };
  if (shared == nullptr || shared->n_leaves == 1) {
    for (int32_t leaf = 0; leaf < n_leaves; ++leaf) leaves[leaf] = candidates(G, H, leaf, -1);
    return concatenate(leaves);
  }
  G = node_sums(*shared, G, n_outputs);
  H = node_sums(*shared, H, h_columns);
  for (int32_t i = 0; i < shared->n_nodes(); ++i) {
    if (shared->left[i] < 0) continue;
    const int32_t left = shared->left[i], right = shared->right[i];
    if (shared->left[left] < 0) leaves[shared->leaf[left]] = candidates(G, H, left, right);
    if (shared->left[right] < 0) leaves[shared->leaf[right]] = candidates(G, H, right, left);
  }
  return concatenate(leaves);
}

namespace {

// Sums of a few out of very many outputs, of one leaf at a time.
class OutputSums {
 public:
  void reserve(int64_t n_outputs) {
    if (sums_.size() > 0) return;
    sums_.reserve(static_cast<size_t>(n_outputs));
    std::fill_n(sums_.data(), n_outputs, int64_t{0});
    touched_.reserve(n_outputs);
  }
  void add(int32_t output, int64_t value) {
    touched_.touch(output);
    sums_[output] += value;
  }
  // Call use(output, sum) for the touched outputs and clear them.
  template <class Use>
  void drain(const Use& use) {
    for (const int32_t k : touched_.outputs()) {
      use(k, sums_[k]);
      sums_[k] = 0;
    }
    touched_.clear();
  }

 private:
  Buffer<int64_t> sums_;  // zero except for touched outputs
  TouchedOutputs touched_;
};

// An output's sum in a leaf, as sent between ranks.
struct OutputSum {
  int64_t output, sum;
};

// Fits sparse leaves from sparse gradients. In distributed training the outputs are divided among
// the ranks: each rank receives the sums of its outputs, and all ranks receive its best candidates.
class SparseGradientFit {
 public:
  SparseGradientFit(const SparseRows& g, const LeafConfig& config, int32_t leaf_k,
                    const Context& context)
      : g_(g), config_(config), leaf_k_(leaf_k), context_(context), sums_(context.n_threads) {}

  TopkLeafArrays fit(const float* weight, const RowSample& sample, const int32_t* leaf_of_row,
                     int32_t n_leaves) {
    fixed_ = fixed_point(g_, sample, context_);
    H_ = sum_leaf_hessians({weight, sample.n_all, 1}, sample, leaf_of_row, n_leaves, context_);
    std::vector<uint32_t> rows(static_cast<size_t>(sample.n_used()));
    const std::vector<int64_t> begin =
        group_rows_by_leaf(sample, leaf_of_row, n_leaves, rows.data());
    const auto add_rows = [&](int64_t leaf, OutputSums& sums) {
      for (int64_t i = begin[leaf]; i < begin[leaf + 1]; ++i) {
        const SparseRow row = g_.row(rows[i]);
        const float m = sample.factor(rows[i]);
        for (int64_t e = 0; e < row.n; ++e) sums.add(row.outputs[e], fixed_(row.values[e] * m));
      }
    };
    Lists<Candidate> leaves(static_cast<size_t>(n_leaves));
    if (!context_.is_distributed()) {
      parallel_for(context_, n_leaves, [&](int64_t leaf, int thread) {
        OutputSums& sums = thread_sums(thread);
        add_rows(leaf, sums);
        leaves[leaf] = best(leaf, sums);
      });
      return concatenate(leaves);
    }
    fit_distributed(add_rows, leaves);
    return concatenate(leaves);
  }

 private:
  OutputSums& thread_sums(int thread) {
    sums_[thread].reserve(g_.n_outputs());
    return sums_[thread];
  }

  // Return the best candidates of a leaf's sums and clear the sums.
  std::vector<Candidate> best(int64_t leaf, OutputSums& sums) const {
    std::vector<Candidate> found;
    sums.drain([&](int32_t k, int64_t units) {
      const double sum = static_cast<double>(units) * fixed_.unit;
      const NewtonStep step(sum, H_[leaf], config_);
      // All outputs share one Hessian, so the largest steps belong to the largest sums.
      if (step.gain > 0) found.push_back({std::fabs(sum), k, leaf_value(step, config_)});
    });
    keep_best(found, leaf_k_);
    return found;
  }

  template <class AddRows>
  void fit_distributed(const AddRows& add_rows, Lists<Candidate>& leaves) {
    const int n_ranks = context_.communicator->size();
    std::vector<Lists<OutputSum>> rank_sums(n_ranks, Lists<OutputSum>(leaves.size()));
    const auto n_leaves = static_cast<int64_t>(leaves.size());
    parallel_for(context_, n_leaves, [&](int64_t leaf, int thread) {
      OutputSums& sums = thread_sums(thread);
      add_rows(leaf, sums);
      sums.drain([&](int32_t k, int64_t sum) { rank_sums[k % n_ranks][leaf].push_back({k, sum}); });
    });
    const Lists<OutputSum> own = alltoall_lists(context_, rank_sums);
    parallel_for(context_, n_leaves, [&](int64_t leaf, int thread) {
      OutputSums& sums = thread_sums(thread);
      for (const OutputSum& of : own[leaf]) sums.add(static_cast<int32_t>(of.output), of.sum);
      leaves[leaf] = best(leaf, sums);
    });
    allgather_lists(context_, leaves);
    for (std::vector<Candidate>& leaf : leaves) keep_best(leaf, leaf_k_);
  }

  const SparseRows& g_;
  const LeafConfig& config_;
  const int32_t leaf_k_;
  const Context& context_;
  FixedPoint fixed_;
  std::vector<double> H_;  // per leaf
  std::vector<OutputSums> sums_;
};

}  // namespace

TopkLeafArrays fit_topk_leaves(const SparseRows& g, const float* weight, const RowSample& sample,
                               const int32_t* leaf_of_row, int32_t n_leaves,
                               const LeafConfig& config, int32_t leaf_k, const Context& context) {
  return SparseGradientFit(g, config, leaf_k, context).fit(weight, sample, leaf_of_row, n_leaves);
}

}  // namespace polyleaf
