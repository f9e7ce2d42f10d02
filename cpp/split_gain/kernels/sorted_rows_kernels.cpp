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
// Sorted rows stand in groups of the same size: lanes 8 g .. 8 g + 7 of vector i are row i of group
// g, and groups follow one another.
#if defined(__AVX512F__)
typedef int16_t Keys __attribute__((vector_size(64)));
#elif defined(__AVX2__)
using Keys = i16x16;
#else
using Keys = VectorPair<i16x8>;
#endif
constexpr int kKeyLanes = sizeof(Keys) / sizeof(int16_t), kGroups = kKeyLanes / kTileFeatures;
constexpr int kRunRows = 16;  // vectors that are sorted in registers
constexpr int16_t kSmallestKey = INT16_MIN, kLargestKey = INT16_MAX;
static_assert(kMaxSortedRows < kSortedRowSlots && kSortedRowSlots % kGroups == 0);

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

#if defined(__AVX512F__)
POLYLEAF_INLINE Keys min_keys(const Keys& a, const Keys& b) {
  return (Keys)_mm512_min_epi16((__m512i)a, (__m512i)b);
}
POLYLEAF_INLINE Keys max_keys(const Keys& a, const Keys& b) {
  return (Keys)_mm512_max_epi16((__m512i)a, (__m512i)b);
}
#elif defined(__AVX2__)  // GCC compares and selects
POLYLEAF_INLINE Keys min_keys(const Keys& a, const Keys& b) {
  return (Keys)_mm256_min_epi16((__m256i)a, (__m256i)b);
}
POLYLEAF_INLINE Keys max_keys(const Keys& a, const Keys& b) {
  return (Keys)_mm256_max_epi16((__m256i)a, (__m256i)b);
}
#else
POLYLEAF_INLINE Keys min_keys(const Keys& a, const Keys& b) {
  return min(a, b);
}
POLYLEAF_INLINE Keys max_keys(const Keys& a, const Keys& b) {
  return max(a, b);
}
#endif

POLYLEAF_INLINE void order(Keys& a, Keys& b) {
  const Keys low = min_keys(a, b);
  b = max_keys(a, b);
  a = low;
}

// Order the rows of a with those of b in the mirrored group: smaller keys move to the groups
// before. PAIRS: groups are mirrored within pairs, not among all.
#if defined(__AVX512F__)
template <bool PAIRS>
POLYLEAF_INLINE void order_mirrored(Keys& a, Keys& b) {
  constexpr int kMirror = PAIRS ? 0xb1 : 0x1b;
  constexpr __mmask32 kLater = PAIRS ? 0xff00ff00 : 0xffff0000;
  const __m512i mirrored = _mm512_shuffle_i64x2((__m512i)b, (__m512i)b, kMirror);
  const __m512i low = _mm512_min_epi16((__m512i)a, mirrored);
  const __m512i high = _mm512_max_epi16((__m512i)a, mirrored);
  const __m512i rest = _mm512_mask_mov_epi16(high, kLater, low);
  a = (Keys)_mm512_mask_mov_epi16(low, kLater, high);
  b = (Keys)_mm512_shuffle_i64x2(rest, rest, kMirror);
}
#else
// Return the first group of a and the second of b, or the reverse.
POLYLEAF_INLINE Keys join_groups(const Keys& a, const Keys& b, bool reverse) {
#if defined(__AVX2__)
  return reverse ? __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
                                           21, 22, 23)
                 : __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 24, 25, 26, 27, 28, 29, 30,
                                           31);
#else
  return reverse ? Keys{a.high, b.low} : Keys{a.low, b.high};
#endif
}
template <bool PAIRS>
POLYLEAF_INLINE void order_mirrored(Keys& a, Keys& b) {
  const Keys mirrored = join_groups(b, b, true);
  const Keys low = min_keys(a, mirrored), high = max_keys(a, mirrored);
  a = join_groups(low, high, false);
  b = join_groups(low, high, true);
}
#endif

template <const auto& network, size_t... I>
POLYLEAF_INLINE void apply(Keys* rows, std::index_sequence<I...>) {
  (order(rows[network.first[I]], rows[network.second[I]]), ...);
}

template <int n>
constexpr SortingNetwork<n> kSort;
template <int n>
constexpr MergingNetwork<n> kMerge;

template <const auto& network>
POLYLEAF_INLINE void apply(Keys* rows) {
  apply<network>(rows, std::make_index_sequence<network.size>());
}

// Merge the groups of m vectors, whose rows are sorted within each group. merge(rows) sorts groups
// that fall and then rise, or the reverse.
template <class Merge>
POLYLEAF_INLINE void merge_groups(Keys* rows, int m, const Merge& merge) {
  for (int i = 0; i < m / 2; ++i) order_mirrored<true>(rows[i], rows[m - 1 - i]);
  merge(rows);
#if defined(__AVX512F__)
  for (int i = 0; i < m / 2; ++i) order_mirrored<false>(rows[i], rows[m - 1 - i]);
  for (int i = 0; i < m; ++i) {
    const __m512i own = (__m512i)rows[i], other = _mm512_shuffle_i64x2(own, own, 0xb1);
    rows[i] = (Keys)_mm512_mask_max_epi16(_mm512_min_epi16(own, other), 0xff00ff00, own, other);
  }
  merge(rows);
#endif
}

// Sort m vectors of keys that fit in registers.
template <int m>
void sort_few(int16_t* keys) {
  Keys rows[m];
#pragma GCC unroll 16
  for (int i = 0; i < m; ++i) rows[i] = load<Keys>(keys + kKeyLanes * i);
  apply<kSort<m>>(rows);
  merge_groups(rows, m,
               [](Keys* merged) __attribute__((always_inline)) { apply<kMerge<m>>(merged); });
#pragma GCC unroll 16
  for (int i = 0; i < m; ++i) store(keys + kKeyLanes * i, rows[i]);
}

// Sort runs of kRunRows vectors that fall and then rise, once larger distances are in order.
void merge_runs(Keys* rows, int m, int run) {
  for (int stride = run / 2; stride >= kRunRows; stride /= 2)
    for (int i = 0; i < m; ++i)
      if ((i & stride) == 0) order(rows[i], rows[i + stride]);
  for (int i = 0; i < m; i += kRunRows) {
    Keys some[kRunRows];
#pragma GCC unroll 16
    for (int j = 0; j < kRunRows; ++j) some[j] = rows[i + j];
    apply<kMerge<kRunRows>>(some);
#pragma GCC unroll 16
    for (int j = 0; j < kRunRows; ++j) rows[i + j] = some[j];
  }
}

// Sort m vectors of keys, a power of two above kRunRows, by Batcher's bitonic sort.
void sort_many(int16_t* keys, int m) {
  Keys rows[kSortedRowSlots / kGroups];
  for (int i = 0; i < m; i += kRunRows) {
    Keys some[kRunRows];
#pragma GCC unroll 16
    for (int j = 0; j < kRunRows; ++j) some[j] = load<Keys>(keys + kKeyLanes * (i + j));
    apply<kSort<kRunRows>>(some);
#pragma GCC unroll 16
    for (int j = 0; j < kRunRows; ++j) rows[i + j] = some[j];
  }
  for (int run = kRunRows; run < m; run *= 2) {
    for (int begin = 0; begin < m; begin += 2 * run)
      for (int i = 0; i < run; ++i) order(rows[begin + i], rows[begin + 2 * run - 1 - i]);
    merge_runs(rows, m, run);
  }
  merge_groups(rows, m, [&](Keys* merged) { merge_runs(merged, m, m); });
  for (int i = 0; i < m; ++i) store(keys + kKeyLanes * i, rows[i]);
}

void sort_keys(int16_t* keys, int m) {
  switch (m) {
    case 2:
      return sort_few<2>(keys);
    case 4:
      return sort_few<4>(keys);
    case 8:
      return sort_few<8>(keys);
    case 16:
      return sort_few<16>(keys);
    default:
      return sort_many(keys, m);
  }
}

// Write the keys of n rows, and the largest key in the other rows of m vectors. Count the missing
// values of each feature; return whether there are any.
bool write_keys(const uint64_t* words, int n, int m, int missing, int16_t* keys,
                int32_t* n_missing) {
  typedef uint8_t Bytes __attribute__((vector_size(kKeyLanes)));
  int16_t numbers[kKeyLanes];
  for (int i = 0; i < kKeyLanes; ++i) numbers[i] = static_cast<int16_t>(i / kTileFeatures);
  Keys number = load<Keys>(numbers), absent = {};
  const auto code = static_cast<int16_t>(missing);
  const auto add = [&](int i, const Bytes& bytes) __attribute__((always_inline)) {
    const Keys codes = convert<Keys>(bytes);
    absent -= codes == code;
    const Keys key = ((codes - 128) << 8) + number;
    store(keys + kTileFeatures * i,
          select(number < static_cast<int16_t>(n), key, Keys{} + kLargestKey));
    number += Keys{} + static_cast<int16_t>(kGroups);
  };
  int i = 0;
  for (; i + kGroups <= n; i += kGroups) add(i, load<Bytes>(words + i));
  if (i < n) {
#if defined(__AVX512F__)
    const auto valid = static_cast<__mmask8>((1 << (n - i)) - 1);
    add(i, (Bytes)_mm256_maskz_loadu_epi64(valid, words + i));
#else
    uint64_t last[kGroups] = {};
    std::memcpy(last, words + i, 8 * (n - i));
    add(i, load<Bytes>(last));
#endif
    i += kGroups;
  }
  for (; i < m * kGroups; i += kGroups) store(keys + kTileFeatures * i, Keys{} + kLargestKey);
  int16_t counts[kKeyLanes];
  store(counts, absent);
  i16x8 total = load<i16x8>(counts);
  for (int g = 1; g < kGroups; ++g) total += load<i16x8>(counts + kTileFeatures * g);
  store(n_missing, __builtin_convertvector(total, i32x8));
  uint64_t any[2];
  store(any, total);
  return (any[0] | any[1]) != 0;
}

#if defined(__AVX512F__)
void write_table(const int16_t* channels, int lanes, int n, int channel, SortedRows& s) {
  for (int i = 0; i < n; ++i) s.table[channel][i] = channels[lanes * i + channel];
}

// Find a channel of the row of every key.
void look_up(int channel, SortedRows& s) {
  const int16_t *const table = s.table[channel], *const keys = s.keys + kKeyLanes;
  const int n = s.n, m = s.group_rows;
  const auto part = [&](int i) { return _mm512_loadu_si512(table + 32 * i); };
  const auto visit = [&](const auto& find) __attribute__((always_inline)) {
    for (int i = 0; i < m; ++i) {
      const __m512i key = _mm512_loadu_si512(keys + kKeyLanes * i);
      _mm512_storeu_si512(s.found + kKeyLanes / 2 * i, find(key));
    }
  };
  const auto both = [](__m512i a, __m512i key, __m512i b) __attribute__((always_inline)) {
    return _mm512_permutex2var_epi16(a, key, b);
  };
  const __m512i t0 = part(0);
  if (n <= 32)
    return visit([&](__m512i key)
                     __attribute__((always_inline)) { return _mm512_permutexvar_epi16(key, t0); });
  const __m512i t1 = part(1);
  if (n <= 64)
    return visit([&](__m512i key) __attribute__((always_inline)) { return both(t0, key, t1); });
  const __m512i t2 = part(2), t3 = part(3), bit6 = _mm512_set1_epi16(64);
  const auto first = [&](__m512i key) __attribute__((always_inline)) {
    return _mm512_mask_mov_epi16(both(t0, key, t1), _mm512_test_epi16_mask(key, bit6),
                                 both(t2, key, t3));
  };
  if (n <= 128) return visit(first);
  const __m512i t4 = part(4), t5 = part(5), t6 = part(6), t7 = part(7);
  const __m512i bit7 = _mm512_set1_epi16(128);
  visit([&](__m512i key) __attribute__((always_inline)) {
    const __m512i second = _mm512_mask_mov_epi16(
        both(t4, key, t5), _mm512_test_epi16_mask(key, bit6), both(t6, key, t7));
    return _mm512_mask_mov_epi16(first(key), _mm512_test_epi16_mask(key, bit7), second);
  });
}

// Return the channel that was found for sixteen keys.
POLYLEAF_INLINE i32x16 load_channel(const SortedRows& s, int, int at) {
  return convert<i32x16>(load<i16x16>(reinterpret_cast<const int16_t*>(s.found) + at));
}
#else  // two channels at a time
void write_table(const int16_t* channels, int lanes, int n, int channel, SortedRows& s) {
  int16_t* table = s.table[channel & ~1] + (channel & 1);
  for (int i = 0; i < n; ++i) table[2 * i] = channels[lanes * i + channel];
}

void look_up(int channel, SortedRows& s) {
  if (channel % 2 != 0) return;
  const int16_t *const table = s.table[channel], *const keys = s.keys + kKeyLanes;
  for (int i = 0; i < s.group_rows * kKeyLanes; i += kTileFeatures) {
    const auto at = [&](int f) __attribute__((always_inline)) {
      return load<int32_t>(table + 2 * (keys[i + f] & 255));
    };
    store(s.found + i, i32x8{at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)});
  }
}

POLYLEAF_INLINE i32x16 load_channel(const SortedRows& s, int channel, int at) {
  const i32x16 both = load<i32x16>(s.found + at);
  return channel % 2 == 0 ? (both << 16) >> 16 : both >> 16;
}
#endif

// Write the sums of a channel over the rows before each row, within its group, and over the groups
// before.
void sum_before(int channel, SortedRows& s) {
  int32_t *sums = s.sums.data() + channel * s.n_sums, *before = s.before[channel];
  int32_t totals[kKeyLanes];
  const auto add_groups = [&](auto odd) __attribute__((always_inline)) {
    for (int lane = 0; lane < kKeyLanes; lane += 16) {
      i32x16 sum = {};
      for (int i = 0; i < s.group_rows; ++i, sums += 16) {
        store(sums, sum);
        sum += load_channel(s, odd, kKeyLanes * i + lane);
      }
      store(totals + lane, sum);
    }
  };
  if (channel % 2 == 0)
    add_groups(std::integral_constant<int, 0>());
  else
    add_groups(std::integral_constant<int, 1>());
  i32x8 sum = {};
  for (int lane = 0; lane < kKeyLanes; lane += 8) {
    store(before + lane, sum);
    sum += load<i32x8>(totals + lane);
  }
}

// The best candidates of one direction of missing values: the sum, and the number of rows on the
// left that are not missing.
struct LaneBest {
  float sum[kTileFeatures];
  int32_t n_left[kTileFeatures];
};

// before: sums of the groups before, and of the rows that go left whatever their code. COUNTED:
// Hessians are numbers of rows, and none is missing, so that all features share coefficients.
template <int K, bool COUNTED, class S>
void find_best(const S& score, const ScanNode& node, const SortedRows& s,
               const SortedRows::Sums* before, const int32_t* n_missing, LaneBest& best) {
  const ChannelLayout& layout = *node.layout;
  int n_channels = layout.n_outputs + layout.n_hessian();
  if (K == 1) n_channels = COUNTED || layout.hessian_offset < 0 ? 1 : 2;
  const int m = s.group_rows;
  const int16_t* const keys = s.keys + kKeyLanes;
  int32_t first_of_lane[16], more[16];
  for (int i = 0; i < 16; ++i) {
    first_of_lane[i] = i / kTileFeatures * m;
    more[i] = n_missing[i % kTileFeatures];
  }
  const i32x16 absent = load<i32x16>(more);
  const auto is_second = load<i32x16>(first_of_lane) > 0;
  const auto join = [&](float first, float second) __attribute__((always_inline)) {
    return select(is_second, broadcast(second), broadcast(first));
  };
  CandidateLanes<S, K> lanes(score, node);
  float coefficients[2][kSortedRowSlots];
  if constexpr (COUNTED) {
    int32_t numbers[16];
    for (int i = 0; i < 16; ++i) numbers[i] = i;
    i32x16 count = load<i32x16>(numbers);
    for (int i = 0; i < s.n; i += 16, count += splat(16)) {
      store(coefficients[0] + i, lanes.coefficients(count));
      store(coefficients[1] + i, lanes.coefficients(node.count - count));
    }
    for (int i = s.n; i < m * kGroups; ++i) coefficients[0][i] = __builtin_nanf("");
  }
  for (int lane = 0; lane < kKeyLanes && lane / kTileFeatures * m < s.n; lane += 16) {
    i32x16 numbers = load<i32x16>(first_of_lane) + lane / kTileFeatures * m;
    const int32_t* sums = s.sums.data() + lane * m;
    for (int i = 0; i < m; ++i) {
      i32x16 left[kMaxSortedLanes];
      for (int c = 0; c < n_channels; ++c)
        left[c] = load<i32x16>(sums + c * m * kKeyLanes + 16 * i) + load<i32x16>(before[c] + lane);
      const auto get_codes = [&](int row) __attribute__((always_inline)) {
        return convert<i32x16>(load<i16x16>(keys + kKeyLanes * row + lane)) & -256;
      };
      const auto changes = get_codes(i - 1) != get_codes(i);
      if constexpr (COUNTED) {
        const int row = lane / kTileFeatures * m + i;
        lanes.add(left, join(coefficients[0][row], coefficients[0][row + m]),
                  join(coefficients[1][row], coefficients[1][row + m]), numbers, changes);
      } else {
        lanes.add(left, numbers + absent, numbers, changes);
      }
      numbers += splat(1);
    }
  }
  float sum[16];
  int32_t n_left[16];
  lanes.store_best(sum, n_left);
  for (int f = 0; f < kTileFeatures; ++f) {
    const int other = f + kTileFeatures;
    const bool takes_other =
        (sum[other] > sum[f]) | ((sum[other] == sum[f]) & (n_left[other] < n_left[f]));
    best.sum[f] = takes_other ? sum[other] : sum[f];
    best.n_left[f] = takes_other ? n_left[other] : n_left[f];
  }
}

// Return the code of the row before row n of the sorted order.
int get_code_before(const SortedRows& s, int n, int slot) {
  if (n == 0) return 0;
  const int m = s.group_rows, i = n - 1;
  return get_code(s.keys[kKeyLanes * (1 + (i & (m - 1))) + kTileFeatures * (i / m) + slot]);
}

void scan(const ScanNode& node, const uint64_t* words, const int16_t* channels, int n, int missing,
          SortedRows& s) {
  int m = 2;
  while (m * kGroups < n) m *= 2;
  s.n = n;
  s.group_rows = m;
  s.n_sums = m * kKeyLanes;
  int16_t* const keys = s.keys + kKeyLanes;
  const ChannelLayout& layout = *node.layout;
  const int n_channels = layout.n_outputs + layout.n_hessian();
  // Loads of several numbers wait for stores of single ones: read after the rows are sorted.
  for (int c = 0; c < n_channels; ++c) write_table(channels, layout.lanes, n, c, s);
  int32_t n_missing[kTileFeatures];
  const bool has_missing = write_keys(words, n, m, missing, keys, n_missing);
  sort_keys(keys, m);
  // Before a group's first row is the last one of the group before; before all rows is code 0.
  store(s.keys, i16x8{} + kSmallestKey);
  for (int lane = 8; lane < kKeyLanes; lane += 8)
    store(s.keys + lane, load<i16x8>(keys + kKeyLanes * (m - 1) + lane - 8));

  for (int c = 0; c < n_channels; ++c) {
    look_up(c, s);
    sum_before(c, s);
  }
  LaneBest best[2];
  const int32_t none[kTileFeatures] = {};
  visit_plain_score(node, [&](const auto& score) {
    using S = std::decay_t<decltype(score)>;
    const auto find = [&](auto counted, const auto* before, const int32_t* counts,
                          LaneBest& found) {
      if constexpr (!std::is_same_v<S, Regularised<true>>)
        if (layout.n_outputs == 1)
          return find_best<1, counted()>(score, node, s, before, counts, found);
      find_best<0, counted()>(score, node, s, before, counts, found);
    };
    if (layout.hessian_offset < 0 && !has_missing)
      find(std::is_same<S, Shared>(), s.before, none, best[0]);
    else
      find(std::false_type(), s.before, none, best[0]);
    if (!has_missing) return;
    SortedRows::Sums before[kMaxSortedLanes];
    for (int c = 0; c < n_channels; ++c)
      for (int f = 0; f < kTileFeatures; ++f) {
        const int32_t sum =
            n_missing[f] == 0 ? 0 : node.totals[c] - s.sum_before(c, n - n_missing[f], f);
        s.absent[c][f] = sum;
        for (int lane = f; lane < kKeyLanes; lane += kTileFeatures)
          before[c][lane] = s.before[c][lane] + sum;
      }
    find(std::false_type(), before, n_missing, best[1]);
  });
  for (int f = 0; f < kTileFeatures; ++f) {
    SortedSplit& split = s.splits[f];
    const auto set = [&](const LaneBest& found, int missing_left) {
      split.best = {found.sum[f], get_code_before(s, found.n_left[f], f), missing_left};
      split.n_left = found.n_left[f];
    };
    set(best[0], 0);
    split.n_missing = n_missing[f];
    if (n_missing[f] == 0) continue;
    const int bin = get_code_before(s, best[1].n_left[f], f);
    if (best[1].sum[f] > split.best.sum ||
        (best[1].sum[f] == split.best.sum && bin < split.best.bin))
      set(best[1], 1);
  }
}

}  // namespace

const SortedRowKernels sorted_row_kernels = {scan};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
