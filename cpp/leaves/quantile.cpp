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

template <class T>
T quantile(std::vector<T>& values, double level) {
  const double wanted = std::ceil(level * kLevelSlack * static_cast<double>(values.size()));
  const auto rank =
      std::clamp<int64_t>(static_cast<int64_t>(wanted) - 1, 0, static_cast<int64_t>(values.size()) - 1);
  std::nth_element(values.begin(), values.begin() + rank, values.end());
  return values[static_cast<size_t>(rank)];
}

// Weights are added in order of value, equal values in order of row: the sum does not depend on the sort.
template <class T>
T weighted_quantile(std::vector<std::pair<T, float>>& items, double level) {
  std::stable_sort(items.begin(), items.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  double total = 0;
  for (const auto& item : items) total += item.second;
  const double wanted = level * kLevelSlack * total;
  double sum = 0;
  for (const auto& item : items)
    if ((sum += item.second) >= wanted) return item.first;
  return items.back().first;
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
  std::vector<std::vector<std::pair<T, float>>> weighted(n_slots);
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
        items.emplace_back(value, w);
    }
    T result = 0;
    if (!v.empty()) result = quantile(v, level[k]);
    if (!items.empty()) result = weighted_quantile(items, level[k]);
    out[task] = result;
  });
}

template void quantile_leaves(const float*, int64_t, const float*, int64_t, const RowSample&, const int32_t*,
                              int32_t, const double*, const Workers&, float*);
template void quantile_leaves(const double*, int64_t, const float*, int64_t, const RowSample&, const int32_t*,
                              int32_t, const double*, const Workers&, double*);

}  // namespace polyleaf
