#include "channels/chance.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/parallel.h"

namespace polyleaf {
namespace {

constexpr int64_t kBlock = 2048;
constexpr double kBestCut = 0.6366197723675814;  // 2 / pi: of the squares of many normal numbers

// Of the gradients' channels, over all rows: exact, a square being below 2^30 and rows below 2^31.
std::vector<int64_t> sum_squares(const ChannelRows& rows, const Workers& workers) {
  const int K = rows.layout->n_outputs;
  const int64_t n = rows.sample.n_used();
  std::vector<int64_t> sums(static_cast<size_t>(workers.n_threads) * K, 0);
  parallel_for(workers, Block::count(n, kBlock), [&](int64_t task, int thread) {
    const Block block(n, kBlock, task);
    int64_t* own = sums.data() + static_cast<size_t>(thread) * K;
    for (int64_t i = block.begin; i < block.end; ++i) {
      const int16_t* channels = rows.channels + rows.sample.row(i) * rows.layout->lanes;
      for (int k = 0; k < K; ++k) own[k] += int64_t{channels[k]} * channels[k];
    }
  });
  for (size_t j = K; j < sums.size(); ++j) sums[j % K] += sums[j];
  sums.resize(K);
  workers.sum(sums);
  return sums;
}

}  // namespace

// Means of categories vary most along a direction that was found for them: by (sqrt(n - 1) + sqrt(K - 1))^2
// variances (Marchenko and Pastur, 1967), where a given direction has K - 1.
float Chance::of_order(int64_t n_categories) const {
  const double rest = static_cast<double>(n_categories - 1), others = std::max(width - 1.0, 0.0);
  return static_cast<float>(kBestCut * (rest + 2.0 * std::sqrt(rest * others)) * variance);
}

Chance chance_of(const ChannelRows& rows, const Workers& workers) {
  const ChannelLayout& layout = *rows.layout;
  const std::vector<int64_t> squares = sum_squares(rows, workers);
  double sum = 0, squared = 0;
  for (int k = 0; k < layout.n_outputs; ++k) {
    double curvature = static_cast<double>(rows.count);
    if (layout.curvature != Curvature::unit) {
      const int own = layout.curvature_of(k);
      curvature = static_cast<double>(rows.totals[layout.curvature_offset + own]) *
                  static_cast<double>(rows.curvature_step[own]);
    }
    if (!(curvature > 0)) continue;
    const double step = rows.gradient_step[k];
    const double variance = static_cast<double>(squares[k]) * (step * step) / curvature;
    sum += variance;
    squared += variance * variance;
  }
  if (!(sum > 0 && squared > 0)) return {};
  return {squared / sum, sum * sum / squared};
}

}  // namespace polyleaf
