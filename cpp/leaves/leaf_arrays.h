// Helpers that check and copy the arrays of leaf blocks. Errors are std::invalid_argument.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>

#include "base/aligned_buffer.h"

namespace polyleaf {

[[noreturn]] void reject_leaves(const std::string& what);

void check_sizes(int64_t n_leaves, int64_t n_columns);
void check_finite(const float* values, int64_t n, const char* name);

// Check the entries of all leaves: indices in 0 .. limit - 1, ascending within a leaf. Returns the
// size of the largest leaf. `what`: a noun for the indices.
int32_t check_entries(const int64_t* begin, int64_t n_leaves, const int32_t* index,
                      int64_t n_entries, int64_t limit, const char* what);

template <class T>
const T* keep(Buffer<T>& buffer, const T* from, int64_t n) {
  buffer.reserve(static_cast<size_t>(n));
  std::copy_n(from, n, buffer.data());
  return buffer.data();
}

// Copy n vectors of n_columns numbers and pad them with 0.
void pad_vectors(const float* from, int64_t n, int64_t n_columns, int64_t stride, float* to);
const float* keep_vectors(Buffer<float>& buffer, const float* from, int64_t n, int64_t n_columns,
                          int64_t stride);

// Return the stride of padded vectors that the kernels expect.
int64_t padded_columns(int64_t n_columns);

}  // namespace polyleaf
