#include "leaves/quantile.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "base/parallel.h"

namespace polyleaf {
namespace {

// A level times a total is a float just above the integer meant (0.07 * 100 > 7): this much is forgiven.
constexpr double kLevelSlack = 1.0 - 1e-12;
constexpr int kWeightBits = 31;  // 2^31 rows of 2^31 each are within int64

template <class T>
T quantile(std::vector<T>& values, double level) {
  const double wanted = std::ceil(level * kLevelSlack * static_cast<double>(values.size()));
  const auto rank =
      std::clamp<int64_t>(static_cast<int64_t>(wanted) - 1, 0, static_cast<int64_t>(values.size()) - 1);
  std::nth_element(values.begin(), values.begin() + rank, values.end());
  return values[static_cast<size_t>(rank)];
}

template <class T>
T weighted_quantile(std::vector<std::pair<T, uint32_t>>& items, double level) {
  std::sort(items.begin(), items.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  int64_t total = 0, sum = 0;
  for (const auto& item : items) total += item.second;
  const double wanted = level * kLevelSlack * static_cast<double>(total);
  for (const auto& item : items)
    if (static_cast<double>(sum += item.second) >= wanted) return item.first;
  return items.back().first;
}

// Of each column of weights the power of two that makes integers up to 2^31 of them: their sums are exact, in
// any order, and integers keep their proportions.
std::vector<double> integer_scales(const float* weight, int64_t n_rows, int64_t n_columns) {
  std::vector<float> largest(n_columns, 0.0f);
  std::vector<double> scale(n_columns, 0.0);
  for (int64_t i = 0; i < n_rows * n_columns; ++i)
    largest[i % n_columns] = std::max(largest[i % n_columns], weight[i]);
  for (int64_t k = 0; k < n_columns; ++k) {
    int exponent = 0;
    std::frexp(largest[k], &exponent);
    scale[k] = std::ldexp(1.0, kWeightBits - exponent);
  }
  return scale;
}

// Of a positive weight.
uint32_t integer_weight(float weight, double scale) {
  return std::max(uint32_t{1}, static_cast<uint32_t>(std::rint(weight * scale)));
}

}  // namespace

template <class T>
void quantile_leaves(const T* values, int64_t n_columns, const float* weight, int64_t weight_columns,
                     const RowSample& sample, const int32_t* leaf_of_row, int32_t n_leaves,
                     const double* level, const Workers& workers, T* out) {
  std::vector<uint32_t> rows(static_cast<size_t>(sample.n_used()));
  const std::vector<int64_t> begin = rows_by_leaf(sample, leaf_of_row, n_leaves, rows.data());
  const size_t n_slots = static_cast<size_t>(workers.n_threads);
  std::vector<std::vector<T>> plain(n_slots);
  std::vector<std::vector<std::pair<T, uint32_t>>> weighted(n_slots);
  std::vector<double> scale;
  if (weight != nullptr) scale = integer_scales(weight, sample.n_all, weight_columns);
  parallel_for(workers, n_leaves * n_columns, [&](int64_t task, int thread) {
    const int64_t leaf = task / n_columns, k = task % n_columns;
    auto& v = plain[thread];
    auto& items = weighted[thread];
    v.clear();
    items.clear();
    for (int64_t j = begin[leaf]; j < begin[leaf + 1]; ++j) {
      const int64_t row = rows[j];
      const T value = values[row * n_columns + k];
      if (std::isnan(value))
        throw std::invalid_argument("A quantile was asked for over values that contain NaN.");
      if (weight == nullptr)
        v.push_back(value);
      else if (const float w = weight[weight_columns == 1 ? row : row * n_columns + k]; w > 0)
        items.emplace_back(value, integer_weight(w, scale[weight_columns == 1 ? 0 : k]));
    }
    T result = 0;
    if (!v.empty()) result = quantile(v, level[k]);
    if (!items.empty()) result = weighted_quantile(items, level[k]);
    out[task] = result + T{0};  // of zeros, which sort alike, the positive one
  });
}

template void quantile_leaves(const float*, int64_t, const float*, int64_t, const RowSample&, const int32_t*,
                              int32_t, const double*, const Workers&, float*);
template void quantile_leaves(const double*, int64_t, const float*, int64_t, const RowSample&, const int32_t*,
                              int32_t, const double*, const Workers&, double*);

}  // namespace polyleaf
