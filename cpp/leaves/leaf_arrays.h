// What leaf blocks of every kind do with the arrays that they are made from: check and copy.
//
// Owns: the sentences for arrays that do not fit together (std::invalid_argument). Must not know:
// kinds.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>

#include "base/aligned_buffer.h"

namespace polyleaf {

[[noreturn]] void reject_leaves(const std::string& what);

void check_sizes(int64_t n_leaves, int64_t n_columns);
void check_finite(const float* values, int64_t n, const char* name);

// Entries of all leaves: numbers in 0 .. limit - 1, ascending within a leaf. Returns how many the
// largest has. `what`: a noun for the numbers.
int32_t check_entries(const int64_t* begin, int64_t n_leaves, const int32_t* index,
                      int64_t n_entries, int64_t limit, const char* what);

template <class T>
const T* keep(Buffer<T>& buffer, const T* from, int64_t n) {
  buffer.reserve(static_cast<size_t>(n));
  std::copy_n(from, n, buffer.data());
  return buffer.data();
}

// n vectors of n_columns numbers, padded with 0.
void pad_vectors(const float* from, int64_t n, int64_t n_columns, int64_t stride, float* to);
const float* keep_vectors(Buffer<float>& buffer, const float* from, int64_t n, int64_t n_columns,
                          int64_t stride);

// Floats from one padded vector to the next: what the kernels take.
int64_t padded_columns(int64_t n_columns);

}  // namespace polyleaf
