// Find the bin of every value of a column, by two vector comparisons per value.
#include "data/kernels/binning_kernels.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

// Count the thresholds of one row below x. `nan_counts`: a NaN counts as above every lane (16), or
// above none (0). The portable form, four lanes at a time; the vector forms below return the same
// integer.
template <bool nan_counts, class T>
inline int count_below(T x, const T* row) {
  typedef T Four __attribute__((vector_size(4 * sizeof(T)), aligned(alignof(T))));
  const Four value = {x, x, x, x};
  auto minus_count = value > value;  // zeros; true is -1
  for (int lane = 0; lane < kSearchLanes; lane += 4) {
    const Four thresholds = *reinterpret_cast<const Four*>(row + lane);
    minus_count += nan_counts ? ~(value <= thresholds) : value > thresholds;
  }
  return -static_cast<int>((minus_count[0] + minus_count[1]) + (minus_count[2] + minus_count[3]));
}

#if defined(__SSE2__)
// Return one bit per lane: x > threshold, or !(x <= threshold), which is true for NaN.
template <bool nan_counts>
inline uint32_t mask_below(float x, const float* row) {
#if defined(__AVX512F__)
  constexpr int predicate = nan_counts ? _CMP_NLE_UQ : _CMP_GT_OQ;
  return _mm512_cmp_ps_mask(_mm512_set1_ps(x), _mm512_loadu_ps(row), predicate);
#elif defined(__AVX2__)
  constexpr int predicate = nan_counts ? _CMP_NLE_UQ : _CMP_GT_OQ;
  const __m256 value = _mm256_set1_ps(x);
  const auto low = static_cast<uint32_t>(
      _mm256_movemask_ps(_mm256_cmp_ps(value, _mm256_loadu_ps(row), predicate)));
  const auto high = static_cast<uint32_t>(
      _mm256_movemask_ps(_mm256_cmp_ps(value, _mm256_loadu_ps(row + 8), predicate)));
  return low | high << 8;
#else
  const __m128 value = _mm_set1_ps(x);
  const auto compare = [&](int lane) {
    const __m128 thresholds = _mm_loadu_ps(row + lane);
    return _mm_castps_si128(nan_counts ? _mm_cmpnle_ps(value, thresholds)
                                       : _mm_cmpgt_ps(value, thresholds));
  };
  const __m128i low = _mm_packs_epi32(compare(0), compare(4)),
                high = _mm_packs_epi32(compare(8), compare(12));
  return static_cast<uint32_t>(_mm_movemask_epi8(_mm_packs_epi16(low, high)));
#endif
}

// Thresholds ascend, so the mask is a run of ones.
template <bool nan_counts>
inline int count_below(float x, const float* row) {
  return __builtin_ctz(~mask_below<nan_counts>(x, row));
}
#endif

// Table from (j, k) at 32 j + k to the code. NaN is above no coarse threshold and above all 16 fine
// lanes: (0, 16).
struct CodeOf {
  uint8_t code[32 * kSearchLanes];
  constexpr CodeOf() : code() {
    for (int j = 0; j < kSearchLanes; ++j)
      for (int k = 0; k < 32; ++k)
        code[32 * j + k] = static_cast<uint8_t>(k < kSearchLanes ? 16 * j + k : 255);
  }
};
constexpr CodeOf code_of;

template <class T>
void bin(const T* x, ptrdiff_t stride, int64_t n, const T* table, int n_fine_rows, uint8_t* codes) {
  const T* fine = table + kSearchLanes;
  if (n_fine_rows == 1) {
    for (int64_t i = 0; i < n; ++i) codes[i] = code_of.code[count_below<true>(x[i * stride], fine)];
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const T value = x[i * stride];
    const int j = count_below<false>(value, table);
    codes[i] = code_of.code[32 * j + count_below<true>(value, fine + kSearchLanes * j)];
  }
}

void bin_float(const float* x, ptrdiff_t stride, int64_t n, const float* table, int n_fine_rows,
               uint8_t* codes) {
  bin(x, stride, n, table, n_fine_rows, codes);
}
void bin_double(const double* x, ptrdiff_t stride, int64_t n, const double* table, int n_fine_rows,
                uint8_t* codes) {
  bin(x, stride, n, table, n_fine_rows, codes);
}

template <class T>
bool has_infinite(const T* x, int64_t n) {
  constexpr T infinity = static_cast<T>(__builtin_huge_val());
  int found = 0;
  for (int64_t i = 0; i < n; ++i) found |= (x[i] == infinity) | (x[i] == -infinity);
  return found != 0;
}
bool has_infinite_float(const float* x, int64_t n) {
  return has_infinite(x, n);
}
bool has_infinite_double(const double* x, int64_t n) {
  return has_infinite(x, n);
}

}  // namespace

extern const BinningKernels binning_kernels = {bin_float, bin_double, has_infinite_float,
                                               has_infinite_double};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
