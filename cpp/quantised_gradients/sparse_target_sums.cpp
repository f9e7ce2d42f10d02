#include "quantised_gradients/sparse_target_sums.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/parallel.h"
#include "quantised_gradients/quantised_gradients.h"

namespace polyleaf {
namespace {

constexpr int64_t kRowBlock = 4096;
constexpr int kFixedPointBits = 30;

// Magnitudes have the order of their bits; infinities and NaN are larger than all others.
uint32_t largest_bits(const SparseRow& row, float multiplier) {
  uint32_t largest = 0;
  for (int64_t e = 0; e < row.n; ++e) {
    const float value = row.values[e] * multiplier;
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    largest = std::max(largest, bits & 0x7fffffffu);
  }
  return largest;
}

}  // namespace

FixedPoint FixedPoint::above(float largest) {
  if (largest < kMinDerivative) return {};
  int exponent = 0;
  std::frexp(largest, &exponent);  // largest = m * 2^exponent with 0.5 <= m < 1
  return {std::ldexp(1.0f, kFixedPointBits - exponent),
          std::ldexp(1.0, exponent - kFixedPointBits)};
}

FixedPoint fixed_point(const SparseRows& rows, const RowSample& sample, const Context& context) {
  const int64_t n_used = sample.n_used();
  std::vector<uint32_t> largest(static_cast<size_t>(context.n_threads), 0);
  parallel_for(context, Block::count(n_used, kRowBlock), [&](int64_t task, int thread) {
    const Block block(n_used, kRowBlock, task);
    for (int64_t i = block.begin; i < block.end; ++i) {
      const int64_t row = sample.row(i);
      largest[thread] = std::max(largest[thread], largest_bits(rows.row(row), sample.factor(row)));
    }
  });
  const uint32_t bits = *std::max_element(largest.begin(), largest.end());
  float rank_max;
  std::memcpy(&rank_max, &bits, sizeof(rank_max));
  double global_max = rank_max;
  context.allreduce_max({&global_max, 1});
  check_finite(static_cast<float>(global_max));
  return FixedPoint::above(static_cast<float>(global_max));
}

FixedPoint fixed_point(const float* weight, const RowSample& sample, const Context& context) {
  double largest = 0;
  for (int64_t i = 0; i < sample.n_used(); ++i) {
    const int64_t row = sample.row(i);
    const float of_row = (weight != nullptr ? weight[row] : 1.0f) * sample.factor(row);
    largest = std::max<double>(largest, of_row);
  }
  context.allreduce_max({&largest, 1});
  return FixedPoint::above(static_cast<float>(largest));
}

std::vector<double> sum_sparse_outputs(const SparseRows& rows, const Context& context) {
  RowSample all;
  all.n_all = rows.n_rows();
  const FixedPoint fixed = fixed_point(rows, all, context);
  std::vector<int64_t> sums(static_cast<size_t>(rows.n_outputs()), 0);
  for (int64_t i = 0; i < rows.n_rows(); ++i) {
    const SparseRow row = rows.row(i);
    for (int64_t e = 0; e < row.n; ++e) sums[row.outputs[e]] += fixed(row.values[e]);
  }
  context.allreduce_sum(sums);
  std::vector<double> totals;
  for (const int64_t sum : sums) totals.push_back(static_cast<double>(sum) * fixed.unit);
  return totals;
}

}  // namespace polyleaf
