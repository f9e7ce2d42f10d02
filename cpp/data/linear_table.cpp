#include "data/linear_table.h"

#include <cmath>
#include <stdexcept>

#include "base/exact_totals.h"

namespace polyleaf {

LinearTable::LinearTable(const Bins& bins, const float* features, const float* weight, const Workers& workers)
    : centre_(bins.n_features(), 0.0),
      scale_(bins.n_features(), 0.0),
      means_(static_cast<size_t>(bins.n_features()) * 256, 0.0) {
  if (bins.cells().n_features() > 0)
    throw std::invalid_argument("Linear leaves need the codes of every row; none may be held sparse.");
  for (int f = 0; f < bins.n_features(); ++f)
    if (!bins.is_categorical(f))
      measure(bins, features + static_cast<int64_t>(f) * bins.n_rows(), weight, f, workers);
}

void LinearTable::measure(const Bins& bins, const float* column, const float* weight, int feature,
                          const Workers& workers) {
  const uint64_t* words = bins.words(bins.tile_of(feature));
  const int shift = 8 * bins.slot_of(feature), missing = bins.tile(bins.tile_of(feature)).missing();
  std::vector<double> x;  // of the rows that count
  std::vector<float> w;
  std::vector<int32_t> codes;
  for (int64_t i = 0; i < bins.n_rows(); ++i) {
    const int code = static_cast<int>(words[i] >> shift) & 255;
    const float wi = weight != nullptr ? weight[i] : 1.0f;
    if (code == missing || std::isnan(column[i]) || !(wi > 0)) continue;
    x.push_back(column[i]);
    if (weight != nullptr) w.push_back(wi);
    codes.push_back(code);
  }
  TotalsInput rows{.n_rows = static_cast<int64_t>(x.size()),
                   .n_columns = 1,
                   .weight = weight != nullptr ? w.data() : nullptr,
                   .weight_columns = 1,
                   .group = codes.data(),
                   .n_groups = 256};
  double of_bins[2][256];  // sums, weights
  exact_totals(x.data(), rows, of_bins[0], workers);
  double total = 0, sum = 0;
  for (int b = 0; b < 256; ++b) {
    total += of_bins[1][b];
    sum += of_bins[0][b];
  }
  if (!(total > 0)) return;
  const double centre = sum / total;
  for (double& d : x) d = (d - centre) * (d - centre);
  rows.group = nullptr;
  rows.n_groups = 1;
  double squares[2];  // and weights
  exact_totals(x.data(), rows, squares, workers);
  centre_[feature] = centre;
  const double scale = std::sqrt(squares[0] / total);
  if (!(scale > 0) || !std::isfinite(scale)) return;
  scale_[feature] = scale;
  for (int b = 0; b < 256; ++b)
    if (of_bins[1][b] > 0)
      means_[static_cast<size_t>(feature) * 256 + b] = (of_bins[0][b] / of_bins[1][b] - centre) * (1 / scale);
}

}  // namespace polyleaf
