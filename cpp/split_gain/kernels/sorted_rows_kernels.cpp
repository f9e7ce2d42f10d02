// Candidates of few outputs in small nodes, from the sorted codes of their rows. The rows of all
// features of a tile are sorted by a network of comparisons, one feature per lane, so the work does
// not depend on the data; the candidates of two rows and eight features then fill sixteen lanes.
#include <utility>

#include "split_gain/kernels/few_outputs.h"
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

// Two channels of a row, or the sums of up to 255: each with 2^15 added per row so that they are
// positive, in 24 of 32 bits. The upper eight bits of the first pair are the number of rows.
void pack_rows(const int16_t* channels, int lanes, int n, int pair, uint64_t* packed) {
  const uint64_t one = pair == 0 ? uint64_t{1} << 56 : 0;
  for (int i = 0; i < n; ++i) {
    const uint64_t row = load<uint32_t>(channels + lanes * i + 2 * pair) ^ 0x80008000u;
    packed[i] = (row & 0xffff) | (row & 0xffff0000u) << 16 | one;
  }
}

template <class Integers>
POLYLEAF_INLINE Integers unpack(const Integers& sum, const Integers& count) {
  return (sum & 0xffffff) - (count << 15);
}

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

// Sums of the first rows of eight features: of each pair of channels, n + 2 rows.
struct PairSums {
  const uint64_t* sums;
  int n;
  const uint64_t* pair(int p) const { return sums + 8 * static_cast<int64_t>(p) * (n + 2); }
};

// Best candidates of one direction of missing values: of lane i, which stands for feature i % 8,
// the sum and the number of rows on the left less i / 8.
struct LaneBest {
  float sum[16];
  int32_t n_left[16];
};

// missing: sums of the rows that go left whatever their code, of each pair twice eight features.
template <int K, class S>
void find_best(const S& score, const ScanNode& node, const int16_t* keys, const PairSums& sums,
               const uint64_t* missing, LaneBest& best) {
  const ChannelLayout& layout = *node.layout;
  int n_channels = layout.n_outputs + layout.n_hessian();
  if (K == 1) n_channels = layout.hessian_offset < 0 ? 1 : 2;
  const auto get_sum = [&](int channel, int i) __attribute__((always_inline)) {
    const int pair = channel / 2, odd = channel % 2;
    const auto* from = reinterpret_cast<const int32_t*>(sums.pair(pair) + 8 * i) + odd;
    const auto* more = reinterpret_cast<const int32_t*>(missing + 16 * pair) + odd;
    return EveryOther<i32x16>::load_from(from) + EveryOther<i32x16>::load_from(more);
  };
  CandidateLanes<S, K> lanes(score, node);
  for (int i = 0; i <= sums.n; i += 2) {
    const i32x16 count = (get_sum(1, i) >> 24) & 255;
    i32x16 left[kMaxSortedLanes];
    for (int c = 0; c < n_channels; ++c) left[c] = unpack(get_sum(c, i), count);
    const i32x16 code = convert<i32x16>(load<i16x16>(keys + 8 * i)) & -256;
    const i32x16 next = convert<i32x16>(load<i16x16>(keys + 8 * i + 8)) & -256;
    lanes.add(left, count, splat(i), code != next);
  }
  lanes.store_best(best.sum, best.n_left);
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
  // All rows on the left are no candidate: with missing values their count may exceed eight bits.
  for (int i = n; i < n + 2; ++i) store(keys + 8 * i, load<i16x8>(keys + 8 * (n - 1)));

  const ChannelLayout& layout = *node.layout;
  const int n_pairs = (layout.n_outputs + layout.n_hessian() + 1) / 2;
  const PairSums sums{s.sums.data(), n};
  for (int p = 0; p < n_pairs; ++p) {
    uint64_t packed[256], sum[8] = {};
    pack_rows(channels, layout.lanes, n, p, packed);
    uint64_t* to = s.sums.data() + (sums.pair(p) - sums.sums);
    std::memset(to, 0, sizeof(sum));
    for (int i = 0; i < n; ++i)
#pragma GCC unroll 8
      for (int f = 0; f < 8; ++f) to[8 * (i + 1) + f] = sum[f] += packed[keys[8 * i + f] & 255];
    std::memcpy(to + 8 * (n + 1), sum, sizeof(sum));  // no candidate: all rows are on the left
  }

  uint64_t absent[kMaxSortedLanes / 2 * 16] = {};
  LaneBest best[2];
  int present[8];
  bool has_missing = false;
  for (int f = 0; f < 8; ++f) {
    present[f] = count_present(s, n, f, missing);
    has_missing |= present[f] < n;
  }
  visit_plain_score(node, [&](const auto& score) {
    const auto find = [&](LaneBest& found) {
      if (layout.n_outputs == 1)
        find_best<1>(score, node, s.keys, sums, absent, found);
      else
        find_best<0>(score, node, s.keys, sums, absent, found);
    };
    find(best[0]);
    if (!has_missing) return;
    for (int p = 0; p < n_pairs; ++p)
      for (int f = 0; f < 8; ++f)
        absent[16 * p + f] = absent[16 * p + f + 8] =
            sums.pair(p)[8 * n + f] - sums.pair(p)[8 * present[f] + f];
    find(best[1]);
  });
  for (int f = 0; f < 8; ++f) {
    SortedSplit& split = splits[f];
    split.best = {kNone, -1, 0};
    split.has_missing = present[f] < n;
    int n_left = 0;
    for (int missing_left = 0; missing_left <= (split.has_missing ? 1 : 0); ++missing_left)
      for (int lane = f; lane < 16; lane += 8) {
        const LaneBest& found = best[missing_left];
        const int at = found.n_left[lane] + lane / 8, bin = get_code(s.keys[8 * at + f]);
        if (!(found.sum[lane] > split.best.sum ||
              (found.sum[lane] == split.best.sum && bin < split.best.bin)))
          continue;
        split.best = {found.sum[lane], bin, missing_left};
        n_left = at;
      }
    split.count = n_left + (split.best.missing_left != 0 ? n - present[f] : 0);
    for (int p = 0; p < n_pairs; ++p) {
      const uint64_t left =
          sums.pair(p)[8 * n_left + f] + (split.best.missing_left != 0 ? absent[16 * p + f] : 0);
      split.left[2 * p] = unpack(static_cast<int32_t>(left), split.count);
      split.left[2 * p + 1] = unpack(static_cast<int32_t>(left >> 32), split.count);
    }
  }
}

}  // namespace

const SortedRowKernels sorted_row_kernels = {scan};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
