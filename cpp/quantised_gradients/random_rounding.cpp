#include "quantised_gradients/random_rounding.h"

#include <cmath>

#include "base/parallel.h"
#include "base/rng.h"
#include "quantised_gradients/quantised_gradients.h"

namespace polyleaf {
namespace {

constexpr int64_t kRoundedRows = 4096;  // at a time

// Round up with the probability of the fraction; integers but for rounding errors stay.
double round_to_integer(double value, double random) {
  const double nearest = std::nearbyint(value), lower = std::floor(value);
  if (std::fabs(value - nearest) < 0x1p-8) return nearest;
  return random < value - lower ? lower + 1.0 : lower;
}

}  // namespace

void round_at_random(MatrixView<const float> values, const RowSample& sample, const int64_t* ids,
                     MatrixView<const uint32_t> keys, MatrixView<float> out,
                     const Context& context) {
  const int64_t m = values.n_columns;
  const std::vector<float> largest =
      compute_max_magnitudes(values.data, static_cast<int>(m), sample, context);
  const int64_t n_used = context.allreduce_sum(sample.n_used());
  for (int64_t k = 0; k < m; ++k) {
    double step = largest[k] > 0 ? static_cast<double>(largest[k]) / 32767.0 : 1.0;
    const auto round = [&](int64_t row) {
      const uint32_t id = static_cast<uint32_t>(ids != nullptr ? ids[row] : row);
      const double random = hash_id(id, keys.row(k)) * 0x1p-32;
      return round_to_integer(static_cast<double>(values.row(row)[k] * sample.factor(row)) / step,
                              random);
    };
    const auto sum_magnitudes = [&] {
      std::vector<int64_t> sums(static_cast<size_t>(context.n_threads), 0);
      parallel_for(context, Block::count(sample.n_used(), kRoundedRows),
                   [&](int64_t task, int thread) {
                     const Block block(sample.n_used(), kRoundedRows, task);
                     for (int64_t i = block.begin; i < block.end; ++i)
                       sums[thread] += static_cast<int64_t>(std::fabs(round(sample.row(i))));
                   });
      for (size_t t = 1; t < sums.size(); ++t) sums[0] += sums[t];
      return context.allreduce_sum(sums[0]);
    };
    while (sum_magnitudes() + n_used > int64_t{INT32_MAX}) step *= 2.0;
    parallel_for(context, Block::count(values.n_rows, kRoundedRows), [&](int64_t task, int) {
      const Block block(values.n_rows, kRoundedRows, task);
      for (int64_t row = block.begin; row < block.end; ++row) {
        const float factor = sample.factor(row) > 0 ? sample.factor(row) : 1.0f;
        out.row(row)[k] = static_cast<float>(round(row) * step / static_cast<double>(factor));
      }
    });
  }
}

}  // namespace polyleaf
