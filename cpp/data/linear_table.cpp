#include "data/linear_table.h"

#include <cmath>
#include <stdexcept>

#include "base/kernels/dot.h"
#include "base/parallel.h"

namespace polyleaf {

LinearTable::LinearTable(const Bins& bins, const float* features, const float* weight, const Workers& workers)
    : centre_(bins.n_features(), 0.0),
      scale_(bins.n_features(), 0.0),
      means_(static_cast<size_t>(bins.n_features()) * 256, 0.0) {
  if (bins.cells().n_features() > 0)
    throw std::invalid_argument("Linear leaves need the codes of every row; none may be held sparse.");
  parallel_for(workers, bins.n_features(), [&](int64_t f, int) {
    if (!bins.is_categorical(static_cast<int>(f)))
      measure(bins, features + f * bins.n_rows(), weight, static_cast<int>(f));
  });
}

void LinearTable::measure(const Bins& bins, const float* column, const float* weight, int feature) {
  const DotKernels& kernels = POLYLEAF_SELECT(dot_kernels);
  const uint64_t* words = bins.words(bins.tile_of(feature));
  const int shift = 8 * bins.slot_of(feature), missing = bins.tile(bins.tile_of(feature)).missing();
  double weights[256] = {}, sums[256] = {};
  std::vector<double> x, w;  // of the rows that count
  x.reserve(bins.n_rows());
  w.reserve(bins.n_rows());
  for (int64_t i = 0; i < bins.n_rows(); ++i) {
    const int code = static_cast<int>(words[i] >> shift) & 255;
    const double wi = weight != nullptr ? weight[i] : 1.0;
    if (code == missing || std::isnan(column[i]) || !(wi > 0)) continue;
    weights[code] += wi;
    sums[code] += wi * static_cast<double>(column[i]);
    x.push_back(column[i]);
    w.push_back(wi);
  }
  double total = 0, sum = 0;
  for (int b = 0; b < 256; ++b) {
    total += weights[b];
    sum += sums[b];
  }
  if (x.empty()) return;
  const double centre = sum / total;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = x[i] - centre;
    w[i] *= d;
    x[i] = d;
  }
  double squares = 0;
  const int64_t n = static_cast<int64_t>(x.size());
  for (int64_t b = 0; b < n; b += kSumBlock)
    squares += kernels.dot(w.data() + b, x.data() + b, std::min(kSumBlock, n - b));
  centre_[feature] = centre;
  const double scale = std::sqrt(squares / total);
  if (!(scale > 0) || !std::isfinite(scale)) return;
  scale_[feature] = scale;
  for (int b = 0; b < 256; ++b)
    if (weights[b] > 0)
      means_[static_cast<size_t>(feature) * 256 + b] = (sums[b] / weights[b] - centre) * (1 / scale);
}

}  // namespace polyleaf
