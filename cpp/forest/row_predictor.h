// A frozen model for a few rows of plain numbers at a time: from numbers to scores in one call.
// Thread-safe: calls run concurrently.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "data/binning.h"
#include "forest/forest.h"

namespace polyleaf {

// A matrix of float or double; strides in bytes.
struct NumberRows {
  const char* data;
  ValueType type;  // f32 or f64
  int64_t n_rows, n_features;
  ptrdiff_t row_stride, column_stride;

  NumberRows part(int64_t begin, int64_t end) const {
    NumberRows out = *this;
    out.data += begin * row_stride;
    out.n_rows = end - begin;
    return out;
  }
};

// Values of a feature are limited to low .. high, less its centre, as regressors of linear leaves.
// Empty: they are used as they are.
struct RegressorTransform {
  std::vector<double> centre, low, high;
};

class RowPredictor {
 public:
  // base: one value per output; scale and offset likewise, or empty. Throws std::invalid_argument
  // for inconsistent arguments.
  RowPredictor(std::shared_ptr<const Forest> forest, std::shared_ptr<const BinTable> bins,
               std::vector<CategoryValues> categories, RegressorTransform regressor_transform,
               std::vector<double> base, std::vector<double> scale, std::vector<double> offset);

  int32_t n_features() const { return bins_->n_features(); }
  int32_t n_outputs() const { return forest_->n_outputs(); }
  // Compute scores (n_rows, n_outputs), equal to Forest::scores.
  void scores(const NumberRows& rows, double* scores, const Context& context) const;

  // Parts of a prediction: the trees, the codes (n_features, n_rows) of the features that they
  // split on, and the transform of their sums.
  const Forest& forest() const { return *forest_; }
  void find_codes(const NumberRows& rows, uint8_t* codes, const Context& context) const;
  const BinTable& bins() const { return *bins_; }
  // numeric features that trees split on
  const std::vector<int32_t>& numeric() const { return numeric_; }
  const std::vector<CategoryValues>& categories() const { return categories_; }  // likewise
  ScoreTransform transform() const {
    const bool scaled = !scale_.empty();
    return {base_.data(), scaled ? scale_.data() : nullptr, scaled ? offset_.data() : nullptr};
  }

 private:
  void copy_features(const NumberRows& rows, float* features) const;

  std::shared_ptr<const Forest> forest_;
  std::shared_ptr<const BinTable> bins_;
  std::vector<CategoryValues> categories_;  // categorical features that trees split on
  std::vector<int32_t> numeric_;            // likewise
  std::vector<int32_t> regressors_;
  RegressorTransform regressor_transform_;
  std::vector<int32_t> row_positions_;
  std::vector<double> base_, scale_, offset_;
};

}  // namespace polyleaf
