// Raw scores of one block of rows while trees are added.
//
// Trees of all outputs need a row's outputs contiguous, trees that list their outputs an output's
// rows; a forest rarely has both, so the layout only changes between kinds of trees.
#pragma once
#include <algorithm>
#include <cstddef>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/inline.h"
#include "leaves/leaf_kind.h"

namespace polyleaf {

class ScoreBlock {
 public:
  // Fill with zeros in the layout for trees that list their outputs (columns) or for all.
  void reset(int n_rows, int n_outputs, int width, bool columns) {
    n_rows_ = n_rows;
    n_padded_ = round_up(n_rows, kPadRows);  // kernels need no remainder loops
    n_outputs_ = n_outputs;
    width_ = width;
    columns_ = columns;
    clear(data_);
  }
  void use(bool columns) {
    if (columns == columns_) return;
    clear(other_);
    for (int r = 0; r < n_rows_; ++r)
      for (int k = 0; k < n_outputs_; ++k)
        other_[index(r, k, columns)] = data_[index(r, k, columns_)];
    data_.swap(other_);
    columns_ = columns;
  }
  // Load dense rows of n_outputs values.
  void load(const float* rows) {
    for (int r = 0; r < n_rows_; ++r, rows += n_outputs_)
      if (columns_)
        for (int k = 0; k < n_outputs_; ++k) data_[index(r, k, true)] = rows[k];
      else
        std::copy_n(rows, n_outputs_, data_.data() + index(r, 0, false));
  }
  // Keep `n_rows` rows, by ascending number. Requires use(false).
  void keep(const int32_t* rows, int n_rows) {
    for (int r = 0; r < n_rows; ++r)
      if (rows[r] != r)
        std::copy_n(row(rows[r]), width_, data_.data() + static_cast<size_t>(r) * width_);
    n_rows_ = n_rows;
    n_padded_ = round_up(n_rows, kPadRows);
  }
  // Save to dense rows of n_outputs values; `put(output, sum)` returns the stored value.
  template <class T, class Put>
  void save(T* rows, const Put& put) const {
    const size_t step = columns_ ? static_cast<size_t>(n_padded_) : 1;
    for (int r = 0; r < n_rows_; ++r, rows += n_outputs_) {
      const float* from = data_.data() + index(r, 0, columns_);
      if (step == 1)
        for (int k = 0; k < n_outputs_; ++k) rows[k] = put(k, from[k]);
      else
        for (int k = 0; k < n_outputs_; ++k) rows[k] = put(k, from[k * step]);
    }
  }
  // Rows require use(false), columns use(true).
  float* rows() {
    POLYLEAF_DCHECK(!columns_);
    return data_.data();
  }
  const float* row(int row) const {
    POLYLEAF_DCHECK(!columns_ && row >= 0 && row < n_rows_);
    return data_.data() + index(row, 0, false);
  }
  float* column(int output) {
    POLYLEAF_DCHECK(columns_ && output >= 0 && output < n_outputs_);
    return data_.data() + index(0, output, true);
  }
  int64_t column_step() const { return n_padded_; }

 private:
  size_t index(int row, int output, bool columns) const {
    return columns ? static_cast<size_t>(output) * n_padded_ + row
                   : static_cast<size_t>(row) * width_ + output;
  }
  void clear(Buffer<float>& data) {
    // n_outputs <= width, so the size suffices for both layouts
    const size_t size = static_cast<size_t>(n_padded_) * width_;
    data.reserve(size);
    std::fill_n(data.data(), size, 0.0f);
  }

  int n_rows_ = 0, n_padded_ = 0, n_outputs_ = 0, width_ = 0;
  bool columns_ = false;
  Buffer<float> data_, other_;
};

}  // namespace polyleaf
