// Vectors of sixteen lanes for every instruction set: one zmm, two ymm or four xmm registers. Sums
// over outputs use these virtual lanes and one fixed fold, so every instruction set computes the
// same bits.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/inline.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

constexpr int kLanes = 16;

// Two vectors as one of twice as many lanes. GCC keeps built-in vectors wider than the registers in
// memory, but not these.
template <class Half>
struct VectorPair {
  Half low, high;

  POLYLEAF_INLINE_MEMBER auto operator[](int i) const {
    constexpr int n = sizeof(Half) / sizeof(low[0]);
    return i < n ? low[i] : high[i - n];
  }
};
template <class Half>
struct ElementOf {
  using type = std::remove_cvref_t<decltype(std::declval<Half>()[0])>;
};
template <class Half>
using Element = typename ElementOf<Half>::type;

// Join two halves. Where long has 32 bits (Windows, WebAssembly), Clang compares lanes of 32 bits
// into vectors of long, which here become vectors of int32_t.
template <class Half>
POLYLEAF_INLINE auto join_halves(const Half& low, const Half& high) {
  if constexpr (sizeof(long) == sizeof(int32_t) && std::is_same_v<Element<Half>, long>) {
    typedef int32_t Ints __attribute__((vector_size(sizeof(Half))));
    return VectorPair<Ints>{(Ints)low, (Ints)high};
  } else {
    return VectorPair<Half>{low, high};
  }
}

#define POLYLEAF_OPERATOR(op)                                                              \
  template <class Half>                                                                    \
  POLYLEAF_INLINE auto operator op(const VectorPair<Half>& a, const VectorPair<Half>& b) { \
    return join_halves(a.low op b.low, a.high op b.high);                                  \
  }                                                                                        \
  template <class Half>                                                                    \
  POLYLEAF_INLINE auto operator op(const VectorPair<Half>& a,                              \
                                   std::type_identity_t<Element<Half>> b) {                \
    return join_halves(a.low op b, a.high op b);                                           \
  }                                                                                        \
  template <class Half>                                                                    \
  POLYLEAF_INLINE auto operator op(std::type_identity_t<Element<Half>> a,                  \
                                   const VectorPair<Half>& b) {                            \
    return join_halves(a op b.low, a op b.high);                                           \
  }
POLYLEAF_OPERATOR(+)
POLYLEAF_OPERATOR(-)
POLYLEAF_OPERATOR(*)
POLYLEAF_OPERATOR(/)
POLYLEAF_OPERATOR(&)
POLYLEAF_OPERATOR(<<)
POLYLEAF_OPERATOR(>>)
POLYLEAF_OPERATOR(<)
POLYLEAF_OPERATOR(>)
POLYLEAF_OPERATOR(>=)
POLYLEAF_OPERATOR(==)
POLYLEAF_OPERATOR(!=)
#undef POLYLEAF_OPERATOR
template <class Half>
POLYLEAF_INLINE VectorPair<Half> operator-(const VectorPair<Half>& a) {
  return {-a.low, -a.high};
}
template <class Half>
POLYLEAF_INLINE VectorPair<Half>& operator+=(VectorPair<Half>& a, const VectorPair<Half>& b) {
  return a = a + b;
}
template <class Half>
POLYLEAF_INLINE VectorPair<Half>& operator-=(VectorPair<Half>& a, const VectorPair<Half>& b) {
  return a = a - b;
}

typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x4 __attribute__((vector_size(16)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef int16_t i16x8 __attribute__((vector_size(16)));
typedef int16_t i16x4 __attribute__((vector_size(8)));

#if defined(__AVX512F__)
typedef float f32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef int16_t i16x16 __attribute__((vector_size(32)));
#elif defined(__AVX2__)
using f32x16 = VectorPair<f32x8>;
using i32x16 = VectorPair<i32x8>;
typedef int16_t i16x16 __attribute__((vector_size(32)));
#else
using f32x16 = VectorPair<VectorPair<f32x4>>;
using i32x16 = VectorPair<VectorPair<i32x4>>;
using i16x16 = VectorPair<VectorPair<i16x4>>;
#endif

// Vector of n floats.
template <int n>
struct Floats {
  typedef float type __attribute__((vector_size(n * 4)));
};
template <>
struct Floats<1> {
  typedef float type;
};

template <class V>
struct Loader {
  static POLYLEAF_INLINE_MEMBER V load(const void* from) {
    V v;
    std::memcpy(&v, from, sizeof(V));
    return v;
  }
  static POLYLEAF_INLINE_MEMBER void store(void* to, const V& v) { std::memcpy(to, &v, sizeof(V)); }
};
template <class Half>  // half by half: a copy of the whole would go through memory
struct Loader<VectorPair<Half>> {
  static POLYLEAF_INLINE_MEMBER VectorPair<Half> load(const void* from) {
    const char* at = static_cast<const char*>(from);
    return {Loader<Half>::load(at), Loader<Half>::load(at + sizeof(Half))};
  }
  static POLYLEAF_INLINE_MEMBER void store(void* to, const VectorPair<Half>& v) {
    Loader<Half>::store(to, v.low);
    Loader<Half>::store(static_cast<char*>(to) + sizeof(Half), v.high);
  }
};
template <class V, class T>
POLYLEAF_INLINE V load(const T* from) {
  return Loader<V>::load(from);
}
template <class V, class T>
POLYLEAF_INLINE void store(T* to, const V& v) {
  Loader<V>::store(to, v);
}

using polyleaf::max;
#if defined(__AVX512F__)  // GCC compares and then moves under a mask, which takes longer
POLYLEAF_INLINE f32x16 max(const f32x16& a, const f32x16& b) {
  return (f32x16)_mm512_max_ps((__m512)a, (__m512)b);
}
POLYLEAF_INLINE i32x16 max(const i32x16& a, const i32x16& b) {
  return (i32x16)_mm512_max_epi32((__m512i)a, (__m512i)b);
}
#endif
using polyleaf::min;
using polyleaf::select;
template <class M, class Half>
POLYLEAF_INLINE VectorPair<Half> select(const VectorPair<M>& mask, const VectorPair<Half>& yes,
                                        const VectorPair<Half>& no) {
  return {select(mask.low, yes.low, no.low), select(mask.high, yes.high, no.high)};
}

// Conversion between number types: integers to floats, 16 to 32 bits, floats that hold integers to
// integers.
template <class To, class From>
struct Converter {
  static POLYLEAF_INLINE_MEMBER To convert(const From& v) { return __builtin_convertvector(v, To); }
};
template <class To, class From>
struct Converter<VectorPair<To>, VectorPair<From>> {
  static POLYLEAF_INLINE_MEMBER VectorPair<To> convert(const VectorPair<From>& v) {
    return {Converter<To, From>::convert(v.low), Converter<To, From>::convert(v.high)};
  }
};
// Conversions where only one type is a vector pair: the other is a built-in vector, which is split.
template <class V>
struct HalfOf {
  typedef Element<V> type __attribute__((vector_size(sizeof(V) / 2)));
};
template <class To, class From>
struct Converter<VectorPair<To>, From> {
  static POLYLEAF_INLINE_MEMBER VectorPair<To> convert(const From& v) {
    using Half = typename HalfOf<From>::type;
    Half halves[2];
    std::memcpy(halves, &v, sizeof(v));
    return {Converter<To, Half>::convert(halves[0]), Converter<To, Half>::convert(halves[1])};
  }
};
template <class To, class From>
struct Converter<To, VectorPair<From>> {
  static POLYLEAF_INLINE_MEMBER To convert(const VectorPair<From>& v) {
    using Half = typename HalfOf<To>::type;
    const Half halves[2] = {Converter<Half, From>::convert(v.low),
                            Converter<Half, From>::convert(v.high)};
    return load<To>(halves);
  }
};
template <class To, class From>
POLYLEAF_INLINE To convert(const From& v) {
  return Converter<To, From>::convert(v);
}

POLYLEAF_INLINE f32x16 broadcast(float x) {
  return x - f32x16{};
}
POLYLEAF_INLINE i32x16 splat(int32_t x) {
  return x - i32x16{};
}
POLYLEAF_INLINE f32x16 to_float(const i32x16& v) {
  return convert<f32x16>(v);
}

// Return the sum of the lanes: 16 -> 8 -> 4 -> 2 -> 1, lane i with lane i + half.
template <class V>
POLYLEAF_INLINE Element<V> fold(const V& v) {
  if constexpr (sizeof(V) == 4 * sizeof(Element<V>)) {
    return (v[0] + v[2]) + (v[1] + v[3]);
  } else {
    typename HalfOf<V>::type halves[2];
    std::memcpy(halves, &v, sizeof(v));
    return fold(halves[0] + halves[1]);
  }
}
template <class Half>
POLYLEAF_INLINE Element<Half> fold(const VectorPair<Half>& v) {
  return fold(v.low + v.high);
}

#if defined(__AVX2__) && !defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
// Transpose eight rows of eight numbers.
POLYLEAF_INLINE void transpose_eight(const int32_t* from, int stride, int32_t* to) {
  const i32x8 low1 = {0, 8, 1, 9, 4, 12, 5, 13}, low2 = {0, 1, 8, 9, 4, 5, 12, 13};
  const i32x8 low4 = {0, 1, 2, 3, 8, 9, 10, 11};
  i32x8 r[8], s[8];
  for (int i = 0; i < 8; ++i) r[i] = load<i32x8>(from + static_cast<int64_t>(i) * stride);
  for (int i = 0; i < 8; i += 2) {  // s: rows i, i + 1, in pairs of columns
    s[i] = __builtin_shuffle(r[i], r[i + 1], low1);
    s[i + 1] = __builtin_shuffle(r[i], r[i + 1], low1 + 2);
  }
  for (int i = 0; i < 8; i += 4)  // r: four rows of one column, in either half
    for (int j = 0; j < 2; ++j) {
      r[i + 2 * j] = __builtin_shuffle(s[i + j], s[i + j + 2], low2);
      r[i + 2 * j + 1] = __builtin_shuffle(s[i + j], s[i + j + 2], low2 + 2);
    }
  for (int i = 0; i < 4; ++i) {
    store(to + 16 * i, __builtin_shuffle(r[i], r[i + 4], low4));
    store(to + 16 * (i + 4), __builtin_shuffle(r[i], r[i + 4], low4 + 4));
  }
}
#endif

// Return whether any element of a is above that of b.
POLYLEAF_INLINE bool any_above(float a, float b) {
  return a > b;
}
POLYLEAF_INLINE bool any_above(f32x16 a, f32x16 b) {
#ifdef __AVX512F__
  return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ) != 0;
#elif defined(__AVX2__)
  const __m256 low = _mm256_cmp_ps((__m256)a.low, (__m256)b.low, _CMP_GT_OQ);
  const __m256 high = _mm256_cmp_ps((__m256)a.high, (__m256)b.high, _CMP_GT_OQ);
  return _mm256_movemask_ps(_mm256_or_ps(low, high)) != 0;
#else
  const i32x16 above = a > b;
  uint64_t words[8];
  std::memcpy(words, &above, sizeof(above));
  uint64_t any = 0;
  for (uint64_t word : words) any |= word;
  return any != 0;
#endif
}

// Transpose sixteen rows of sixteen 32-bit numbers.
POLYLEAF_INLINE void transpose(const int32_t* from, int stride, i32x16* to) {
#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
  // Each of these shuffles is one instruction without an index register.
  const i32x16 low1 = {0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29};
  const i32x16 low2 = {0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29};
  const i32x16 even = {0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27};
  i32x16 r[16], s[16];
  for (int i = 0; i < 16; ++i) r[i] = load<i32x16>(from + static_cast<int64_t>(i) * stride);
  for (int i = 0; i < 16; i += 2) {  // s: rows i, i + 1, in pairs of columns
    s[i] = __builtin_shuffle(r[i], r[i + 1], low1);
    s[i + 1] = __builtin_shuffle(r[i], r[i + 1], low1 + 2);
  }
  for (int i = 0; i < 16; i += 4)  // r[i + m]: four rows of the columns m, m + 4, m + 8, m + 12
    for (int j = 0; j < 2; ++j) {
      r[i + 2 * j] = __builtin_shuffle(s[i + j], s[i + j + 2], low2);
      r[i + 2 * j + 1] = __builtin_shuffle(s[i + j], s[i + j + 2], low2 + 2);
    }
  for (int m = 0; m < 4; ++m)
    for (int odd = 0; odd < 2; ++odd) {
      const i32x16 upper = __builtin_shuffle(r[m], r[m + 4], even + 4 * odd);
      const i32x16 lower = __builtin_shuffle(r[m + 8], r[m + 12], even + 4 * odd);
      to[m + 4 * odd] = __builtin_shuffle(upper, lower, even);
      to[m + 4 * odd + 8] = __builtin_shuffle(upper, lower, even + 4);
    }
#elif defined(__AVX2__) && defined(__GNUC__) && !defined(__clang__)
  for (int i = 0; i < 16; i += 8)
    for (int j = 0; j < 16; j += 8)
      transpose_eight(from + static_cast<int64_t>(i) * stride + j, stride,
                      reinterpret_cast<int32_t*>(to + j) + i);
#else
  int32_t* columns = reinterpret_cast<int32_t*>(to);
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j)
      columns[16 * j + i] = load<int32_t>(from + static_cast<int64_t>(i) * stride + j);
#endif
}

// Eight doubles: one zmm register, or two vectors of four. The same formulas work with a single
// double.
typedef double f64x4 __attribute__((vector_size(32)));
#if defined(__AVX512F__)
typedef double f64x8 __attribute__((vector_size(64)));
#else
using f64x8 = VectorPair<f64x4>;
#endif

POLYLEAF_INLINE f64x8 broadcast(double x) {
  return x - f64x8{};
}
POLYLEAF_INLINE f64x8 to_double(const i32x8& v) {
#if defined(__AVX512F__)  // GCC converts half by half
  return (f64x8)_mm512_cvtepi32_pd((__m256i)v);
#else
  return convert<f64x8>(v);
#endif
}
POLYLEAF_INLINE f64x4 to_double(const i32x4& v) {
#if defined(__AVX2__)  // likewise
  return (f64x4)_mm256_cvtepi32_pd((__m128i)v);
#else
  return __builtin_convertvector(v, f64x4);
#endif
}
POLYLEAF_INLINE f64x8 to_double(const float* eight) {
#if defined(__AVX512F__)
  return (f64x8)_mm512_cvtps_pd(_mm256_loadu_ps(eight));
#else
  return convert<f64x8>(load<f32x8>(eight));
#endif
}
POLYLEAF_INLINE void store_floats(float* to, const f64x8& v) {
  store(to, convert<f32x8>(v));
}

POLYLEAF_INLINE f64x8 join(const f64x4& low, const f64x4& high) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
#else
  return {low, high};
#endif
}

// Return the sums of the lanes of eight vectors, each folded exactly as `fold` does.
POLYLEAF_INLINE f64x8 fold_eight(const f64x8* v) {
#if defined(__AVX512F__)
  f64x8 four[4], two[2];
  for (int i = 0; i < 4; ++i)
    four[i] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], 0, 1, 2, 3, 8, 9, 10, 11) +
              __builtin_shufflevector(v[2 * i], v[2 * i + 1], 4, 5, 6, 7, 12, 13, 14, 15);
  for (int i = 0; i < 2; ++i)
    two[i] = __builtin_shufflevector(four[2 * i], four[2 * i + 1], 0, 1, 4, 5, 8, 9, 12, 13) +
             __builtin_shufflevector(four[2 * i], four[2 * i + 1], 2, 3, 6, 7, 10, 11, 14, 15);
  return __builtin_shufflevector(two[0], two[1], 0, 2, 4, 6, 8, 10, 12, 14) +
         __builtin_shufflevector(two[0], two[1], 1, 3, 5, 7, 9, 11, 13, 15);
#else
  f64x4 two[4], one[2];
  for (int i = 0; i < 4; ++i) {
    const f64x4 a = v[2 * i].low + v[2 * i].high, b = v[2 * i + 1].low + v[2 * i + 1].high;
    two[i] = __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
  }
  for (int i = 0; i < 2; ++i)
    one[i] = __builtin_shufflevector(two[2 * i], two[2 * i + 1], 0, 2, 4, 6) +
             __builtin_shufflevector(two[2 * i], two[2 * i + 1], 1, 3, 5, 7);
  return {one[0], one[1]};
#endif
}

// Rows found by id are requested some rows ahead.
constexpr int64_t kRowsAhead = 128;

POLYLEAF_INLINE void prefetch(const void* line) {
  __builtin_prefetch(line);
}

// Copy the rows with these ids, contiguous.
template <class Row, class T>
POLYLEAF_INLINE void gather_by_id(const T* rows, const uint32_t* ids, int64_t n, T* out) {
  constexpr int kWidth = sizeof(Row) / sizeof(T);
  const auto copy = [&](int64_t i) __attribute__((always_inline)) {
    store(out + i * kWidth, load<Row>(rows + static_cast<int64_t>(ids[i]) * kWidth));
  };
  int64_t i = 0;
  for (; i + kRowsAhead + 8 <= n; i += 8) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      prefetch(rows + static_cast<int64_t>(ids[i + j + kRowsAhead]) * kWidth);
      copy(i + j);
    }
  }
  for (; i < n; ++i) copy(i);
}

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
