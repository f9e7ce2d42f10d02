// Stable two-way partition (host_row_partitioner.h): permutations from a table with AVX2 (those of
// AVX-512 by a mask take twice as long on AMD), branch-free moves otherwise.
#include "grower/host_row_partitioner.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "base/kernels/lanes.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

#ifdef __AVX2__
// Permutation for each mask that moves the lanes with a set bit to the front, in ascending order;
// the other lanes are unspecified.
struct CompressTable {
  alignas(64) uint8_t lanes[256][8] = {};
  constexpr CompressTable() {
    for (int mask = 0; mask < 256; ++mask)
      for (int lane = 0, n = 0; lane < 8; ++lane)
        if ((mask >> lane & 1) != 0) lanes[mask][n++] = static_cast<uint8_t>(lane);
  }
};
constexpr CompressTable kCompressTable;

POLYLEAF_INLINE __m256i compress(__m256i v, int mask) {
  const __m128i order =
      _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kCompressTable.lanes[mask]));
  return _mm256_permutevar8x32_epi32(v, _mm256_cvtepu8_epi32(order));
}
#endif

int64_t decide(const uint64_t* words, int64_t n, const Route& route, uint8_t* bits) {
  const int shift = 8 * route.slot;
  int64_t n_left = 0;
  int64_t i = 0;
  if (route.set == nullptr) {
    const uint64_t offset = static_cast<uint64_t>(route.offset),
                   mask = static_cast<uint64_t>(route.mask);
    const uint64_t threshold = static_cast<uint64_t>(route.threshold);
#ifdef __AVX512F__
    const __m512i voffset = _mm512_set1_epi64(static_cast<long long>(offset));
    const __m512i vmask = _mm512_set1_epi64(static_cast<long long>(mask));
    const __m512i vthreshold = _mm512_set1_epi64(static_cast<long long>(threshold));
    const __m128i vshift = _mm_cvtsi32_si128(shift);
    for (; i + 8 <= n; i += 8) {
      const __m512i code = _mm512_srl_epi64(_mm512_loadu_si512(words + i), vshift);
      const __m512i moved = _mm512_and_si512(_mm512_add_epi64(code, voffset), vmask);
      const __mmask8 left = _mm512_cmple_epu64_mask(moved, vthreshold);
      bits[i >> 3] = static_cast<uint8_t>(left);
      n_left += __builtin_popcount(left);
    }
#elif defined(__AVX2__)
    const __m256i voffset = _mm256_set1_epi64x(static_cast<long long>(offset));
    const __m256i vmask = _mm256_set1_epi64x(static_cast<long long>(mask));
    const __m256i vthreshold = _mm256_set1_epi64x(static_cast<long long>(threshold));
    const __m128i vshift = _mm_cvtsi32_si128(shift);
    const auto goes_right = [&](int64_t at) __attribute__((always_inline)) {
      const __m256i code = _mm256_srl_epi64(load<__m256i>(words + at), vshift);
      const __m256i moved = _mm256_and_si256(_mm256_add_epi64(code, voffset), vmask);
      return _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64(moved, vthreshold)));
    };
    for (; i + 8 <= n; i += 8) {
      const int left = 255 ^ (goes_right(i) | goes_right(i + 4) << 4);
      bits[i >> 3] = static_cast<uint8_t>(left);
      n_left += __builtin_popcount(static_cast<unsigned>(left));
    }
#endif
    for (; i < n; i += 8) {
      uint32_t byte = 0;
      for (int j = 0; j < 8 && i + j < n; ++j)
        byte |= static_cast<uint32_t>((((words[i + j] >> shift) + offset) & mask) <= threshold)
                << j;
      bits[i >> 3] = static_cast<uint8_t>(byte);
      n_left += __builtin_popcount(byte);
    }
    return n_left;
  }
#if defined(__AVX512F__)
  const __m512i set = _mm512_castsi256_si512(load<__m256i>(route.set));
  const __m128i vshift = _mm_cvtsi32_si128(shift);
  const __m512i byte_mask = _mm512_set1_epi64(255), bit_mask = _mm512_set1_epi64(63);
  for (; i + 8 <= n; i += 8) {
    const __m512i code =
        _mm512_and_si512(_mm512_srl_epi64(_mm512_loadu_si512(words + i), vshift), byte_mask);
    const __m512i part = _mm512_permutexvar_epi64(_mm512_srli_epi64(code, 6), set);
    const __mmask8 left = _mm512_test_epi64_mask(
        part, _mm512_sllv_epi64(_mm512_set1_epi64(1), _mm512_and_si512(code, bit_mask)));
    bits[i >> 3] = static_cast<uint8_t>(left);
    n_left += __builtin_popcount(left);
  }
#elif defined(__AVX2__)
  const __m256i set = load<__m256i>(route.set);
  const __m128i vshift = _mm_cvtsi32_si128(shift);
  const __m256i byte_mask = _mm256_set1_epi64x(255), bit_mask = _mm256_set1_epi64x(31);
  const auto goes_left = [&](int64_t at) __attribute__((always_inline)) {
    const __m256i code =
        _mm256_and_si256(_mm256_srl_epi64(load<__m256i>(words + at), vshift), byte_mask);
    // The low half of each number selects, and becomes, a part of 32 codes.
    const __m256i part = _mm256_permutevar8x32_epi32(set, _mm256_srli_epi64(code, 5));
    const __m256i bit = _mm256_srlv_epi64(part, _mm256_and_si256(code, bit_mask));
    return _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_slli_epi64(bit, 63)));
  };
  for (; i + 8 <= n; i += 8) {
    const int left = goes_left(i) | goes_left(i + 4) << 4;
    bits[i >> 3] = static_cast<uint8_t>(left);
    n_left += __builtin_popcount(static_cast<unsigned>(left));
  }
#endif
  for (; i < n; i += 8) {
    uint32_t byte = 0;
    for (int j = 0; j < 8 && i + j < n; ++j) {
      const uint32_t code = (words[i + j] >> shift) & 255;
      byte |= static_cast<uint32_t>((route.set[code >> 6] >> (code & 63)) & 1) << j;
    }
    bits[i >> 3] = static_cast<uint8_t>(byte);
    n_left += __builtin_popcount(byte);
  }
  return n_left;
}

// Move row ids, eight at a time with SIMD: `at(i)` is the id of row i, `load_vector(i)` loads the
// ids of rows i .. i + 7.
template <class At, class LoadVector>
POLYLEAF_INLINE void move_values(At at, [[maybe_unused]] LoadVector load_vector,
                                 const uint8_t* bits, int64_t n, uint32_t* left, int64_t n_left,
                                 uint32_t* right) {
  uint32_t* const left_end = left + n_left;
  uint32_t* const right_end = right + (n - n_left);
  int64_t i = 0;
#ifdef __AVX2__
  for (; i + 8 <= n && left + 8 <= left_end && right + 8 <= right_end; i += 8) {
    const __m256i v = (__m256i)load_vector(i);
    const int k = bits[i >> 3], c = __builtin_popcount(static_cast<unsigned>(k));
    store(left, compress(v, k));
    store(right, compress(v, 255 - k));
    left += c;
    right += 8 - c;
  }
#endif
  // Write each id to both sides and advance one of them until one side is full; the rest goes to
  // the other side.
  for (; i < n && left < left_end && right < right_end; ++i) {
    const uint32_t goes = (bits[i >> 3] >> (i & 7)) & 1;
    *left = *right = at(i);
    left += goes;
    right += 1 - goes;
  }
  for (; i < n && left < left_end; ++i) *left++ = at(i);
  for (; i < n && right < right_end; ++i) *right++ = at(i);
}

void move_ids(const uint32_t* from, const uint8_t* bits, int64_t n, uint32_t* left, int64_t n_left,
              uint32_t* right) {
  move_values([from](int64_t i) { return from[i]; },
              [from](int64_t i) { return load<i32x8>(from + i); }, bits, n, left, n_left, right);
}

void move_id_range(uint32_t first, const uint8_t* bits, int64_t n, uint32_t* left, int64_t n_left,
                   uint32_t* right) {
  constexpr int32_t kCount[] = {0, 1, 2, 3, 4, 5, 6, 7};
  const i32x8 lanes = load<i32x8>(kCount);
  move_values([first](int64_t i) { return static_cast<uint32_t>(first + i); },
              [first, lanes](int64_t i) { return lanes + static_cast<int32_t>(first + i); }, bits,
              n, left, n_left, right);
}

POLYLEAF_INLINE uint32_t count_ones(uint64_t word) {
  return static_cast<uint32_t>(__builtin_popcountll(word));
}

void rank(const uint8_t* bits, int64_t n, uint32_t* ranks) {
  uint32_t before = 0;
  for (int64_t i = 0; i <= n / 64; ++i) {
    ranks[i] = before;
    before += count_ones(load<uint64_t>(bits + 8 * i));
  }
}

void move_entries(const SparseEntry* from, int64_t n, const uint8_t* bits, const uint32_t* ranks,
                  SparseEntry* left, SparseEntry* right) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t row = from[i].row;
    const uint64_t word = load<uint64_t>(bits + row / 64 * 8);
    const uint32_t before = ranks[row / 64] + count_ones(word & ((uint64_t{1} << row % 64) - 1));
    const bool goes_left = (word >> row % 64 & 1) != 0;
    SparseEntry* to = goes_left ? left : right;  // branch-free: the side is hard to predict
    *to = {goes_left ? before : row - before, from[i].key};
    left += goes_left;
    right += !goes_left;
  }
}

void gather_words(const uint64_t* words, const uint32_t* ids, int64_t n, uint64_t* out) {
  gather_by_id<uint64_t>(words, ids, n, out);
}

}  // namespace

const PartitionKernels partition_kernels = {decide, move_ids,     move_id_range,
                                            rank,   move_entries, gather_words};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
