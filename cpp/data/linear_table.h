// Features as regressors (GBDT-PL, section 4.1): centred on their mean, in units of their standard
// deviation, and the mean of every bin in that unit. Ridge then means the same for every feature.
// Computed from exact totals over the rows of all ranks.
#pragma once
#include <cstdint>
#include <vector>

#include "base/context.h"
#include "data/bins.h"

namespace polyleaf {

class LinearTable {
 public:
  // features: (n_features, n_rows) float32, NaN where missing; weight: (n_rows,) or nullptr.
  LinearTable(const Bins& bins, const float* features, const float* weight, const Context& context);

  int n_features() const { return static_cast<int>(scale_.size()); }
  // Standard deviation; 0: the feature is no regressor (categorical, constant, all missing, or of a
  // scale that float32 slopes do not reach).
  double scale(int feature) const { return scale_[feature]; }
  bool is_regressor(int feature) const { return scale_[feature] > 0; }
  const std::vector<double>& centres() const { return centre_; }
  const std::vector<double>& scales() const { return scale_; }
  // 256 bin means, by code; 0 for bins without rows and for the missing code.
  const double* means(int feature) const {
    return means_.data() + static_cast<size_t>(feature) * 256;
  }

 private:
  struct Column;

  void measure(const Bins& bins, const float* values, const float* weight, int feature,
               Column& column, const Context& context);

  std::vector<double> centre_, scale_, means_;
};

}  // namespace polyleaf
