#include "quantised_gradients/categorical_gain_correction.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/parallel.h"

namespace polyleaf {
namespace {

constexpr int64_t kBlock = 2048;
constexpr double kBestCut = 0.6366197723675814;  // 2 / pi: of the squares of many normal numbers

}  // namespace

// Exact: a square is below 2^30, and rows are below 2^31.
std::vector<int64_t> sum_squares(const ChannelLayout& layout, const int16_t* channels,
                                 const RowSample& sample, const Workers& workers) {
  const int K = layout.n_outputs;
  const int64_t n = sample.n_used();
  std::vector<int64_t> sums(static_cast<size_t>(workers.n_threads) * K, 0);
  parallel_for(workers, Block::count(n, kBlock), [&](int64_t task, int thread) {
    const Block block(n, kBlock, task);
    int64_t* own = sums.data() + static_cast<size_t>(thread) * K;
    for (int64_t i = block.begin; i < block.end; ++i) {
      const int16_t* of_row = channels + sample.row(i) * layout.lanes;
      for (int k = 0; k < K; ++k) own[k] += int64_t{of_row[k]} * of_row[k];
    }
  });
  for (size_t j = K; j < sums.size(); ++j) sums[j % K] += sums[j];
  sums.resize(K);
  workers.sum(sums);
  return sums;
}

// Means of categories vary most along a direction that was found for them: by (sqrt(n - 1) + sqrt(K
// - 1))^2 variances (Marchenko and Pastur, 1967), where a given direction has K - 1.
float Chance::of_order(int64_t n_categories) const {
  const double rest = static_cast<double>(n_categories - 1), others = std::max(width - 1.0, 0.0);
  return static_cast<float>(kBestCut * (rest + 2.0 * std::sqrt(rest * others)) * variance);
}

Chance chance_of(const ChannelSums& sums, const std::vector<int64_t>& squares) {
  const ChannelLayout& layout = *sums.layout;
  double sum = 0, squared = 0;
  for (int k = 0; k < layout.n_outputs; ++k) {
    double hessian = static_cast<double>(sums.count);
    if (layout.hessian != Hessian::unit) {
      const int own = layout.hessian_of(k);
      hessian = static_cast<double>(sums.totals[layout.hessian_offset + own]) *
                static_cast<double>(sums.hessian_step[own]);
    }
    if (!(hessian > 0)) continue;
    const double step = sums.gradient_step[k];
    const double variance = static_cast<double>(squares[k]) * (step * step) / hessian;
    sum += variance;
    squared += variance * variance;
  }
  if (!(sum > 0 && squared > 0)) return {};
  return {squared / sum, sum * sum / squared};
}

}  // namespace polyleaf
