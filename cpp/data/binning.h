// Binning: columns of numbers in, thresholds and uint8 codes out.
//
// Values are compared as float32, so that float32 and float64 input give the same bins, except for
// features marked `is_float64`, whose distinct values float32 would merge.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/bin_code.h"
#include "base/context.h"

namespace polyleaf {

// GPU kernels use the same numbers (device/kernels/binning_device.cu).
enum class ValueType : uint8_t { u8, i8, u16, i16, u32, i32, u64, i64, f32, f64 };
constexpr size_t value_size(ValueType type) {
  return type == ValueType::f32   ? 4
         : type == ValueType::f64 ? 8
                                  : size_t{1} << (static_cast<int>(type) / 2);
}

// One feature's values in the caller's memory: value i is at data + i * stride bytes.
struct Column {
  int32_t feature;
  ValueType type;
  const char* data;
  ptrdiff_t stride;
};

// One feature of a sparse matrix: f32 or f64 values at ascending rows; every other row holds 0.
struct StoredColumn {
  int32_t feature;
  ValueType type;
  const char* values;
  const int32_t* rows;
  int64_t n;
};

// One dictionary-encoded categorical feature: the code of row i is code_of[index[i]], or 255 if
// index[i] is out of range.
struct CategoryColumn {
  int32_t feature;
  const int32_t* index;
  const uint8_t* code_of;
  int64_t n_categories;
};

// Codes of the numbers of a categorical feature without a dictionary: values ascend, each with its
// code; all others are missing.
struct CategoryValues {
  int32_t feature;
  std::vector<double> values;
  std::vector<uint8_t> codes;
};

// Columns of one table. Each feature occurs once, in one of the three lists.
struct Columns {
  int64_t n_rows = 0;
  std::vector<Column> dense;
  std::vector<StoredColumn> stored;
  std::vector<CategoryColumn> categories;
};

// Rows that thresholds are chosen from. `rows` ascending; nullptr: all rows. `weights`: one per
// entry of the sample, > 0, with a sum of at most 2^53 (integers, so that sums do not depend on the
// order); nullptr: all 1.
struct Sample {
  int64_t n;
  const int64_t* rows;
  const int64_t* weights;
};

struct Thresholds {
  std::vector<double> values;  // ascending; float32 numbers unless is_float64
  bool is_float64 = false;
  // Least and largest value of the sample, likewise; NaN if all are missing.
  double least = std::numeric_limits<double>::quiet_NaN();
  double largest = std::numeric_limits<double>::quiet_NaN();
};

// Return at most max_bins - 1 thresholds for every dense and sparse feature (indexed by feature).
// Exact (between adjacent distinct values) if the sample has at most max_bins distinct values.
std::vector<Thresholds> find_thresholds(const Columns& columns, const Sample& sample,
                                        int32_t n_features, int max_bins, const Context& context);

// Thresholds of all features, laid out for vectorised search.
class BinTable {
 public:
  struct Feature {
    size_t offset;  // of its first row in the table of its type
    int n_fine_rows;
    bool is_float64;
  };

  explicit BinTable(const std::vector<Thresholds>& thresholds);
  int32_t n_features() const { return static_cast<int32_t>(features_.size()); }
  // Write codes (n_features, n_rows), C order. Rows of features that occur in no column are left
  // unchanged. code_rows: the row of `codes` of each feature.
  void transform(const Columns& columns, uint8_t* codes, const Context& context,
                 const int32_t* code_rows) const;
  // Write the codes of the stored values, one column after another, and the code of 0 in each
  // column.
  void transform_stored(const std::vector<StoredColumn>& columns, uint8_t* codes,
                        uint8_t* zero_codes, const Context& context) const;

  // Search tables (kernels/search_layout.h) of all features, one after another, for GPU kernels.
  const std::vector<Feature>& features() const { return features_; }
  std::vector<float> float32_table() const {
    return {float32_.data(), float32_.data() + n_float32_};
  }
  std::vector<double> float64_table() const {
    return {float64_.data(), float64_.data() + n_float64_};
  }

 private:
  void bin_column(const Column& column, int64_t begin, int64_t n, uint8_t* codes) const;
  void bin_sparse(const StoredColumn& column, int64_t n_rows, uint8_t* codes) const;
  void bin_stored(const StoredColumn& column, int64_t begin, int64_t n, uint8_t* codes) const;
  uint8_t zero_code(int32_t feature) const;

  std::vector<Feature> features_;
  size_t n_float32_ = 0, n_float64_ = 0;
  Buffer<float> float32_;
  Buffer<double> float64_;
};

// Count the rows of each code in each row of codes (n_features, n_rows): n_bins[f] codes from 0 on,
// then missing ones, one feature after another.
void count_codes(const uint8_t* codes, int64_t n_rows, const std::vector<int>& n_bins,
                 int64_t* counts, const Context& context);

// Return whether a (n_rows, n_columns) matrix of float or double with these strides, in elements,
// holds an infinity.
template <class T>
bool has_infinite(const T* data, int64_t n_rows, int64_t n_columns, ptrdiff_t row_stride,
                  ptrdiff_t column_stride, const Context& context);

}  // namespace polyleaf
