// Quantisation of gradients and Hessians to int16.
#include "base/kernels/lanes.h"
#include "quantised_gradients/quantised_gradients.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

// Round half to even for |x| < 2^22, one float or a vector of them, the same on every instruction
// set.
template <class Floats>
POLYLEAF_INLINE Floats round_even(const Floats& x) {
  const float magic = 12582912.0f;  // 1.5 * 2^23
  return (x + magic) - magic;
}

// Magnitudes are compared as integers: for non-negative floats the order is the same, and a NaN is
// larger than infinity, so that it is noticed.
POLYLEAF_INLINE int32_t magnitude(float x) {
  int32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits & 0x7fffffff;
}

POLYLEAF_INLINE i32x16 magnitudes(const f32x16& x) {
  i32x16 bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits & 0x7fffffff;
}

// The last block of sixteen columns may be wider than the rest of a row. Reading into the next rows
// is harmless (those values are multiplied by zero or ignored), but not past the end of all rows.
POLYLEAF_INLINE bool can_read_sixteen(int64_t row, int column, int n_columns,
                                      const RowSample& sample) {
  return row * n_columns + column + 16 <= sample.n_all * n_columns;
}

// Up to 16 Z columns: the maxima stay in registers.
template <int Z>
void find_max_few(const float* values, int n_columns, const RowSample& sample, int64_t begin,
                  int64_t end, float* largest) {
  i32x16 best[Z] = {};
  float end_of_row[16 * Z] = {};
  for (int64_t i = begin; i < end; ++i) {
    const int64_t row = sample.row(i);
    const float* v = values + row * n_columns;
    const float m = sample.factor(row);
    if (!can_read_sixteen(row, 16 * (Z - 1), n_columns, sample)) {
      std::memcpy(end_of_row, v, sizeof(float) * n_columns);
      v = end_of_row;
    }
    for (int z = 0; z < Z; ++z) best[z] = max(magnitudes(load<f32x16>(v + 16 * z) * m), best[z]);
  }
  int32_t found_in[16 * Z];
  for (int z = 0; z < Z; ++z) store(found_in + 16 * z, best[z]);
  for (int j = 0; j < n_columns; ++j) {
    const int32_t before = magnitude(largest[j]), found = found_in[j];
    const int32_t now = found > before ? found : before;
    std::memcpy(&largest[j], &now, sizeof(now));
  }
}

// More columns: rows in memory order; the maxima of a run of columns stay in the first-level cache.
void find_max_many(const float* values, int n_columns, const RowSample& sample, int64_t begin,
                   int64_t end, float* largest) {
  constexpr int kRun = 1024;
  int32_t best[kRun];
  for (int c = 0; c < n_columns; c += kRun) {
    const int width = n_columns - c < kRun ? n_columns - c : kRun;
    std::memcpy(best, largest + c, sizeof(int32_t) * width);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = sample.row(i);
      const float* v = values + row * n_columns + c;
      const float m = sample.factor(row);
      for (int j = 0; j < width; ++j) {
        const int32_t bits = magnitude(v[j] * m);
        best[j] = bits > best[j] ? bits : best[j];
      }
    }
    std::memcpy(largest + c, best, sizeof(int32_t) * width);
  }
}

void find_max(const float* values, int n_columns, const RowSample& sample, int64_t begin,
              int64_t end, float* largest) {
  if (n_columns == 1 && !sample.rows && !sample.multiplier) {
    int32_t best = magnitude(largest[0]);
    for (int64_t i = begin; i < end; ++i)
      best = magnitude(values[i]) > best ? magnitude(values[i]) : best;
    std::memcpy(largest, &best, sizeof(best));
  } else if (n_columns <= 16) {
    find_max_few<1>(values, n_columns, sample, begin, end, largest);
  } else if (n_columns <= 32) {
    find_max_few<2>(values, n_columns, sample, begin, end, largest);
  } else if (n_columns <= 64) {
    find_max_few<4>(values, n_columns, sample, begin, end, largest);
  } else {
    find_max_many(values, n_columns, sample, begin, end, largest);
  }
}

// One column into interleaved lanes, all rows: the single-output case. A row of four lanes is
// written as one number, with the count.
void quantise_column(const float* values, int64_t begin, int64_t end, float inverse,
                     int16_t* channels, int lanes, int offset, int count_lane, int64_t* size,
                     int64_t* total) {
  constexpr int kRun = 256;
  const int shift = 16 * (offset & 3);
  const uint64_t count = count_lane < 0 || lanes != 4 ? 0 : uint64_t{1} << (16 * count_lane);
  const uint64_t others = ~(uint64_t{0xffff} << shift | count);
  int32_t q[kRun];
  for (int64_t i = begin; i < end; i += kRun) {
    const int m = static_cast<int>(end - i < kRun ? end - i : kRun);
    for (int j = 0; j < m; ++j) q[j] = static_cast<int32_t>(round_even(values[i + j] * inverse));
    int32_t magnitudes = 0, sum = 0;
    for (int j = 0; j < m; ++j) {
      magnitudes += q[j] < 0 ? -q[j] : q[j];
      sum += q[j];
    }
    *size += magnitudes;
    *total += sum;
    if (lanes != 4) {
      for (int j = 0; j < m; ++j) channels[(i + j) * lanes + offset] = static_cast<int16_t>(q[j]);
      continue;
    }
    for (int j = 0; j < m; ++j) {
      int16_t* const row = channels + (i + j) * 4;
      const uint64_t own = uint64_t{static_cast<uint16_t>(q[j])} << shift;
      store(row, (load<uint64_t>(row) & others) | own | count);
    }
  }
}

// 16 Z columns at once; the lanes after the last column get zeros.
template <int Z>
void quantise_wide(const float* values, int n_columns, int c, const RowSample& sample,
                   int64_t begin, int64_t end, const float* inverse, int16_t* channels, int lanes,
                   int offset, int32_t* sizes, int32_t* totals) {
  const int width = n_columns - c < 16 * Z ? n_columns - c : 16 * Z;
  f32x16 scale[Z];
  for (int z = 0; z < Z; ++z) scale[z] = load<f32x16>(inverse + c + 16 * z);
  i32x16 size[Z] = {}, total[Z] = {};
  float end_of_row[16 * Z] = {};
  for (int64_t i = begin; i < end; ++i) {
    const int64_t row = sample.row(i);
    const float* v = values + row * n_columns + c;
    if (!can_read_sixteen(row, c + 16 * (Z - 1), n_columns, sample)) {
      std::memcpy(end_of_row, v, sizeof(float) * width);
      v = end_of_row;
    }
    const float m = sample.factor(row);
    for (int z = 0; z < Z; ++z) {
      const i32x16 q = convert<i32x16>(round_even(load<f32x16>(v + 16 * z) * m * scale[z]));
      size[z] += max(q, -q);
      total[z] += q;
      store(channels + row * lanes + offset + c + 16 * z, convert<i16x16>(q));
    }
  }
  for (int z = 0; z < Z; ++z) {
    store(sizes + 16 * z, size[z]);
    store(totals + 16 * z, total[z]);
  }
}

// Rows of one vector of which the columns fill a part: the other lanes keep their values.
template <class Floats, class Integers, class Row>
void quantise_narrow(const float* values, int n_columns, const RowSample& sample, int64_t begin,
                     int64_t end, const float* inverse, int16_t* channels, int offset,
                     int32_t* sizes, int32_t* totals) {
  constexpr int kWidth = sizeof(Row) / sizeof(int16_t);
  Floats scale = {};
  Row others = ~Row{};
  for (int j = 0; j < n_columns; ++j) {
    scale[offset + j] = inverse[j];
    others[offset + j] = 0;
  }
  Integers size = {}, total = {};
  for (int64_t i = begin; i < end; ++i) {
    const int64_t row = sample.row(i), first = row * n_columns - offset;
    const float* v = values + first;
    float padded[kWidth] = {};
    if (first < 0 || first + kWidth > sample.n_all * n_columns) {  // not outside of all rows
      std::memcpy(padded + offset, values + row * n_columns, sizeof(float) * n_columns);
      v = padded;
    }
    const Integers q = convert<Integers>(round_even(load<Floats>(v) * sample.factor(row) * scale));
    size += max(q, -q);
    total += q;
    int16_t* to = channels + row * kWidth;
    store(to, (load<Row>(to) & others) | (convert<Row>(q) & ~others));
  }
  for (int j = 0; j < n_columns; ++j) {
    sizes[j] = size[offset + j];
    totals[j] = total[offset + j];
  }
}

void quantise_few(const float* values, int n_columns, int c, int width, const RowSample& sample,
                  int64_t begin, int64_t end, const float* inverse, int16_t* channels, int lanes,
                  int offset, int32_t* sizes, int32_t* totals) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t row = sample.row(i);
    const float m = sample.factor(row);
    for (int j = 0; j < width; ++j) {
      const int32_t q =
          static_cast<int32_t>(round_even(values[row * n_columns + c + j] * m * inverse[c + j]));
      sizes[j] += q < 0 ? -q : q;
      totals[j] += q;
      channels[row * lanes + offset + c + j] = static_cast<int16_t>(q);
    }
  }
}

void quantise(const float* values, int n_columns, const RowSample& sample, int64_t begin,
              int64_t end, const float* inverse, int16_t* channels, int lanes, int offset,
              int count_lane, int64_t* size, int64_t* total) {
  if (n_columns == 1 && !sample.rows && !sample.multiplier) {
    quantise_column(values, begin, end, inverse[0], channels, lanes, offset, count_lane, size,
                    total);
    if (lanes == 4) return;
  } else {
    // Sums are int32 over at most 2048 rows of at most 2^15 each, then int64. Wide rows go in
    // shorter runs, which stay in the second-level cache while all columns are processed.
    const int64_t run = n_columns <= 64 ? 2048 : n_columns <= 512 ? 256 : 64;
    for (int64_t start = begin; start < end; start += run)
      for (int c = 0, width; c < n_columns; c += width) {
        const int64_t stop = start + run < end ? start + run : end;
        const int rest = (n_columns - c + 15) / 16, room = (lanes - offset - c) / 16;
        const int vectors = rest < room ? rest : room;
        const int at_once = 16 * (vectors < 1 ? 1 : vectors < 4 ? vectors : 4);
        width = n_columns - c < at_once ? n_columns - c : at_once;
        int32_t sizes[64] = {}, totals[64] = {};
        const auto quantise_vectors = vectors == 1   ? quantise_wide<1>
                                      : vectors == 2 ? quantise_wide<2>
                                      : vectors == 3 ? quantise_wide<3>
                                                     : quantise_wide<4>;
        if (vectors > 0)
          quantise_vectors(values, n_columns, c, sample, start, stop, inverse, channels, lanes,
                           offset, sizes, totals);
        else if (lanes == 4)
          quantise_narrow<f32x4, i32x4, i16x4>(values, n_columns, sample, start, stop, inverse,
                                               channels, offset, sizes, totals);
#ifdef __AVX2__
        else if (lanes == 8)
          quantise_narrow<f32x8, i32x8, i16x8>(values, n_columns, sample, start, stop, inverse,
                                               channels, offset, sizes, totals);
#endif
        else
          quantise_few(values, n_columns, c, width, sample, start, stop, inverse, channels, lanes,
                       offset, sizes, totals);
        for (int j = 0; j < width; ++j) {
          size[c + j] += sizes[j];
          total[c + j] += totals[j];
        }
      }
  }
  if (count_lane >= 0)
    for (int64_t i = begin; i < end; ++i) channels[sample.row(i) * lanes + count_lane] = 1;
}

}  // namespace

const QuantiseKernels quantise_kernels = {find_max, quantise};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
