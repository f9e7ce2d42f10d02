// Histogram kernels: one word load and one channel load feed up to eight bin updates.
#include "base/bin_code.h"
#include "base/kernels/lanes.h"
#include "search/dense_scan.h"
#include "search/packed_histogram.h"
#include "split_gain/kernels/candidates.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

typedef uint64_t u64x4 __attribute__((vector_size(32)));

// Storage of the row counts of bins.
enum class Counts { none, array, packed };

// Call update(offset) for the bin of each slot of a word, where bins of 2^LOG2_BYTES bytes begin.
// Codes are shifted to bytes at once, so that an update takes few instructions.
template <int LOG2_STRIDE, int LOG2_BYTES, class Update>
POLYLEAF_INLINE void visit_slots(uint64_t word, int n_features, const Update& update) {
#pragma GCC unroll 8
  for (int f = 0; f < kTileFeatures; ++f) {
    if (f >= n_features) break;
    const int shift = 8 * f - LOG2_BYTES;
    const uint64_t code = shift >= 0 ? word >> shift : word << -shift;
    update((static_cast<size_t>(f) << (LOG2_STRIDE + LOG2_BYTES)) +
           (code & (uint64_t{255} << LOG2_BYTES)));
  }
}

// Call add(n_features), with a constant for the largest tiles: no branch after each slot.
template <int LOG2_STRIDE, class Add>
POLYLEAF_INLINE void specialise_slot_count(int n_features, const Add& add) {
  if (LOG2_STRIDE == 8 && n_features == 8) return add(8);
  if (LOG2_STRIDE == 8 && n_features == 7) return add(7);
  if (LOG2_STRIDE == 8 && n_features == 6) return add(6);
  if (LOG2_STRIDE == 8 && n_features == 5) return add(5);
  add(n_features);
}

// Add Z of the vectors of sixteen lanes of each row.
template <int Z, Counts COUNTS>
void build_wide(const uint64_t* words, const int16_t* channels, int64_t n, int n_features,
                int log2_stride, int lanes, int32_t* sums, uint32_t* counts) {
  int32_t row_count[16] = {};
  row_count[15] = kCountUnit;
  const i32x16 count = load<i32x16>(row_count);
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t word = words[i];
    i32x16 value[Z];
    for (int z = 0; z < Z; ++z)
      value[z] = convert<i32x16>(load<i16x16>(channels + i * lanes + z * 16));
    if (COUNTS == Counts::packed) value[Z - 1] += count;
#pragma GCC unroll 8
    for (int f = 0; f < 8; ++f) {
      if (f >= n_features) break;
      const uint32_t bin = (static_cast<uint32_t>(f) << log2_stride) + ((word >> (8 * f)) & 255);
      int32_t* at = sums + static_cast<size_t>(bin) * lanes;
      for (int z = 0; z < Z; ++z) store(at + z * 16, load<i32x16>(at + z * 16) + value[z]);
      if (COUNTS == Counts::array) ++counts[bin];
    }
  }
}

// Call build_wide with a number of vectors, as far as they can occur.
template <Counts COUNTS>
auto select_wide(int vectors) {
  if constexpr (COUNTS != Counts::packed) {
    if (vectors == 5) return build_wide<5, COUNTS>;
    if (vectors == 6) return build_wide<6, COUNTS>;
    if (vectors == 7) return build_wide<7, COUNTS>;
    if (vectors == 8) return build_wide<8, COUNTS>;
  }
  return vectors == 1   ? build_wide<1, COUNTS>
         : vectors == 2 ? build_wide<2, COUNTS>
         : vectors == 3 ? build_wide<3, COUNTS>
                        : build_wide<4, COUNTS>;
}

// The tile of 8 features x 256 bins x 128 lanes fits the second-level cache; with more lanes, bins
// are added to in blocks of 64.
template <Counts COUNTS>
void build_vectors(const uint64_t* words, const int16_t* channels, int64_t n, int n_features,
                   int log2_stride, int lanes, int32_t* sums, uint32_t* counts) {
  const int vectors = lanes / 16;
  if (vectors <= 8)
    return select_wide<COUNTS>(vectors)(words, channels, n, n_features, log2_stride, lanes, sums,
                                        counts);
  for (int z = 0; z < vectors; z += 4) {
    const auto build = z == 0 ? build_wide<4, COUNTS>
                              : select_wide<Counts::none>(vectors - z < 4 ? vectors - z : 4);
    build(words, channels + 16 * z, n, n_features, log2_stride, lanes, sums + 16 * z, counts);
  }
}

// Four or eight lanes: a tile fits in the first-level cache.
template <class Value, class Sum, int LOG2_STRIDE>
void build_narrow(const uint64_t* words, const int16_t* channels, int64_t n, int n_features,
                  int32_t* sums) {
  constexpr int kRow = sizeof(Sum) / sizeof(int32_t), kLog2Bytes = __builtin_ctzll(sizeof(Sum));
  specialise_slot_count<LOG2_STRIDE>(n_features, [&](int n_slots) __attribute__((always_inline)) {
    for (int64_t i = 0; i < n; ++i) {
      const Sum value = convert<Sum>(load<Value>(channels + i * kRow));
      visit_slots<LOG2_STRIDE, kLog2Bytes>(words[i], n_slots,
                                           [&](size_t offset) __attribute__((always_inline)) {
                                             int32_t* at = sums + offset / sizeof(int32_t);
                                             store(at, load<Sum>(at) + value);
                                           });
    }
  });
}

template <int LOG2_STRIDE>
void build_few(const uint64_t* words, const int16_t* channels, int64_t n, int n_features, int lanes,
               int32_t* sums) {
  const auto build = lanes == 4 ? build_narrow<i16x4, i32x4, LOG2_STRIDE>
                                : build_narrow<i16x8, i32x8, LOG2_STRIDE>;
  build(words, channels, n, n_features, sums);
}

void build(const uint64_t* words, const int16_t* channels, int64_t n, int n_features,
           int log2_stride, int lanes, bool packs_count, int32_t* sums, uint32_t* counts) {
  if (lanes < 16) {
    const auto build = log2_stride == 2   ? build_few<2>
                       : log2_stride == 4 ? build_few<4>
                       : log2_stride == 6 ? build_few<6>
                                          : build_few<8>;
    return build(words, channels, n, n_features, lanes, sums);
  }
  const auto build = packs_count         ? build_vectors<Counts::packed>
                     : counts != nullptr ? build_vectors<Counts::array>
                                         : build_vectors<Counts::none>;
  build(words, channels, n, n_features, log2_stride, lanes, sums, counts);
}

void unpack_counts(int32_t* sums, int64_t n_bins, int lanes, bool last, int32_t* rest,
                   uint32_t* counts) {
  for (int64_t b = 0; b < n_bins; ++b) {
    int32_t& lane = sums[(b + 1) * lanes - 1];
    const uint32_t both = static_cast<uint32_t>(lane), rows = (both + kCountBias) / kCountUnit;
    const int32_t sum = rest[b] + static_cast<int32_t>(both - rows * kCountUnit);
    lane = last ? sum : 0;
    rest[b] = last ? 0 : sum;
    counts[b] += rows;
  }
}

// VALUES: number of channels before the count. BY_ID: words are loaded by row id, while sums wait
// for their stores.
template <int VALUES, bool BY_ID, int LOG2_STRIDE>
void build_packed_width(const uint64_t* words, const uint32_t* ids, const int16_t* channels,
                        int64_t n, int n_features, const PackedSumFormat& format,
                        uint64_t* packed) {
  uint64_t shift[3];
  for (int j = 1; j < VALUES; ++j) shift[j] = format.shift[j];
  const uint64_t one = uint64_t{1} << format.shift[VALUES];
  specialise_slot_count<LOG2_STRIDE>(n_features, [&](int n_slots) __attribute__((always_inline)) {
    for (int64_t i = 0; i < n; ++i) {
      if (BY_ID && i + kRowsAhead < n) prefetch(words + ids[i + kRowsAhead]);
      const uint64_t word = words[BY_ID ? ids[i] : i];
      const int16_t* c = channels + 4 * i;
      uint64_t value = static_cast<uint64_t>(int64_t{c[0]}) + one;
      for (int j = 1; j < VALUES; ++j) value += static_cast<uint64_t>(int64_t{c[j]}) << shift[j];
      visit_slots<LOG2_STRIDE, 3>(word, n_slots, [&](size_t offset) __attribute__((always_inline)) {
        packed[offset / sizeof(uint64_t)] += value;
      });
    }
  });
}

template <int VALUES, bool BY_ID>
void build_packed_stride(const uint64_t* words, const uint32_t* ids, const int16_t* channels,
                         int64_t n, int n_features, int log2_stride, const PackedSumFormat& format,
                         uint64_t* packed) {
  const auto build = log2_stride == 2   ? build_packed_width<VALUES, BY_ID, 2>
                     : log2_stride == 4 ? build_packed_width<VALUES, BY_ID, 4>
                     : log2_stride == 6 ? build_packed_width<VALUES, BY_ID, 6>
                                        : build_packed_width<VALUES, BY_ID, 8>;
  build(words, ids, channels, n, n_features, format, packed);
}

template <int VALUES>
void build_packed_values(const uint64_t* words, const uint32_t* ids, const int16_t* channels,
                         int64_t n, int n_features, int log2_stride, const PackedSumFormat& format,
                         uint64_t* packed) {
  const auto build =
      ids == nullptr ? build_packed_stride<VALUES, false> : build_packed_stride<VALUES, true>;
  build(words, ids, channels, n, n_features, log2_stride, format, packed);
}

void build_packed(const uint64_t* words, const uint32_t* ids, const int16_t* channels, int64_t n,
                  int n_features, int log2_stride, const PackedSumFormat& format,
                  uint64_t* packed) {
  const auto build = format.n_values == 1   ? build_packed_values<1>
                     : format.n_values == 2 ? build_packed_values<2>
                                            : build_packed_values<3>;
  build(words, ids, channels, n, n_features, log2_stride, format, packed);
}

void unpack_sums(uint64_t* packed, int64_t n_bins, const PackedSumFormat& format, int32_t* sums) {
  const auto shift = load<u64x4>(format.shift), mask = load<u64x4>(format.mask);
  const auto bias = load<u64x4>(format.bias);
  for (int64_t b = 0; b < n_bins; ++b) {
    const u64x4 number = (packed[b] + format.total_bias) - u64x4{};
    const u64x4 digits = ((number >> shift) & mask) - bias;
    store(sums + 4 * b, load<i32x4>(sums + 4 * b) + __builtin_convertvector(digits, i32x4));
    packed[b] = 0;
  }
}

void subtract(int32_t* a, const int32_t* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) a[i] -= b[i];
}

void add(int32_t* a, const int32_t* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) a[i] += b[i];
}

void gather(const int16_t* channels, const uint32_t* ids, int64_t n, int lanes, int16_t* out) {
  if (lanes == 4) return gather_by_id<i16x4>(channels, ids, n, out);
  if (lanes == 8) return gather_by_id<i16x8>(channels, ids, n, out);
  if (lanes == 16) return gather_by_id<i16x16>(channels, ids, n, out);
  for (int64_t i = 0; i < n; ++i) {
    const int16_t* from = channels + static_cast<size_t>(ids[i]) * lanes;
    if (i + 8 < n)
      for (int j = 0; j < lanes; j += 32)
        __builtin_prefetch(channels + static_cast<size_t>(ids[i + 8]) * lanes + j);
    for (int j = 0; j < lanes; j += 16) store(out + i * lanes + j, load<i16x16>(from + j));
  }
}

// Z vectors of Row's width.
template <class Row, class Sum, int Z = 1>
void sum_lanes(const int16_t* channels, int64_t n, int lanes, int32_t* out) {
  constexpr int kWidth = sizeof(Row) / sizeof(int16_t);
  Sum total[Z];
  for (int z = 0; z < Z; ++z) total[z] = load<Sum>(out + z * kWidth);
  for (int64_t i = 0; i < n; ++i)
    for (int z = 0; z < Z; ++z)
      total[z] += convert<Sum>(load<Row>(channels + i * lanes + z * kWidth));
  for (int z = 0; z < Z; ++z) store(out + z * kWidth, total[z]);
}

void sum(const int16_t* channels, int64_t n, int lanes, int32_t* out) {
  if (lanes == 4) return sum_lanes<i16x4, i32x4>(channels, n, lanes, out);
  if (lanes == 8) return sum_lanes<i16x8, i32x8>(channels, n, lanes, out);
  int j = 0;
  for (; j + 64 <= lanes; j += 64) sum_lanes<i16x16, i32x16, 4>(channels + j, n, lanes, out + j);
  for (; j < lanes; j += 16) sum_lanes<i16x16, i32x16>(channels + j, n, lanes, out + j);
}

void mark_touched(const uint64_t* words, int64_t n, int n_features, uint64_t* touched) {
  for (int64_t i = 0; i < n; ++i)
    for (int f = 0; f < n_features; ++f) {
      const uint32_t code = (words[i] >> (8 * f)) & 255;
      touched[f * 4 + (code >> 6)] |= uint64_t{1} << (code & 63);
    }
}

// Z vectors of Row's width, of rows with `lanes` lanes. COUNTS: the first pass over the entries,
// which counts.
template <class Row, class Sum, int Z, bool COUNTS>
void build_sparse_width(const SparseEntry* entries, int64_t n, const int16_t* channels, int lanes,
                        int missing, int32_t* sums, uint32_t* counts, int32_t* all,
                        uint64_t* touched) {
  constexpr int kWidth = sizeof(Row) / sizeof(int16_t), kAhead = 12;
  Sum total[Z], run[Z];
  for (int z = 0; z < Z; ++z) total[z] = load<Sum>(all + z * kWidth);
  for (int64_t i = 0; i < n;) {
    const uint32_t key = entries[i].key;
    const int64_t first = i;
    for (int z = 0; z < Z; ++z) run[z] = Sum{};
    do {
      if (i + kAhead < n) {
        const int16_t* ahead = channels + static_cast<size_t>(entries[i + kAhead].row) * lanes;
        for (int z = 0; z < Z * kWidth; z += 32) __builtin_prefetch(ahead + z);
      }
      const int16_t* from = channels + static_cast<size_t>(entries[i].row) * lanes;
      for (int z = 0; z < Z; ++z) run[z] += convert<Sum>(load<Row>(from + z * kWidth));
    } while (++i < n && entries[i].key == key);
    const int code = static_cast<int>(key & 255), bin = code == kMissingCode ? missing : code;
    int32_t* to = sums + static_cast<size_t>(bin) * lanes;
    for (int z = 0; z < Z; ++z) {
      store(to + z * kWidth, run[z]);
      total[z] += run[z];
    }
    if (!COUNTS) continue;
    counts[bin] += static_cast<uint32_t>(i - first);
    touched[bin >> 6] |= uint64_t{1} << (bin & 63);
  }
  for (int z = 0; z < Z; ++z) store(all + z * kWidth, total[z]);
}

void build_sparse(const SparseEntry* entries, int64_t n, const int16_t* channels, int lanes,
                  int missing, int32_t* sums, uint32_t* counts, int32_t* all, uint64_t* touched) {
  const auto pass = [&](auto build, int at) {
    build(entries, n, channels + at, lanes, missing, sums + at, counts, all + at, touched);
  };
  if (lanes == 4) return pass(build_sparse_width<i16x4, i32x4, 1, true>, 0);
  if (lanes == 8) return pass(build_sparse_width<i16x8, i32x8, 1, true>, 0);
  if (lanes == 16) return pass(build_sparse_width<i16x16, i32x16, 1, true>, 0);
  if (lanes == 32) return pass(build_sparse_width<i16x16, i32x16, 2, true>, 0);
  if (lanes == 48) return pass(build_sparse_width<i16x16, i32x16, 3, true>, 0);
  pass(build_sparse_width<i16x16, i32x16, 4, true>, 0);
  int at = 64;
  for (; lanes - at >= 64; at += 64) pass(build_sparse_width<i16x16, i32x16, 4, false>, at);
  for (; at < lanes; at += 16) pass(build_sparse_width<i16x16, i32x16, 1, false>, at);
}

template <class Row, class Sum>
void sum_sparse_lanes(const SparseEntry* entries, int64_t n, const int16_t* channels, int lanes,
                      int32_t* out) {
  constexpr int64_t kAhead = 12;
  const auto row = [&](int64_t i) __attribute__((always_inline)) {
    return channels + static_cast<size_t>(entries[i].row) * lanes;
  };
  Sum even = load<Sum>(out), odd = {};
  int64_t i = 0;
  for (; i + kAhead + 1 < n; i += 2) {
    __builtin_prefetch(row(i + kAhead));
    __builtin_prefetch(row(i + kAhead + 1));
    even += convert<Sum>(load<Row>(row(i)));
    odd += convert<Sum>(load<Row>(row(i + 1)));
  }
  for (; i < n; ++i) even += convert<Sum>(load<Row>(row(i)));
  store(out, even + odd);
}

void sum_sparse(const SparseEntry* entries, int64_t n, const int16_t* channels, int lanes,
                int32_t* out) {
  if (lanes == 4) return sum_sparse_lanes<i16x4, i32x4>(entries, n, channels, lanes, out);
  if (lanes == 8) return sum_sparse_lanes<i16x8, i32x8>(entries, n, channels, lanes, out);
  for (int j = 0; j < lanes; j += 16)
    sum_sparse_lanes<i16x16, i32x16>(entries, n, channels + j, lanes, out + j);
}

template <class Row>
int32_t* pack_filled_vectors(const int32_t* sums, const uint32_t* counts, int64_t n_bins, int lanes,
                             int n_used, uint32_t* filled, int32_t* out) {
  constexpr int kWidth = sizeof(Row) / sizeof(int32_t);
  const int32_t* end = out + n_bins * (n_used + (counts != nullptr));
  for (int64_t first = 0; first < n_bins; first += 32) {
    uint32_t bits = 0;
    for (int64_t bin = first; bin < first + 32 && bin < n_bins; ++bin) {
      const int32_t* at = sums + bin * lanes;
      const auto count = counts != nullptr ? static_cast<int32_t>(counts[bin]) : at[n_used - 1];
      if (count == 0) continue;
      bits |= uint32_t{1} << (bin - first);
      if (out + lanes <= end) {  // the lanes after n_used are overwritten by the next bin
        for (int j = 0; j < n_used; j += kWidth) store(out + j, load<Row>(at + j));
      } else {
        std::memcpy(out, at, sizeof(int32_t) * static_cast<size_t>(n_used));
      }
      out += n_used;
      if (counts != nullptr) *out++ = count;
    }
    filled[first / 32] = bits;
  }
  return out;
}

int32_t* pack_filled(const int32_t* sums, const uint32_t* counts, int64_t n_bins, int lanes,
                     int n_used, uint32_t* filled, int32_t* out) {
  const auto pack = lanes == 4   ? pack_filled_vectors<i32x4>
                    : lanes == 8 ? pack_filled_vectors<i32x8>
                                 : pack_filled_vectors<i32x16>;
  return pack(sums, counts, n_bins, lanes, n_used, filled, out);
}

template <class Row>
void add_filled_vectors(const int32_t* packed, const int32_t* end, const uint32_t* filled,
                        int64_t n_bins, int lanes, int n_used, int32_t* sums, uint32_t* counts) {
  constexpr int kWidth = sizeof(Row) / sizeof(int32_t);
  const int n_whole = n_used / kWidth * kWidth;
  int32_t mask[kWidth] = {};  // of the lanes after the whole vectors
  for (int j = 0; j < n_used - n_whole; ++j) mask[j] = -1;
  for (int64_t first = 0; first < n_bins; first += 32) {
    for (uint32_t bits = filled[first / 32]; bits != 0; bits &= bits - 1) {
      const int64_t bin = first + __builtin_ctz(bits);
      int32_t* at = sums + bin * lanes;
      for (int j = 0; j < n_whole; j += kWidth)
        store(at + j, load<Row>(at + j) + load<Row>(packed + j));
      if (packed + lanes <= end && n_whole < n_used) {
        const Row rest = load<Row>(packed + n_whole) & load<Row>(mask);
        store(at + n_whole, load<Row>(at + n_whole) + rest);
      } else {
        for (int j = n_whole; j < n_used; ++j) at[j] += packed[j];
      }
      packed += n_used;
      if (counts != nullptr) counts[bin] += static_cast<uint32_t>(*packed++);
    }
  }
}

void add_filled(const int32_t* packed, const int32_t* end, const uint32_t* filled, int64_t n_bins,
                int lanes, int n_used, int32_t* sums, uint32_t* counts) {
  const auto add = lanes == 4   ? add_filled_vectors<i32x4>
                   : lanes == 8 ? add_filled_vectors<i32x8>
                                : add_filled_vectors<i32x16>;
  add(packed, end, filled, n_bins, lanes, n_used, sums, counts);
}

// Sum vectors of Row's width, which stay in a register.
template <class Row>
void add_vectors(const int32_t* sums, int lanes, int n_bins, int32_t* out) {
  constexpr int kWidth = sizeof(Row) / sizeof(int32_t);
  for (int j = 0; j < lanes; j += kWidth) {
    Row total = load<Row>(out + j);
    for (int b = 0; b < n_bins; ++b) total += load<Row>(sums + static_cast<int64_t>(b) * lanes + j);
    store(out + j, total);
  }
}

void add_bins(const int32_t* sums, int lanes, int n_bins, int32_t* out) {
  if (lanes % 16 == 0) return add_vectors<i32x16>(sums, lanes, n_bins, out);
  if (lanes == 8) return add_vectors<i32x8>(sums, lanes, n_bins, out);
  add_vectors<i32x4>(sums, lanes, n_bins, out);
}

}  // namespace

const HistogramKernels histogram_kernels = {
    build,      unpack_counts, build_packed, unpack_sums,  subtract,     add,       pack_filled,
    add_filled, gather,        sum,          mark_touched, build_sparse, sum_sparse};

const SumKernels sum_kernels = {add_bins};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
