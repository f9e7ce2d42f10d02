#include "forest/row_predictor.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/bin_code.h"
#include "base/parallel.h"

namespace polyleaf {
namespace {

// Rows whose codes and features are in memory at a time.
constexpr int64_t kRowBlock = 4096;

double read_value(const NumberRows& rows, int64_t row, int32_t feature) {
  const char* at = rows.data + row * rows.row_stride + feature * rows.column_stride;
  return rows.type == ValueType::f32 ? double{*reinterpret_cast<const float*>(at)}
                                     : *reinterpret_cast<const double*>(at);
}

uint8_t find_code(const CategoryValues& known, double value) {
  const auto found = std::lower_bound(known.values.begin(), known.values.end(), value);
  // NaN is not a known value
  if (found == known.values.end() || *found != value) return kMissingCode;
  return known.codes[found - known.values.begin()];
}

void check_sizes(const std::vector<double>& values, size_t n, const char* name) {
  if (values.size() != n)
    throw std::invalid_argument(std::string("`") + name + "` must have one value for each of the " +
                                std::to_string(n) + " outputs, but has " +
                                std::to_string(values.size()) + ".");
}

}  // namespace

RowPredictor::RowPredictor(std::shared_ptr<const Forest> forest,
                           std::shared_ptr<const BinTable> bins,
                           std::vector<CategoryValues> categories,
                           RegressorTransform regressor_transform, std::vector<double> base,
                           std::vector<double> scale, std::vector<double> offset)
    : forest_(std::move(forest)),
      bins_(std::move(bins)),
      regressor_transform_(std::move(regressor_transform)),
      base_(std::move(base)),
      scale_(std::move(scale)),
      offset_(std::move(offset)) {
  const size_t n_outputs = static_cast<size_t>(forest_->n_outputs());
  check_sizes(base_, n_outputs, "base");
  check_sizes(offset_, scale_.size(), "offset");
  if (!scale_.empty()) check_sizes(scale_, n_outputs, "scale");
  const TreeRange all{0, forest_->n_trees()};
  const std::vector<int32_t> used = forest_->split_features(all);
  regressors_ = forest_->regressors(all);
  for (const std::vector<int32_t>& features : {used, regressors_})
    if (!features.empty() && features.back() >= n_features())
      throw std::invalid_argument("The trees read features that the bins do not have.");
  std::vector<uint8_t> is_numeric(n_features(), 1);
  for (CategoryValues& known : categories) {
    if (known.feature < 0 || known.feature >= n_features() ||
        known.values.size() != known.codes.size())
      throw std::invalid_argument(
          "The values of a categorical feature need a feature, and a code each.");
    is_numeric[known.feature] = 0;
    if (std::binary_search(used.begin(), used.end(), known.feature))
      categories_.push_back(std::move(known));
  }
  for (int32_t feature : used)
    if (is_numeric[feature]) numeric_.push_back(feature);
  row_positions_.resize(n_features());
  std::iota(row_positions_.begin(), row_positions_.end(), 0);
}

void RowPredictor::find_codes(const NumberRows& rows, uint8_t* codes,
                              const Context& context) const {
  Columns columns;
  columns.n_rows = rows.n_rows;
  columns.dense.reserve(numeric_.size());
  for (int32_t feature : numeric_)
    columns.dense.push_back(
        {feature, rows.type, rows.data + feature * rows.column_stride, rows.row_stride});
  bins_->transform(columns, codes, context, row_positions_.data());
  for (const CategoryValues& known : categories_)
    for (int64_t r = 0; r < rows.n_rows; ++r)
      codes[known.feature * rows.n_rows + r] = find_code(known, read_value(rows, r, known.feature));
}

// As FeatureTable.get_raw_values: a double that float cannot hold becomes the largest float of its
// sign.
void RowPredictor::copy_features(const NumberRows& rows, float* features) const {
  constexpr float largest = std::numeric_limits<float>::max();
  const RegressorTransform& transform = regressor_transform_;
  const bool transforms = !transform.centre.empty();
  const bool clips = transforms || rows.type == ValueType::f64;
  for (int32_t feature : regressors_)
    for (int64_t r = 0; r < rows.n_rows; ++r) {
      double value = read_value(rows, r, feature);
      if (transforms) {
        const double low = transform.low[feature], high = transform.high[feature];
        value = (value < low ? low : value > high ? high : value) - transform.centre[feature];
      }
      features[feature * rows.n_rows + r] =
          static_cast<float>(clips && value > largest    ? largest
                             : clips && value < -largest ? -largest
                                                         : value);
    }
}

void RowPredictor::scores(const NumberRows& rows, double* scores, const Context& context) const {
  POLYLEAF_THREAD_LOCAL Buffer<uint8_t> codes;
  POLYLEAF_THREAD_LOCAL Buffer<float> features;
  for (int64_t begin = 0; begin < rows.n_rows; begin += kRowBlock) {
    const NumberRows part = rows.part(begin, std::min(begin + kRowBlock, rows.n_rows));
    const size_t size = static_cast<size_t>(part.n_rows) * part.n_features;
    codes.reserve(size);
    find_codes(part, codes.data(), context);
    FeatureMatrix raw;
    if (!regressors_.empty()) {
      features.reserve(size);
      copy_features(part, features.data());
      raw = {features.data(), part.n_features, part.n_rows};
    }
    forest_->scores({codes.data(), part.n_features, part.n_rows}, nullptr, raw, transform(),
                    scores + begin * n_outputs(), {0, forest_->n_trees()}, context);
  }
}

}  // namespace polyleaf
