#include "data/binning.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <type_traits>

#include "base/parallel.h"
#include "data/kernels/binning_kernels.h"
#include "data/radix_sort.h"

namespace polyleaf {
namespace {

// Blocks of rows x features are read once and stay in cache while each feature's codes are found.
constexpr int64_t kBlockRows = 1024;
constexpr int64_t kBlockFeatures = 64;
// With fewer values, threads cost more than they save.
constexpr int64_t kSerialValues = 1 << 14;
// Features whose sampled values are in memory at once while thresholds are chosen: bounds the
// memory of a fit.
constexpr int64_t kSampledFeatures = 32;
// 8-bit columns of at least this length are binned by a table of all 256 values.
constexpr int64_t kByteTableRows = 1024;
// Up to so many distinct values are counted rather than sorted.
constexpr size_t kMaxCountedValues = 8;

// Call f.operator()<T>() with the C++ type of a column.
template <class F>
auto visit_type(ValueType type, F&& f) {
  switch (type) {
    case ValueType::u8:
      return f.template operator()<uint8_t>();
    case ValueType::i8:
      return f.template operator()<int8_t>();
    case ValueType::u16:
      return f.template operator()<uint16_t>();
    case ValueType::i16:
      return f.template operator()<int16_t>();
    case ValueType::u32:
      return f.template operator()<uint32_t>();
    case ValueType::i32:
      return f.template operator()<int32_t>();
    case ValueType::u64:
      return f.template operator()<uint64_t>();
    case ValueType::i64:
      return f.template operator()<int64_t>();
    case ValueType::f32:
      return f.template operator()<float>();
    default:
      return f.template operator()<double>();
  }
}

// Integers are converted to float32 via float64: one rounding rule for every type.
template <class To, class From>
To convert(From value) {
  return static_cast<To>(static_cast<double>(value));
}

template <class T>
T read_value(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class To>
void load(const Column& column, int64_t begin, int64_t n, To* out) {
  visit_type(column.type, [&]<class From>() {
    const char* from = column.data + begin * column.stride;
    for (int64_t i = 0; i < n; ++i)
      out[i] = convert<To>(read_value<From>(from + i * column.stride));
  });
}

bool is_byte(ValueType type) {
  return type == ValueType::u8 || type == ValueType::i8;
}
bool fits_float(ValueType type) {
  return type == ValueType::f32 || type == ValueType::u16 || type == ValueType::i16;
}

// --- from sampled values to thresholds ---

// Return a number t with a <= t < b, the middle if rounding permits.
double between(double a, double b, bool is_float64) {
  double middle = a / 2 + b / 2;
  if (!is_float64) middle = static_cast<float>(middle);
  return middle >= a && middle < b ? middle : a;
}

// Values that weigh at least a bin's fair share of what the heavier ones leave. They get bins of
// their own.
struct HeavyValues {
  std::vector<uint8_t> is_heavy;
  int64_t n_heavy = 0;
  double light_weight = 0;  // of the other values

  template <class Weight>
  HeavyValues(std::span<const Weight> weights, int max_bins) : is_heavy(weights.size(), 0) {
    for (const Weight w : weights) light_weight += static_cast<double>(w);
    for (bool found = true; found;) {
      found = false;
      const double share = light_weight / static_cast<double>(max_bins - n_heavy);
      for (size_t i = 0; i < weights.size() && n_heavy < max_bins - 1; ++i) {
        if (is_heavy[i] || static_cast<double>(weights[i]) < share) continue;
        is_heavy[i] = 1;
        ++n_heavy;
        light_weight -= static_cast<double>(weights[i]);
        found = true;
      }
    }
  }
};

// Go through the values in order and close bins. The remaining bins are always spread over the
// remaining weight. One bin stays in reserve while light values remain, so that at most max_bins
// bins result.
// `value(i)` is the i-th value, ascending.
template <class Value, class Weight>
std::vector<double> choose_thresholds(const Value& value, std::span<const Weight> weights,
                                      int max_bins, bool is_float64) {
  const auto n = static_cast<int64_t>(weights.size());
  std::vector<double> thresholds;
  const auto close_after = [&](int64_t i) {
    thresholds.push_back(between(value(i), value(i + 1), is_float64));
  };
  if (n <= max_bins) {
    for (int64_t i = 0; i + 1 < n; ++i) close_after(i);
    return thresholds;
  }
  const HeavyValues heavy(weights, max_bins);
  int64_t bins_left = max_bins - heavy.n_heavy,
          values_left = n - heavy.n_heavy;  // for light values, and the number of light values
  double weight_left = heavy.light_weight, open = 0;
  bool follows_light_bin = false;  // the last closed bin holds light values
  for (int64_t i = 0; i + 1 < n; ++i) {
    if (heavy.is_heavy[i]) {
      close_after(i);
      weight_left -= open;
      open = 0;
      follows_light_bin = false;
      continue;
    }
    open += static_cast<double>(weights[i]);
    --values_left;
    const double share = weight_left / static_cast<double>(bins_left);
    if (heavy.is_heavy[i + 1]) {
      // A bin of less than half a share before a heavy value joins the light bin before it, if
      // there is one, or else the heavy value.
      const bool own_bin = open >= share / 2 && (bins_left > 1 || values_left == 0);
      if (own_bin) --bins_left;
      if (!own_bin && !follows_light_bin) continue;
      if (!own_bin) thresholds.pop_back();
    } else {
      const double overshoot = open + static_cast<double>(weights[i + 1]) - share;
      if (bins_left <= 1 || (overshoot <= share - open && values_left >= bins_left)) continue;
      --bins_left;
    }
    close_after(i);
    follows_light_bin = true;
    weight_left -= open;
    open = 0;
  }
  return thresholds;
}

struct Distinct {
  std::vector<double> values;  // ascending
  std::vector<int64_t> weights;

  void add(double value, int64_t weight) {
    if (!values.empty() && values.back() == value) {
      weights.back() += weight;
    } else {
      values.push_back(value);
      weights.push_back(weight);
    }
  }
};

template <class T>
Distinct sorted_distinct(std::vector<WeightedKey<KeyOf<T>>>& items) {
  std::vector<WeightedKey<KeyOf<T>>> scratch(items.size());
  const WeightedKey<KeyOf<T>>* sorted = sort_by_key(items.data(), scratch.data(), items.size());
  size_t n = 0;
  for (size_t i = 0; i < items.size(); ++i) n += i == 0 || sorted[i].key != sorted[i - 1].key;
  Distinct distinct;
  distinct.values.reserve(n);
  distinct.weights.reserve(n);
  for (size_t i = 0; i < items.size(); ++i)
    distinct.add(from_key<T>(sorted[i].key), sorted[i].weight);
  return distinct;
}

Distinct rounded_to_float(const Distinct& exact) {
  Distinct rounded;
  for (size_t i = 0; i < exact.values.size(); ++i)
    rounded.add(static_cast<float>(exact.values[i]), exact.weights[i]);
  return rounded;
}

// Return whether float32 would merge more than a quarter of the distinct values, or cannot hold the
// largest.
bool needs_float64(const Distinct& exact, const Distinct& rounded) {
  if (exact.values.empty()) return false;
  const double limit = std::numeric_limits<float>::max();
  if (exact.values.front() < -limit || exact.values.back() > limit) return true;
  return 4 * (exact.values.size() - rounded.values.size()) > exact.values.size();
}

Thresholds choose_distinct_thresholds(Distinct distinct, bool is_float64, int max_bins) {
  Thresholds result;
  if (is_float64) {
    Distinct rounded = rounded_to_float(distinct);
    result.is_float64 = needs_float64(distinct, rounded);
    if (!result.is_float64) distinct = std::move(rounded);
  }
  result.values =
      choose_thresholds([&](int64_t i) { return distinct.values[i]; },
                        std::span<const int64_t>(distinct.weights), max_bins, result.is_float64);
  if (!distinct.values.empty()) {
    result.least = distinct.values.front();
    result.largest = distinct.values.back();
  }
  return result;
}

// Distinct values if they are counted, such as word counts or indicators.
template <class T>
class CountedValues {
 public:
  // Count a value. Return false if there are too many distinct values.
  bool add(T value, int64_t weight) {
    for (size_t i = 0; i < n_; ++i)
      if (items_[i].value == value) {
        items_[i].weight += weight;
        return true;
      }
    if (n_ == kMaxCountedValues) return false;
    items_[n_++] = {value + T{0}, weight};  // -0 is 0
    return true;
  }
  Distinct distinct() {
    std::sort(items_, items_ + n_, [](const Item& a, const Item& b) { return a.value < b.value; });
    Distinct found;
    for (size_t i = 0; i < n_; ++i) found.add(items_[i].value, items_[i].weight);
    return found;
  }

 private:
  struct Item {
    T value;
    int64_t weight;
  } items_[kMaxCountedValues];
  size_t n_ = 0;
};

// Return the thresholds of one feature from its sampled values (NaN: missing), their weights, and
// `zeros`, the weight of the zeros that are not stored.
template <class T>
Thresholds choose_weighted_thresholds(const T* values, const int64_t* weights, int64_t n,
                                      int64_t zeros, int max_bins) {
  std::vector<WeightedKey<KeyOf<T>>> items;
  items.reserve(n + 1);
  for (int64_t i = 0; i < n; ++i)
    if (values[i] == values[i]) items.push_back({to_key(values[i]), weights[i]});
  if (zeros > 0) items.push_back({to_key(T{0}), zeros});
  return choose_distinct_thresholds(sorted_distinct<T>(items), std::is_same_v<T, double>, max_bins);
}

// Likewise for values of weight 1, in their memory and in `scratch`, which has room for as many
// keys: memory that threads allocate themselves stays with them.
template <class T>
Thresholds choose_plain_thresholds(T* values, KeyOf<T>* scratch, int64_t n, int max_bins) {
  using Key = KeyOf<T>;
  auto* keys = reinterpret_cast<Key*>(values);
  size_t n_keys = 0;
  for (int64_t i = 0; i < n; ++i) {
    T value;
    std::memcpy(&value, keys + i, sizeof(value));
    if (value == value) keys[n_keys++] = to_key(value);
  }
  Key* sorted = sort_by_key(keys, scratch, n_keys);
  Key* weights = sorted == keys ? scratch : keys;
  size_t n_distinct = 0;
  for (size_t i = 0; i < n_keys; ++i) {
    if (n_distinct > 0 && sorted[n_distinct - 1] == sorted[i]) {
      ++weights[n_distinct - 1];
    } else {
      sorted[n_distinct] = sorted[i];
      weights[n_distinct++] = 1;
    }
  }
  if constexpr (std::is_same_v<T, double>) {  // may be rounded to float32
    Distinct distinct;
    distinct.values.reserve(n_distinct);
    distinct.weights.reserve(n_distinct);
    for (size_t i = 0; i < n_distinct; ++i)
      distinct.add(from_key<T>(sorted[i]), static_cast<int64_t>(weights[i]));
    return choose_distinct_thresholds(std::move(distinct), true, max_bins);
  } else {
    const auto value = [&](int64_t i) { return double{from_key<T>(sorted[i])}; };
    const std::span<const Key> each(weights, n_distinct);
    Thresholds result{choose_thresholds(value, each, max_bins, false), false};
    if (n_keys > 0) {
      result.least = value(0);
      result.largest = value(static_cast<int64_t>(n_distinct) - 1);
    }
    return result;
  }
}

// Return the thresholds of 8-bit integers, by counting.
template <class T>
Thresholds choose_byte_thresholds(const T* values, const int64_t* weights, int64_t n,
                                  int max_bins) {
  constexpr int lowest = std::numeric_limits<T>::min();
  int64_t counts[256] = {};
  for (int64_t i = 0; i < n; ++i) counts[values[i] - lowest] += weights == nullptr ? 1 : weights[i];
  Distinct distinct;
  for (int v = 0; v < 256; ++v)
    if (counts[v] > 0) distinct.add(v + lowest, counts[v]);
  return choose_distinct_thresholds(std::move(distinct), false, max_bins);
}

// Return the memory for n sampled values of a column, a multiple of 8 bytes.
size_t sampled_bytes(ValueType type, int64_t n) {
  const size_t size = is_byte(type) ? 1 : fits_float(type) ? sizeof(float) : sizeof(double);
  return (static_cast<size_t>(n) * size + 7) / 8 * 8;
}

// Values at the sampled rows of up to kSampledFeatures dense columns, one contiguous run per
// column.
class SampledColumns {
  // Call f with the memory of column c, as the type in which its values are sorted.
  template <class F>
  auto visit_values(int64_t c, F&& f) {
    char* memory = bytes_.data() + offsets_[c];
    const ValueType type = columns_[c].type;
    if (type == ValueType::u8) return f(reinterpret_cast<uint8_t*>(memory));
    if (type == ValueType::i8) return f(reinterpret_cast<int8_t*>(memory));
    if (fits_float(type)) return f(reinterpret_cast<float*>(memory));
    return f(reinterpret_cast<double*>(memory));
  }

 public:
  SampledColumns(const Column* columns, int64_t n_columns, const Sample& sample,
                 const Context& context)
      : columns_(columns), sample_(sample), offsets_(static_cast<size_t>(n_columns) + 1, 0) {
    for (int64_t c = 0; c < n_columns; ++c)
      offsets_[c + 1] = offsets_[c] + sampled_bytes(columns[c].type, sample.n);
    bytes_.reserve(offsets_[n_columns]);
    // Rows outside, columns inside: in a row-major matrix the values of a row share cache lines.
    parallel_for(context, Block::count(sample.n, kBlockRows), [&](int64_t task, int) {
      const Block block(sample.n, kBlockRows, task);
      for (int64_t c = 0; c < n_columns; ++c)
        visit_values(c, [&](auto* values) { read(columns[c], block, values); });
    });
  }

  // Overwrites the values; scratch: room for as many keys.
  Thresholds thresholds(int64_t c, int max_bins, uint64_t* scratch) {
    return visit_values(c, [&]<class T>(T* values) {
      if constexpr (sizeof(T) == 1)
        return choose_byte_thresholds(values, sample_.weights, sample_.n, max_bins);
      else if (sample_.weights != nullptr)
        return choose_weighted_thresholds(values, sample_.weights, sample_.n, 0, max_bins);
      else
        return choose_plain_thresholds(values, reinterpret_cast<KeyOf<T>*>(scratch), sample_.n,
                                       max_bins);
    });
  }

 private:
  template <class To>
  void read(const Column& column, const Block& block, To* out) const {
    if (sample_.rows == nullptr)
      return load(column, block.begin, block.end - block.begin, out + block.begin);
    visit_type(column.type, [&]<class From>() {
      for (int64_t i = block.begin; i < block.end; ++i)
        out[i] = convert<To>(read_value<From>(column.data + sample_.rows[i] * column.stride));
    });
  }

  const Column* columns_;
  Sample sample_;
  std::vector<size_t> offsets_;
  Buffer<char> bytes_;
};

void check_row(int32_t row, int64_t n_rows) {
  if (row < 0 || row >= n_rows)
    throw std::invalid_argument(
        "A sparse matrix holds a row index outside its shape; rebuild the matrix.");
}

// sample_index: position of each row of the table in the sample, -1 outside; empty: all rows, in
// order.
Thresholds choose_sparse_thresholds(const StoredColumn& column, const Sample& sample,
                                    int64_t n_rows, const std::vector<int32_t>& sample_index,
                                    int64_t total_weight, int max_bins) {
  return visit_type(column.type, [&]<class From>() {
    using T = std::conditional_t<std::is_same_v<From, float>, float, double>;
    int64_t zeros = total_weight;
    // Call f with each sampled value and its weight, until it returns false.
    const auto visit_sample = [&](const auto& f) {
      for (int64_t i = 0; i < column.n; ++i) {
        check_row(column.rows[i], n_rows);
        const int64_t position =
            sample_index.empty() ? column.rows[i] : sample_index[column.rows[i]];
        if (position < 0) continue;
        const int64_t weight = sample.weights == nullptr ? 1 : sample.weights[position];
        zeros -= weight;
        if (!f(static_cast<T>(reinterpret_cast<const From*>(column.values)[i]), weight))
          return false;
      }
      return true;
    };
    CountedValues<T> counted;
    if (visit_sample([&](T value, int64_t weight) {
          return value != value || counted.add(value, weight);
        }) &&
        (zeros == 0 || counted.add(T{0}, zeros)))
      return choose_distinct_thresholds(counted.distinct(), std::is_same_v<T, double>, max_bins);
    std::vector<T> values;
    std::vector<int64_t> weights;
    zeros = total_weight;
    visit_sample([&](T value, int64_t weight) {
      values.push_back(value);
      weights.push_back(weight);
      return true;
    });
    return choose_weighted_thresholds(values.data(), weights.data(),
                                      static_cast<int64_t>(values.size()), zeros, max_bins);
  });
}

}  // namespace

std::vector<Thresholds> find_thresholds(const Columns& columns, const Sample& sample,
                                        int32_t n_features, int max_bins, const Context& context) {
  std::vector<Thresholds> result(static_cast<size_t>(n_features));
  const auto n_dense = static_cast<int64_t>(columns.dense.size());
  Buffer<uint64_t> scratch(n_dense > 0 ? static_cast<size_t>(sample.n * context.n_threads) : 0);
  for (int64_t begin = 0; begin < n_dense; begin += kSampledFeatures) {
    const int64_t n = std::min(kSampledFeatures, n_dense - begin);
    const Column* group = columns.dense.data() + begin;
    SampledColumns sampled(group, n, sample, context);
    parallel_for(context, n, [&](int64_t c, int thread) {
      result[group[c].feature] =
          sampled.thresholds(c, max_bins, scratch.data() + thread * sample.n);
    });
  }
  if (columns.stored.empty()) return result;
  std::vector<int32_t> sample_index;
  int64_t total_weight = 0;
  if (sample.rows != nullptr) sample_index.assign(static_cast<size_t>(columns.n_rows), -1);
  for (int64_t i = 0; i < sample.n; ++i) {
    if (sample.rows != nullptr) sample_index[sample.rows[i]] = static_cast<int32_t>(i);
    total_weight += sample.weights == nullptr ? 1 : sample.weights[i];
  }
  parallel_for(context, static_cast<int64_t>(columns.stored.size()), [&](int64_t c, int) {
    const StoredColumn& column = columns.stored[c];
    result[column.feature] = choose_sparse_thresholds(column, sample, columns.n_rows, sample_index,
                                                      total_weight, max_bins);
  });
  return result;
}

// --- codes ---

namespace {

template <class T>
void lay_out(const std::vector<double>& thresholds, T* table) {
  const int n = static_cast<int>(thresholds.size());
  std::fill_n(table, search_rows(n) * kSearchLanes, std::numeric_limits<T>::infinity());
  T* fine = table + kSearchLanes;
  for (int i = 0; i < n; ++i) {
    const int row = i / kSearchLanes, lane = i % kSearchLanes;
    (lane == kSearchLanes - 1 ? table[row] : fine[row * kSearchLanes + lane]) =
        static_cast<T>(thresholds[i]);
  }
}

void look_up_categories(const CategoryColumn& column, const Block& block, uint8_t* codes) {
  for (int64_t i = block.begin; i < block.end; ++i) {
    const int32_t index = column.index[i];
    codes[i] = index >= 0 && index < column.n_categories ? column.code_of[index] : kMissingCode;
  }
}

}  // namespace

BinTable::BinTable(const std::vector<Thresholds>& thresholds) {
  for (const Thresholds& t : thresholds) {
    const int rows = search_rows(static_cast<int>(t.values.size()));
    size_t& size = t.is_float64 ? n_float64_ : n_float32_;
    features_.push_back({size, rows - 1, t.is_float64});
    size += static_cast<size_t>(rows) * kSearchLanes;
  }
  float32_.reserve(n_float32_);
  float64_.reserve(n_float64_);
  for (size_t f = 0; f < thresholds.size(); ++f) {
    if (thresholds[f].is_float64)
      lay_out(thresholds[f].values, float64_.data() + features_[f].offset);
    else
      lay_out(thresholds[f].values, float32_.data() + features_[f].offset);
  }
}

// Write the codes of up to kBlockRows rows. Values of other types are converted in a buffer.
void BinTable::bin_column(const Column& column, int64_t begin, int64_t n, uint8_t* codes) const {
  const BinningKernels& kernels = POLYLEAF_SELECT(binning_kernels);
  const Feature& feature = features_[column.feature];
  const char* first = column.data + begin * column.stride;
  const auto run = [&]<class T>(const T* table, ValueType own_type, auto kernel) {
    const ptrdiff_t stride = column.stride / static_cast<ptrdiff_t>(sizeof(T));
    if (column.type == own_type && stride * static_cast<ptrdiff_t>(sizeof(T)) == column.stride)
      return kernel(reinterpret_cast<const T*>(first), stride, n, table, feature.n_fine_rows,
                    codes);
    T values[kBlockRows];
    load(column, begin, n, values);
    kernel(values, 1, n, table, feature.n_fine_rows, codes);
  };
  if (feature.is_float64)
    run(float64_.data() + feature.offset, ValueType::f64, kernels.bin_double);
  else
    run(float32_.data() + feature.offset, ValueType::f32, kernels.bin_float);
}

uint8_t BinTable::zero_code(int32_t feature) const {
  const float zero = 0;
  uint8_t code;
  bin_column({feature, ValueType::f32, reinterpret_cast<const char*>(&zero), sizeof(float)}, 0, 1,
             &code);
  return code;
}

// Write the codes of stored values begin .. begin + n - 1 of a column.
void BinTable::bin_stored(const StoredColumn& column, int64_t begin, int64_t n,
                          uint8_t* codes) const {
  const ptrdiff_t stride = column.type == ValueType::f32 ? sizeof(float) : sizeof(double);
  bin_column({column.feature, column.type, column.values, stride}, begin, n, codes);
}

// Write the code of 0 to every row, then the codes of the stored rows.
void BinTable::bin_sparse(const StoredColumn& column, int64_t n_rows, uint8_t* codes) const {
  std::memset(codes, zero_code(column.feature), static_cast<size_t>(n_rows));
  uint8_t block_codes[kBlockRows];
  for (int64_t begin = 0; begin < column.n; begin += kBlockRows) {
    const int64_t n = std::min(kBlockRows, column.n - begin);
    bin_stored(column, begin, n, block_codes);
    for (int64_t i = 0; i < n; ++i) {
      check_row(column.rows[begin + i], n_rows);
      codes[column.rows[begin + i]] = block_codes[i];
    }
  }
}

void count_codes(const uint8_t* codes, int64_t n_rows, const std::vector<int>& n_bins,
                 int64_t* counts, const Context& context) {
  std::vector<int64_t> begin(n_bins.size() + 1, 0);
  for (size_t f = 0; f < n_bins.size(); ++f) begin[f + 1] = begin[f] + n_bins[f] + 1;
  parallel_for(context, static_cast<int64_t>(n_bins.size()), [&](int64_t f, int) {
    // Neighbouring rows often share a code: with several tables no addition waits for the last.
    constexpr int kTables = 4;
    uint32_t tables[kTables][256] = {};
    const uint8_t* code = codes + f * n_rows;
    int64_t i = 0;
    for (; i + kTables <= n_rows; i += kTables)
      for (int t = 0; t < kTables; ++t) ++tables[t][code[i + t]];
    for (; i < n_rows; ++i) ++tables[0][code[i]];
    const int last = n_bins[f];
    for (int b = 0; b <= last; ++b) {
      int64_t& count = counts[begin[f] + b] = 0;
      for (const auto& table : tables) count += table[b < last ? b : kMissingCode];
    }
  });
}

void BinTable::transform_stored(const std::vector<StoredColumn>& columns, uint8_t* codes,
                                uint8_t* zero_codes, const Context& context) const {
  std::vector<int64_t> at(columns.size() + 1, 0);
  for (size_t c = 0; c < columns.size(); ++c) at[c + 1] = at[c] + columns[c].n;
  parallel_for(context, static_cast<int64_t>(columns.size()), [&](int64_t c, int) {
    zero_codes[c] = zero_code(columns[c].feature);
    for (int64_t begin = 0; begin < columns[c].n; begin += kBlockRows)
      bin_stored(columns[c], begin, std::min(kBlockRows, columns[c].n - begin),
                 codes + at[c] + begin);
  });
}

void BinTable::transform(const Columns& columns, uint8_t* codes, const Context& context,
                         const int32_t* code_rows) const {
  const int64_t n = columns.n_rows;
  const auto get_codes = [&](int32_t feature) { return codes + code_rows[feature] * n; };
  const Context parallel = n * n_features() < kSerialValues ? 1 : context;
  const auto n_dense = static_cast<int64_t>(columns.dense.size());

  // Find the codes of all 256 values of 8-bit columns once.
  std::vector<int64_t> byte_table(static_cast<size_t>(n_dense), -1);
  std::vector<uint8_t> byte_codes;
  if (n >= kByteTableRows) {
    uint8_t all[256];
    for (int v = 0; v < 256; ++v) all[v] = static_cast<uint8_t>(v);
    for (int64_t c = 0; c < n_dense; ++c) {
      const Column& column = columns.dense[c];
      if (!is_byte(column.type)) continue;
      byte_table[c] = static_cast<int64_t>(byte_codes.size());
      byte_codes.resize(byte_codes.size() + 256);
      bin_column({column.feature, column.type, reinterpret_cast<const char*>(all), 1}, 0, 256,
                 &byte_codes[byte_table[c]]);
    }
  }

  const int64_t n_groups = Block::count(n_dense, kBlockFeatures);
  parallel_for(parallel, Block::count(n, kBlockRows) * n_groups, [&](int64_t task, int) {
    const Block rows(n, kBlockRows, task / n_groups),
        group(n_dense, kBlockFeatures, task % n_groups);
    for (int64_t c = group.begin; c < group.end; ++c) {
      const Column& column = columns.dense[c];
      uint8_t* out = get_codes(column.feature) + rows.begin;
      if (byte_table[c] < 0) {
        bin_column(column, rows.begin, rows.end - rows.begin, out);
        continue;
      }
      const uint8_t* code_of = &byte_codes[byte_table[c]];
      const char* value = column.data + rows.begin * column.stride;
      for (int64_t i = 0; i < rows.end - rows.begin; ++i)
        out[i] = code_of[static_cast<uint8_t>(value[i * column.stride])];
    }
  });
  parallel_for(parallel, static_cast<int64_t>(columns.stored.size()), [&](int64_t c, int) {
    bin_sparse(columns.stored[c], n, get_codes(columns.stored[c].feature));
  });
  constexpr int64_t kCategoryRows = kBlockRows * kBlockFeatures;
  const int64_t n_blocks = Block::count(n, kCategoryRows);
  parallel_for(parallel, n_blocks * static_cast<int64_t>(columns.categories.size()),
               [&](int64_t task, int) {
                 const CategoryColumn& column = columns.categories[task / n_blocks];
                 look_up_categories(column, Block(n, kCategoryRows, task % n_blocks),
                                    get_codes(column.feature));
               });
}

// --- infinities ---

template <class T>
bool has_infinite(const T* data, int64_t n_rows, int64_t n_columns, ptrdiff_t row_stride,
                  ptrdiff_t column_stride, const Context& context) {
  const BinningKernels& kernels = POLYLEAF_SELECT(binning_kernels);
  const auto found_in = [&](const T* x, int64_t n) {
    if constexpr (std::is_same_v<T, float>)
      return kernels.has_infinite_float(x, n);
    else
      return kernels.has_infinite_double(x, n);
  };
  const Context parallel = n_rows * n_columns < kSerialValues ? 1 : context;
  // The inner loop runs along the shorter stride.
  if (std::abs(row_stride) < std::abs(column_stride)) {
    std::swap(n_rows, n_columns);
    std::swap(row_stride, column_stride);
  }
  if (column_stride == 1 && row_stride == n_columns) {  // contiguous: split it anew
    n_columns *= n_rows;
    n_rows = 1;
  }
  std::atomic<bool> found{false};
  const int64_t n_pieces = Block::count(n_columns, kSerialValues);
  parallel_for(parallel, n_rows * n_pieces, [&](int64_t task, int) {
    if (found.load(std::memory_order_relaxed)) return;
    const Block piece(n_columns, kSerialValues, task % n_pieces);
    const T* x = data + (task / n_pieces) * row_stride + piece.begin * column_stride;
    if (column_stride == 1) {
      if (found_in(x, piece.end - piece.begin)) found = true;
      return;
    }
    for (int64_t i = 0; i < piece.end - piece.begin; ++i)
      if (std::isinf(x[i * column_stride])) found = true;
  });
  return found;
}

template bool has_infinite(const float*, int64_t, int64_t, ptrdiff_t, ptrdiff_t, const Context&);
template bool has_infinite(const double*, int64_t, int64_t, ptrdiff_t, ptrdiff_t, const Context&);

}  // namespace polyleaf
