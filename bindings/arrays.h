// Array types of bound functions: dtype, rank and order are part of the signature.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "base/matrix_view.h"

namespace nb = nanobind;

namespace polyleaf {

template <class T>
using Array1 = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Array2 = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <class T>
using Optional1 = std::optional<Array1<T>>;
template <class T>
using Optional2 = std::optional<Array2<T>>;

// Return a view of a matrix of Python; without values, a view of nothing.
template <class T>
MatrixView<T> matrix_view(const Array2<T>& array) {
  return {array.data(), static_cast<int64_t>(array.shape(0)), static_cast<int64_t>(array.shape(1))};
}
template <class T>
MatrixView<T> matrix_view(const Optional2<T>& array) {
  return array ? matrix_view(*array) : MatrixView<T>();
}
template <class T>
std::span<T> span(const Array1<T>& array) {
  return {array.data(), array.size()};
}

// Raise ValueError in Python unless the condition holds; the message names the argument.
inline void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}
inline void require(bool condition, const std::string& message) {
  require(condition, message.c_str());
}

// New NumPy array that owns its memory. Create it with the GIL held.
template <class T>
struct NewArray {
  T* data;
  nb::ndarray<nb::numpy, T> array;
  explicit NewArray(std::initializer_list<size_t> shape) {
    size_t size = 1;
    for (size_t s : shape) size *= s;
    data = new T[size > 0 ? size : 1];
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    array = nb::ndarray<nb::numpy, T>(data, shape, owner);
  }
};

// Return a read-only view of memory that `owner` keeps alive.
template <class T>
nb::ndarray<nb::numpy, const T> view(const void* data, std::initializer_list<size_t> shape,
                                     nb::handle owner,
                                     std::initializer_list<int64_t> strides = {}) {
  static const double nothing = 0;
  return nb::ndarray<nb::numpy, const T>(data != nullptr ? data : &nothing, shape, owner, strides);
}

}  // namespace polyleaf
