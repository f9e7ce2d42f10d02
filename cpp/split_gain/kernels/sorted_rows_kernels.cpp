// Candidates of one output in small nodes, from the sorted codes of their rows. The rows of all
// features of a tile are sorted by a network of comparisons, one feature per lane, so the work does
// not depend on the data; the candidates of two rows and eight features then fill sixteen lanes.
#include <utility>

#include "split_gain/kernels/separable_kernels.h"
#include "split_gain/sorted_rows.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

static_assert(kTileFeatures == 8);

// A key is a code, less 128 so that signed comparisons order codes, and the number of its row.
constexpr int kRunRows = 16;  // rows that are sorted in registers
constexpr int16_t kSmallestKey = INT16_MIN, kLargestKey = INT16_MAX;

POLYLEAF_INLINE int get_code(int16_t key) {
  return (static_cast<uint16_t>(key) ^ 0x8000) >> 8;
}

// Batcher's network of comparisons that sorts n numbers.
template <int n>
struct SortingNetwork {
  int first[n * n] = {}, second[n * n] = {}, size = 0;
  constexpr SortingNetwork() {
    for (int p = 1; p < n; p *= 2)
      for (int k = p; k >= 1; k /= 2)
        for (int j = k % p; j + k < n; j += 2 * k)
          for (int i = j; i < j + k && i + k < n; ++i) {
            if (i / (2 * p) != (i + k) / (2 * p)) continue;
            first[size] = i;
            second[size++] = i + k;
          }
  }
};

// Comparisons that sort n numbers which first fall and then rise, or the reverse.
template <int n>
struct MergingNetwork {
  int first[n * n] = {}, second[n * n] = {}, size = 0;
  constexpr MergingNetwork() {
    for (int k = n / 2; k >= 1; k /= 2)
      for (int i = 0; i < n; ++i) {
        if ((i & k) != 0) continue;
        first[size] = i;
        second[size++] = i + k;
      }
  }
};

POLYLEAF_INLINE void order(i16x8& a, i16x8& b) {
#ifdef __AVX2__  // GCC compares and selects
  const i16x8 low = (i16x8)_mm_min_epi16((__m128i)a, (__m128i)b);
  b = (i16x8)_mm_max_epi16((__m128i)a, (__m128i)b);
#else
  const i16x8 low = min(a, b);
  b = max(a, b);
#endif
  a = low;
}

template <const auto& network, size_t... I>
POLYLEAF_INLINE void apply(i16x8* rows, std::index_sequence<I...>) {
  (order(rows[network.first[I]], rows[network.second[I]]), ...);
}

constexpr SortingNetwork<8> kSortEight;
constexpr SortingNetwork<kRunRows> kSortRun;
constexpr MergingNetwork<kRunRows> kMergeRun;

// Apply a network to n rows of keys.
template <const auto& network, int n>
POLYLEAF_INLINE void apply_to(int16_t* keys) {
  i16x8 rows[n];
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i) rows[i] = load<i16x8>(keys + 8 * i);
  apply<network>(rows, std::make_index_sequence<network.size>());
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i) store(keys + 8 * i, rows[i]);
}

void order_rows(int16_t* keys, int a, int b) {
  i16x8 low = load<i16x8>(keys + 8 * a), high = load<i16x8>(keys + 8 * b);
  order(low, high);
  store(keys + 8 * a, low);
  store(keys + 8 * b, high);
}

// Sort n rows of keys; up to the next multiple of kRunRows they are followed by the largest key.
// Runs are merged as Batcher's bitonic sort does; rows past the end count as the largest key.
void sort_keys(int16_t* keys, int n) {
  if (n <= 8) return apply_to<kSortEight, 8>(keys);
  const int end = (n + kRunRows - 1) / kRunRows * kRunRows;
  for (int i = 0; i < end; i += kRunRows) apply_to<kSortRun, kRunRows>(keys + 8 * i);
  for (int run = kRunRows; run < end; run *= 2)
    for (int begin = 0; begin + run < end; begin += 2 * run) {
      const int stop = begin + 2 * run < end ? begin + 2 * run : end;
      for (int i = begin + 2 * run - stop; i < run; ++i)
        order_rows(keys, begin + i, begin + 2 * run - 1 - i);
      for (int stride = run / 2; stride >= kRunRows; stride /= 2)
        for (int i = begin; i + stride < stop; ++i)
          if (((i - begin) & stride) == 0) order_rows(keys, i, i + stride);
      for (int i = begin; i < stop; i += kRunRows) apply_to<kMergeRun, kRunRows>(keys + 8 * i);
    }
}

// A row, or the sum of up to 255: gradients and Hessians, each with 2^15 added per row so that they
// are positive, and the number of rows: 32, 24 and 8 bits.
void pack_rows(const int16_t* channels, int n, uint64_t* packed) {
  for (int i = 0; i < n; ++i) {
    const uint64_t row = load<uint64_t>(channels + 4 * i) ^ 0x80008000u;
    packed[i] = (row & 0xffff) | (row & 0xffff0000u) << 16 | uint64_t{1} << 56;
  }
}

struct Sums {
  i32x16 gradient, hessian, count;
  Sums(const i32x16& low, const i32x16& high) {
    count = (high >> 24) & 255;
    const i32x16 bias = count << 15;
    gradient = low - bias;
    hessian = (high & 0xffffff) - bias;
  }
};

// Even or odd ones of 32 numbers.
template <class V>
struct EveryOther {
  static POLYLEAF_INLINE_MEMBER V load_from(const int32_t* from) {
    const V a = load<V>(from), b = load<V>(from + sizeof(V) / 4);
    if constexpr (sizeof(V) == 16)
      return __builtin_shufflevector(a, b, 0, 2, 4, 6);
    else if constexpr (sizeof(V) == 32)
      return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
    else
      return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28,
                                     30);
  }
};
template <class Half>
struct EveryOther<VectorPair<Half>> {
  static POLYLEAF_INLINE_MEMBER VectorPair<Half> load_from(const int32_t* from) {
    return {EveryOther<Half>::load_from(from),
            EveryOther<Half>::load_from(from + sizeof(VectorPair<Half>) / 4)};
  }
};

// Best candidates of one direction of missing values: of lane i, which stands for feature i % 8,
// the sum and the number of rows on the left less i / 8.
struct LaneBest {
  float sum[16];
  int32_t n_left[16];
};

// missing: sums of the rows that go left whatever their code.
template <class S>
void find_best(const S& score, const ScanNode& node, int n, const SortedRows& s,
               const uint64_t* missing, LaneBest& best) {
  const bool unit = node.layout->hessian == HessianKind::unit;
  const float g_step = node.gradient_step[0], h_step = unit ? 1.0f : node.hessian_step[0];
  const i32x16 g_total = splat(node.totals[0]);
  const i32x16 h_total = splat(unit ? node.count : node.totals[node.layout->hessian_offset]);
  const int32_t min_rows = node.config->min_child_samples > 1 ? node.config->min_child_samples : 1;
  const f32x16 min_weight = broadcast(node.config->min_child_weight);
  const auto* more = reinterpret_cast<const int32_t*>(missing);
  const i32x16 more_low = EveryOther<i32x16>::load_from(more),
               more_high = EveryOther<i32x16>::load_from(more + 1);
  f32x16 largest = broadcast(kNone);
  i32x16 at = splat(0);
  for (int i = 0; i <= n; i += 2) {
    const auto* from = reinterpret_cast<const int32_t*>(s.sums + 8 * i);
    const Sums left(EveryOther<i32x16>::load_from(from) + more_low,
                    EveryOther<i32x16>::load_from(from + 1) + more_high);
    const f32x16 hl = to_float(left.hessian) * h_step,
                 hr = to_float(h_total - left.hessian) * h_step;
    const f32x16 gl = to_float(left.gradient) * g_step,
                 gr = to_float(g_total - left.gradient) * g_step;
    const f32x16 sum =
        get_narrow(score).pair(gl, gr, score.coefficient(hl), score.coefficient(hr)) + 0.0f;
    const i32x16 code = convert<i32x16>(load<i16x16>(s.keys + 8 * i)) & -256;
    const i32x16 next = convert<i32x16>(load<i16x16>(s.keys + 8 * i + 8)) & -256;
    const auto is_candidate = (code != next) & (left.count >= min_rows) &
                              (node.count - left.count >= min_rows) & (hl >= min_weight) &
                              (hr >= min_weight) & (sum > largest);
    largest = select(is_candidate, sum, largest);
    at = select(is_candidate, splat(i), at);
  }
  store(best.sum, largest);
  store(best.n_left, at);
}

// Return the rows before the first one whose code is `missing`.
int count_present(const SortedRows& s, int n, int slot, int missing) {
  while (n > 0 && get_code(s.keys[8 * n + slot]) == missing) --n;
  return n;
}

void scan(const ScanNode& node, const uint64_t* words, const int16_t* channels, int n, int missing,
          SortedRows& s, SortedSplit* splits) {
  typedef uint8_t u8x8 __attribute__((vector_size(8)));
  int16_t* const keys = s.keys + 8;  // row 0 has code 0: before the first candidate
  store(s.keys, i16x8{} + kSmallestKey);
  for (int i = 0; i < n; ++i) {
    const i16x8 codes = __builtin_convertvector(load<u8x8>(words + i), i16x8);
    store(keys + 8 * i, ((codes ^ 128) << 8) | static_cast<int16_t>(i));
  }
  for (int i = n; i < (n + kRunRows) / kRunRows * kRunRows; ++i)
    store(keys + 8 * i, i16x8{} + kLargestKey);
  sort_keys(keys, n);

  uint64_t packed[256];
  pack_rows(channels, n, packed);
  uint64_t sums[8] = {};
  std::memset(s.sums, 0, sizeof(sums));
  for (int i = 0; i < n; ++i)
#pragma GCC unroll 8
    for (int f = 0; f < 8; ++f) s.sums[8 * (i + 1) + f] = sums[f] += packed[keys[8 * i + f] & 255];
  std::memcpy(s.sums + 8 * (n + 1), sums, sizeof(sums));  // no candidate: all rows are on the left

  uint64_t absent[16] = {};
  LaneBest best[2];
  int present[8];
  bool has_missing = false;
  for (int f = 0; f < 8; ++f) {
    present[f] = count_present(s, n, f, missing);
    has_missing |= present[f] < n;
  }
  visit_plain_score(node, [&](const auto& score) {
    find_best(score, node, n, s, absent, best[0]);
    if (!has_missing) return;
    for (int f = 0; f < 8; ++f) absent[f] = absent[f + 8] = sums[f] - s.sums[8 * present[f] + f];
    find_best(score, node, n, s, absent, best[1]);
  });
  for (int f = 0; f < 8; ++f) {
    SortedSplit& split = splits[f];
    split.best = {kNone, -1, 0};
    split.has_missing = present[f] < n;
    for (int missing_left = 0; missing_left <= (split.has_missing ? 1 : 0); ++missing_left) {
      const LaneBest& found = best[missing_left];
      for (int lane = f; lane < 16; lane += 8) {
        const int n_left = found.n_left[lane] + lane / 8;
        const int bin = get_code(s.keys[8 * n_left + f]);
        if (!(found.sum[lane] > split.best.sum ||
              (found.sum[lane] == split.best.sum && bin < split.best.bin)))
          continue;
        split.best = {found.sum[lane], bin, missing_left};
        const uint64_t left = s.sums[8 * n_left + f] + (missing_left != 0 ? absent[f] : 0);
        const int32_t count = static_cast<int32_t>(left >> 56), bias = count << 15;
        split.count = count;
        split.gradient = static_cast<int32_t>(left) - bias;
        split.hessian = (static_cast<int32_t>(left >> 32) & 0xffffff) - bias;
      }
    }
  }
}

}  // namespace

const SortedRowKernels sorted_row_kernels = {scan};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
