#include "data/linear_table.h"

#include <cmath>
#include <stdexcept>

#include "base/exact_totals.h"
#include "base/parallel.h"

namespace polyleaf {

namespace {

constexpr int64_t kRows = 4096;

// Slopes, and distances of values from the centre, are float32 numbers for features in this range.
constexpr double kMinScale = 0x1p-100, kMaxScale = 0x1p100;

}  // namespace

// One feature's value, weight and bin of every row. A row that is not used has no value and no
// weight, and lies in the bin of missing values.
struct LinearTable::Column {
  Column(int64_t n_rows, bool is_weighted) : x(n_rows), w(is_weighted ? n_rows : 0), code(n_rows) {}

  TotalsInput bin_totals() const {
    return {.n_rows = static_cast<int64_t>(x.size()),
            .n_columns = 1,
            .weight = w.empty() ? nullptr : w.data(),
            .weight_columns = 1,
            .group = code.data(),
            .n_groups = 256};
  }
  TotalsInput all_totals() const {
    return {.n_rows = static_cast<int64_t>(x.size()), .n_columns = 1};
  }

  std::vector<double> x;
  std::vector<float> w;  // empty: all 1
  std::vector<int32_t> code;
};

LinearTable::LinearTable(const Bins& bins, const float* features, const float* weight,
                         const Context& context)
    : centre_(bins.n_features(), 0.0),
      scale_(bins.n_features(), 0.0),
      means_(static_cast<size_t>(bins.n_features()) * 256, 0.0) {
  if (bins.sparse_columns().n_features() > 0)
    throw std::invalid_argument("Linear leaves need dense features.");
  Column column(bins.n_rows(), weight != nullptr);
  for (int f = 0; f < bins.n_features(); ++f)
    if (!bins.is_categorical(f))
      measure(bins, features + static_cast<int64_t>(f) * bins.n_rows(), weight, f, column, context);
}

void LinearTable::measure(const Bins& bins, const float* values, const float* weight, int feature,
                          Column& column, const Context& context) {
  const uint64_t* words = bins.words(bins.tile_index(feature));
  const int shift = 8 * bins.slot_index(feature),
            missing = bins.tile(bins.tile_index(feature)).missing();
  const int64_t n_rows = bins.n_rows(), n_blocks = Block::count(n_rows, kRows);
  parallel_for(context, n_blocks, [&](int64_t task, int) {
    const Block block(n_rows, kRows, task);
    for (int64_t i = block.begin; i < block.end; ++i) {
      const int code = static_cast<int>(words[i] >> shift) & 255;
      const float wi = weight != nullptr ? weight[i] : 1.0f;
      const bool is_used = code != missing && !std::isnan(values[i]) && wi > 0;
      column.x[i] = is_used ? values[i] : 0.0f;
      if (weight != nullptr) column.w[i] = is_used ? wi : 0.0f;
      column.code[i] = is_used ? code : missing;
    }
  });
  double bins_totals[2][256];  // sums, weights
  exact_totals(column.x.data(), column.bin_totals(), bins_totals[0], context);
  bins_totals[1][missing] = 0;
  double total = 0, sum = 0;
  for (int b = 0; b < 256; ++b) {
    total += bins_totals[1][b];
    sum += bins_totals[0][b];
  }
  if (!(total > 0)) return;
  const double centre = sum / total;
  parallel_for(context, n_blocks, [&](int64_t task, int) {
    const Block block(n_rows, kRows, task);
    for (int64_t i = block.begin; i < block.end; ++i) {
      const double d = column.x[i] - centre, w = weight != nullptr ? column.w[i] : 1.0;
      column.x[i] = column.code[i] == missing ? 0.0 : w * (d * d);
    }
  });
  double squares[2];  // and the number of rows
  exact_totals(column.x.data(), column.all_totals(), squares, context);
  centre_[feature] = centre;
  const double scale = std::sqrt(squares[0] / total);
  if (!(scale >= kMinScale && scale <= kMaxScale)) return;
  scale_[feature] = scale;
  for (int b = 0; b < 256; ++b)
    if (bins_totals[1][b] > 0)
      means_[static_cast<size_t>(feature) * 256 + b] =
          (bins_totals[0][b] / bins_totals[1][b] - centre) * (1 / scale);
}

}  // namespace polyleaf
