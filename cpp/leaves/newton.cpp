#include "leaves/newton.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/fixed_point.h"
#include "base/parallel.h"

namespace polyleaf {
namespace {

constexpr int64_t kBlock = 16384;
constexpr int kFixedPointBits = 30;

}  // namespace

FixedColumns::FixedColumns(const std::vector<float>& largest, int n_columns)
    : scale(largest.size(), 0.0f), exponent(n_columns, 0) {
  for (int j = 0; j < n_columns; ++j) {
    const int above = get_exponent_above(largest[j]);
    if (largest[j] >= kMinDerivative) scale[j] = std::ldexp(1.0f, kFixedPointBits - above);
    exponent[j] = above - kFixedPointBits;
  }
}

std::vector<double> FixedColumns::sums(const std::vector<int64_t>& integers) const {
  std::vector<double> found(integers.size());
  for (size_t i = 0; i < integers.size(); ++i)
    found[i] = std::ldexp(static_cast<double>(integers[i]), exponent[i % exponent.size()]);
  return found;
}

std::vector<double> sum_by_leaf(MatrixView<const float> values, const RowSample& sample,
                                const int32_t* leaf_of_row, int32_t n_leaves,
                                const Context& context, std::vector<float>* largest_of_all) {
  POLYLEAF_DCHECK(values.n_rows == sample.n_all);
  const auto n_columns = static_cast<int>(values.n_columns);
  const int64_t n_used = sample.n_used(), n_blocks = Block::count(n_used, kBlock);
  const std::vector<float> largest =
      compute_max_magnitudes(values.data, n_columns, sample, context);
  if (largest_of_all != nullptr) *largest_of_all = largest;
  const FixedColumns fixed(largest, n_columns);
  const size_t size = static_cast<size_t>(n_leaves) * n_columns;
  std::vector<std::vector<int64_t>> sums(context.n_threads);
  parallel_for(context, n_blocks, [&](int64_t task, int thread) {
    if (sums[thread].empty()) sums[thread].assign(size, 0);
    const Block rows(n_used, kBlock, task);
    POLYLEAF_SELECT(leaf_kernels)
        .sum(values.data, n_columns, sample, rows.begin, rows.end, leaf_of_row, n_leaves,
             fixed.scale.data(), sums[thread].data());
  });
  std::vector<int64_t> all(size, 0);
  for (const auto& part : sums)
    for (size_t i = 0; i < part.size(); ++i) all[i] += part[i];
  context.allreduce_sum(all);
  return fixed.sums(all);
}

namespace {

// Hessian 1 per row: count the rows of each leaf, or sum their multipliers.
std::vector<double> leaf_weights(const RowSample& sample, const int32_t* leaf_of_row,
                                 int32_t n_leaves, const Context& context,
                                 std::vector<float>* largest) {
  if (sample.multiplier != nullptr) {
    const std::vector<float> ones(static_cast<size_t>(sample.n_all), 1.0f);
    return sum_by_leaf({ones.data(), sample.n_all, 1}, sample, leaf_of_row, n_leaves, context,
                       largest);
  }
  if (largest != nullptr) largest->assign(1, 1.0f);
  std::vector<std::vector<int64_t>> counts(context.n_threads, std::vector<int64_t>(n_leaves, 0));
  parallel_for(context, Block::count(sample.n_used(), kBlock), [&](int64_t task, int thread) {
    const Block rows(sample.n_used(), kBlock, task);
    int64_t* count = counts[thread].data();
    for (int64_t i = rows.begin; i < rows.end; ++i) ++count[leaf_of_row[sample.row(i)]];
  });
  for (size_t t = 1; t < counts.size(); ++t)
    for (int32_t leaf = 0; leaf < n_leaves; ++leaf) counts[0][leaf] += counts[t][leaf];
  context.allreduce_sum(counts[0]);
  return {counts[0].begin(), counts[0].end()};
}

// Return the outputs that a leaf solves for, ascending: the `size` largest |G|, the first on ties.
std::vector<int> block_outputs(const double* G, int n_outputs, int size) {
  std::vector<int> outputs(n_outputs);
  std::iota(outputs.begin(), outputs.end(), 0);
  if (size <= 0 || size >= n_outputs) return outputs;
  std::stable_sort(outputs.begin(), outputs.end(),
                   [&](int a, int b) { return std::fabs(G[a]) > std::fabs(G[b]); });
  outputs.resize(size);
  std::sort(outputs.begin(), outputs.end());
  return outputs;
}

// Solve w = -(H + lambda I)^-1 G of one leaf for some outputs; 0 for the others.
void solve_full(const double* G, const double* H, int n_outputs, const LeafConfig& config,
                float* out) {
  const std::vector<int> outputs = block_outputs(G, n_outputs, config.block_size);
  const int m = static_cast<int>(outputs.size());
  std::vector<double> A(packed_size(m)), y(m), inverse(m);
  for (int i = 0; i < m; ++i) {
    y[i] = G[outputs[i]];
    for (int j = 0; j <= i; ++j) A[packed(i, j)] = H[packed(outputs[i], outputs[j])];
    A[packed(i, i)] += config.reg_lambda;
  }
  eliminate<kLeafPivotBits>(A.data(), m, y.data(), 1, inverse.data());
  substitute(A.data(), m, y.data(), 1, inverse.data());
  std::fill(out, out + n_outputs, 0.0f);
  for (int i = 0; i < m; ++i) out[outputs[i]] = static_cast<float>(-y[i] * config.learning_rate);
}

}  // namespace

std::vector<double> sum_leaf_hessians(MatrixView<const float> h, const RowSample& sample,
                                      const int32_t* leaf_of_row, int32_t n_leaves,
                                      const Context& context, std::vector<float>* largest) {
  return h ? sum_by_leaf(h, sample, leaf_of_row, n_leaves, context, largest)
           : leaf_weights(sample, leaf_of_row, n_leaves, context, largest);
}

void solve_newton_leaves(MatrixView<const double> G, MatrixView<const double> H,
                         const LeafConfig& config, MatrixView<float> out) {
  POLYLEAF_DCHECK(H.n_rows == G.n_rows && out.n_rows == G.n_rows && out.n_columns == G.n_columns);
  const auto n_outputs = static_cast<int>(G.n_columns);
  if (H.n_columns > std::max<int64_t>(1, n_outputs)) {
    for (int64_t leaf = 0; leaf < G.n_rows; ++leaf)
      solve_full(G.row(leaf), H.row(leaf), n_outputs, config, out.row(leaf));
    return;
  }
  for (int64_t leaf = 0; leaf < G.n_rows; ++leaf)
    for (int k = 0; k < n_outputs; ++k) {
      const NewtonStep step(G(leaf, k), H(leaf, H.n_columns == 1 ? 0 : k), config);
      out(leaf, k) = static_cast<float>(step.w * config.learning_rate);
    }
}

void fit_newton_leaves(MatrixView<const float> g, MatrixView<const float> h,
                       const RowSample& sample, const int32_t* leaf_of_row,
                       const LeafConfig& config, const Context& context, MatrixView<float> out) {
  const auto n_leaves = static_cast<int32_t>(out.n_rows);
  const std::vector<double> G = sum_by_leaf(g, sample, leaf_of_row, n_leaves, context);
  const std::vector<double> H = sum_leaf_hessians(h, sample, leaf_of_row, n_leaves, context);
  solve_newton_leaves({G.data(), n_leaves, g.n_columns}, {H.data(), n_leaves, h ? h.n_columns : 1},
                      config, out);
}

}  // namespace polyleaf
