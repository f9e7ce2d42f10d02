#include "leaves/quantile.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/parallel.h"

namespace polyleaf {
namespace {

// level * total may be slightly above the intended integer (0.07 * 100 > 7); this slack is
// tolerated.
constexpr double kLevelSlack = 1.0 - 1e-12;
constexpr int kWeightBits = 31;  // 2^31 rows of weight 2^31 fit int64
constexpr int kDigitBits = 8;
constexpr uint32_t kDigits = 1 << kDigitBits;
// Quantiles that ranks search at a time: 32 MiB of counts.
constexpr int64_t kQuantileBlock = 1 << 14;

// Return the minimum weight of the values up to a quantile.
double target_weight(double level, int64_t total) {
  return level * kLevelSlack * static_cast<double>(total);
}

template <class T>
T quantile(std::vector<T>& values, double level) {
  const double target = std::ceil(target_weight(level, static_cast<int64_t>(values.size())));
  const auto rank = std::clamp<int64_t>(static_cast<int64_t>(target) - 1, 0,
                                        static_cast<int64_t>(values.size()) - 1);
  std::nth_element(values.begin(), values.begin() + rank, values.end());
  return values[static_cast<size_t>(rank)];
}

template <class T>
T weighted_quantile(std::vector<std::pair<T, uint32_t>>& items, double level) {
  std::sort(items.begin(), items.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  int64_t total = 0, sum = 0;
  for (const auto& item : items) total += item.second;
  const double target = target_weight(level, total);
  for (const auto& item : items)
    if (static_cast<double>(sum += item.second) >= target) return item.first;
  return items.back().first;
}

// Return a power of two per weight column that scales weights to integers up to 2^31, so that sums
// are exact in any order and integers keep their proportions.
std::vector<double> integer_scales(MatrixView<const float> weight, const Context& context) {
  const int64_t n_columns = weight.n_columns;
  std::vector<double> largest(n_columns, 0.0), scale(n_columns, 0.0);
  for (int64_t i = 0; i < weight.n_rows; ++i)
    for (int64_t k = 0; k < n_columns; ++k) largest[k] = std::max<double>(largest[k], weight(i, k));
  context.allreduce_max(largest);
  for (int64_t k = 0; k < n_columns; ++k) {
    int exponent = 0;
    std::frexp(largest[k], &exponent);
    scale[k] = std::ldexp(1.0, kWeightBits - exponent);
  }
  return scale;
}

// Convert a positive weight to an integer.
uint32_t integer_weight(float weight, double scale) {
  return std::max(uint32_t{1}, static_cast<uint32_t>(std::rint(weight * scale)));
}

// The rows of every leaf as pairs of a value and an integer weight.
template <class T>
class LeafRows {
 public:
  LeafRows(MatrixView<const T> values, MatrixView<const float> weight, const RowSample& sample,
           const int32_t* leaf_of_row, int32_t n_leaves, const Context& context)
      : values_(values),
        weight_(weight),
        rows_(static_cast<size_t>(sample.n_used())),
        begin_(group_rows_by_leaf(sample, leaf_of_row, n_leaves, rows_.data())) {
    if (weight) scale_ = integer_scales(weight, context);
  }

  bool is_weighted() const { return static_cast<bool>(weight_); }
  // Call use(value, weight) for the rows of a leaf with a positive weight in this column.
  template <class Use>
  void each(int64_t leaf, int64_t k, const Use& use) const {
    for (int64_t j = begin_[leaf]; j < begin_[leaf + 1]; ++j) {
      const int64_t row = rows_[j];
      const T value = values_(row, k);
      if (std::isnan(value))
        throw std::invalid_argument("A quantile was asked for over values that contain NaN.");
      if (!is_weighted())
        use(value, uint32_t{1});
      else if (const int64_t column = weight_.n_columns == 1 ? 0 : k; weight_(row, column) > 0)
        use(value, integer_weight(weight_(row, column), scale_[column]));
    }
  }

 private:
  const MatrixView<const T> values_;
  const MatrixView<const float> weight_;
  std::vector<uint32_t> rows_;
  const std::vector<int64_t> begin_;  // first row of each leaf
  std::vector<double> scale_;
};

// Map floats to unsigned integers of the same order; both zeros are equal.
template <class T>
struct OrderedBits {
  using Key = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  static constexpr Key kSign = Key{1} << (8 * sizeof(T) - 1);
  static Key encode(T value) {
    Key bits;
    value += T{0};
    std::memcpy(&bits, &value, sizeof(bits));
    return (bits & kSign) != 0 ? ~bits : bits | kSign;
  }
  static T decode(Key key) {
    const Key bits = (key & kSign) != 0 ? key & ~kSign : ~key;
    T value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }
};

// Find quantiles over all ranks for a run of (leaf, column) pairs, 8 bits of the key at a time from
// the most significant, by the weight of each of the 256 candidates.
template <class T>
void find_digits(const LeafRows<T>& rows, std::span<const double> level, int64_t first, int64_t n,
                 const Context& context, MatrixView<T> out) {
  const int64_t n_columns = out.n_columns;
  using Key = typename OrderedBits<T>::Key;
  struct Search {
    Key known = 0;       // key bits found so far
    int64_t below = 0;   // weight of smaller keys
    double target = -1;  // weight that the quantile must reach
  };
  std::vector<Search> searches(static_cast<size_t>(n));
  std::vector<int64_t> counts(static_cast<size_t>(n) * kDigits);
  for (int shift = 8 * static_cast<int>(sizeof(T)) - kDigitBits; shift >= 0; shift -= kDigitBits) {
    std::fill(counts.begin(), counts.end(), 0);
    parallel_for(context, n, [&](int64_t i, int) {
      int64_t* digit_counts = counts.data() + i * kDigits;
      const Key known = searches[i].known >> shift >> kDigitBits;
      rows.each((first + i) / n_columns, (first + i) % n_columns, [&](T value, uint32_t weight) {
        const Key key = OrderedBits<T>::encode(value) >> shift;
        if (key >> kDigitBits == known) digit_counts[key % kDigits] += weight;
      });
    });
    context.allreduce_sum(counts);
    for (int64_t i = 0; i < n; ++i) {
      Search& search = searches[i];
      const int64_t* digit_counts = counts.data() + i * kDigits;
      if (search.target < 0) {
        const int64_t total = std::accumulate(digit_counts, digit_counts + kDigits, int64_t{0});
        search.target = target_weight(level[(first + i) % n_columns], total);
      }
      Key digit = 0;
      while (digit + 1 < kDigits &&
             static_cast<double>(search.below + digit_counts[digit]) < search.target)
        search.below += digit_counts[digit++];
      search.known |= digit << shift;
    }
  }
  for (int64_t i = 0; i < n; ++i)
    out.data[first + i] = searches[i].target > 0 ? OrderedBits<T>::decode(searches[i].known) : T{0};
}

}  // namespace

template <class T>
void fit_quantile_leaves(MatrixView<const T> values, MatrixView<const float> weight,
                         const RowSample& sample, const int32_t* leaf_of_row,
                         std::span<const double> level, const Context& context, MatrixView<T> out) {
  const int64_t n_columns = values.n_columns, n_all = out.size();
  POLYLEAF_DCHECK(values.n_rows == sample.n_all && out.n_columns == n_columns);
  POLYLEAF_DCHECK(static_cast<int64_t>(level.size()) == n_columns);
  const LeafRows<T> rows(values, weight, sample, leaf_of_row, static_cast<int32_t>(out.n_rows),
                         context);
  if (context.is_distributed()) {
    for (int64_t first = 0; first < n_all; first += kQuantileBlock)
      find_digits(rows, level, first, std::min(kQuantileBlock, n_all - first), context, out);
    return;
  }
  const size_t n_slots = static_cast<size_t>(context.n_threads);
  std::vector<std::vector<T>> plain(n_slots);
  std::vector<std::vector<std::pair<T, uint32_t>>> weighted(n_slots);
  parallel_for(context, n_all, [&](int64_t task, int thread) {
    const int64_t leaf = task / n_columns, k = task % n_columns;
    auto& v = plain[thread];
    auto& items = weighted[thread];
    v.clear();
    items.clear();
    rows.each(leaf, k, [&](T value, uint32_t w) {
      if (rows.is_weighted())
        items.emplace_back(value, w);
      else
        v.push_back(value);
    });
    T result = 0;
    if (!v.empty()) result = quantile(v, level[k]);
    if (!items.empty()) result = weighted_quantile(items, level[k]);
    out.data[task] = result + T{0};  // turn -0 into +0
  });
}

template void fit_quantile_leaves(MatrixView<const float>, MatrixView<const float>,
                                  const RowSample&, const int32_t*, std::span<const double>,
                                  const Context&, MatrixView<float>);
template void fit_quantile_leaves(MatrixView<const double>, MatrixView<const float>,
                                  const RowSample&, const int32_t*, std::span<const double>,
                                  const Context&, MatrixView<double>);

}  // namespace polyleaf
