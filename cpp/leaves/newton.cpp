#include "newton.h"

#include <algorithm>
#include <cmath>

#include "../parallel.h"

namespace polyleaf {
namespace {

constexpr int64_t kBlock = 4096;
constexpr int kFixedPointBits = 30;

// Exponent of the smallest power of two above `largest`.
int exponent_above(float largest) {
  int e = 0;
  std::frexp(largest, &e);  // largest = m * 2^e with 0.5 <= m < 1
  return e;
}

}  // namespace

std::vector<double> leaf_sums(const float* values, int n_columns, const RowSample& sample,
                              const int32_t* leaf_of_row, int32_t n_leaves, int n_threads) {
  const int64_t n_used = sample.n_used(), n_blocks = Block::count(n_used, kBlock);
  const std::vector<float> largest = largest_magnitudes(values, n_columns, sample, n_threads);
  std::vector<float> scale(largest.size(), 0.0f);
  std::vector<int> exponent(n_columns, 0);
  for (int j = 0; j < n_columns; ++j) {
    exponent[j] = exponent_above(largest[j]);
    if (largest[j] >= kSmallestDerivative) scale[j] = std::ldexp(1.0f, kFixedPointBits - exponent[j]);
  }
  const size_t size = static_cast<size_t>(n_leaves) * n_columns;
  std::vector<std::vector<int64_t>> sums(n_threads);
  parallel_for(n_threads, n_blocks, [&](int64_t task, int thread) {
    if (sums[thread].empty()) sums[thread].assign(size, 0);
    const Block rows(n_used, kBlock, task);
    POLYLEAF_SELECT(leaf_kernels)
        .sum(values, n_columns, sample, rows.begin, rows.end, leaf_of_row, scale.data(), sums[thread].data());
  });
  std::vector<double> result(size, 0.0);
  for (size_t i = 0; i < size; ++i) {
    int64_t sum = 0;
    for (const auto& part : sums) sum += part.empty() ? 0 : part[i];
    result[i] = std::ldexp(static_cast<double>(sum), exponent[i % n_columns] - kFixedPointBits);
  }
  return result;
}

namespace {

// Curvature 1 for every row: the rows of each leaf, or the sum of their multipliers.
std::vector<double> leaf_weights(const RowSample& sample, const int32_t* leaf_of_row, int32_t n_leaves,
                                 int n_threads) {
  if (sample.multiplier != nullptr) {
    const std::vector<float> ones(static_cast<size_t>(sample.n_all), 1.0f);
    return leaf_sums(ones.data(), 1, sample, leaf_of_row, n_leaves, n_threads);
  }
  std::vector<std::vector<int64_t>> counts(n_threads, std::vector<int64_t>(n_leaves, 0));
  parallel_for(n_threads, Block::count(sample.n_used(), kBlock), [&](int64_t task, int thread) {
    const Block rows(sample.n_used(), kBlock, task);
    int64_t* count = counts[thread].data();
    for (int64_t i = rows.begin; i < rows.end; ++i)
      ++count[leaf_of_row[sample.rows != nullptr ? sample.rows[i] : i]];
  });
  std::vector<double> weights(n_leaves, 0.0);
  for (const auto& count : counts)
    for (int32_t leaf = 0; leaf < n_leaves; ++leaf) weights[leaf] += static_cast<double>(count[leaf]);
  return weights;
}

}  // namespace

void newton_leaves(const float* g, const float* h, int n_outputs, int h_columns, const RowSample& sample,
                   const int32_t* leaf_of_row, int32_t n_leaves, const LeafConfig& config, int n_threads,
                   float* out) {
  const std::vector<double> G = leaf_sums(g, n_outputs, sample, leaf_of_row, n_leaves, n_threads);
  std::vector<double> H;
  if (h != nullptr) {
    H = leaf_sums(h, h_columns, sample, leaf_of_row, n_leaves, n_threads);
  } else {
    h_columns = 1;
    H = leaf_weights(sample, leaf_of_row, n_leaves, n_threads);
  }
  for (int32_t leaf = 0; leaf < n_leaves; ++leaf)
    for (int k = 0; k < n_outputs; ++k) {
      const double sum = G[static_cast<size_t>(leaf) * n_outputs + k];
      const double c =
          H[static_cast<size_t>(leaf) * h_columns + (h_columns == 1 ? 0 : k)] + config.reg_lambda;
      const double shrunk = std::max(std::fabs(sum) - config.reg_alpha, 0.0);
      double w = c > 0 ? -std::copysign(shrunk, sum) / c : 0.0;
      if (config.max_delta_step > 0) w = std::clamp(w, -config.max_delta_step, config.max_delta_step);
      out[static_cast<size_t>(leaf) * n_outputs + k] = static_cast<float>(w * config.learning_rate);
    }
}

void add_leaf_values(float* raw, int64_t n, int n_columns, int column, const int32_t* leaf_of_row,
                     const float* values, int n_threads) {
  const LeafKernels& kernels = POLYLEAF_SELECT(leaf_kernels);
  parallel_for(n_threads, Block::count(n, kBlock), [&](int64_t task, int) {
    const Block rows(n, kBlock, task);
    if (column >= 0)
      kernels.add_column(raw, n_columns, column, rows.begin, rows.end, leaf_of_row, values);
    else
      kernels.add(raw, n_columns, rows.begin, rows.end, leaf_of_row, values);
  });
}

}  // namespace polyleaf
