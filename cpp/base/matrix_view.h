// Views of matrices in memory of others, with their shapes. Kernels take plain pointers, from
// `data` and `row(i)`.
#pragma once
#include <cstdint>
#include <type_traits>

#include "base/check.h"

namespace polyleaf {

// A row-major matrix without gaps. `data` nullptr: no matrix (for example no weights).
template <class T>
struct MatrixView {
  T* data = nullptr;
  int64_t n_rows = 0, n_columns = 0;

  MatrixView() = default;
  MatrixView(T* data, int64_t n_rows, int64_t n_columns)
      : data(data), n_rows(n_rows), n_columns(n_columns) {
    POLYLEAF_DCHECK(n_rows >= 0 && n_columns >= 0);
  }
  // A view to read from a view to write to.
  operator MatrixView<const T>() const
    requires(!std::is_const_v<T>)
  {
    return {data, n_rows, n_columns};
  }

  explicit operator bool() const { return data != nullptr; }
  int64_t size() const { return n_rows * n_columns; }
  T* row(int64_t i) const {
    POLYLEAF_DCHECK(i >= 0 && i <= n_rows);  // n_rows: the end
    return data + i * n_columns;
  }
  T& operator()(int64_t i, int64_t j) const {
    POLYLEAF_DCHECK(i >= 0 && i < n_rows && j >= 0 && j < n_columns);
    return data[i * n_columns + j];
  }
  // Return rows [begin, end).
  MatrixView rows(int64_t begin, int64_t end) const {
    POLYLEAF_DCHECK(0 <= begin && begin <= end && end <= n_rows);
    return {data + begin * n_columns, end - begin, n_columns};
  }
};

}  // namespace polyleaf
