// Quantisation of derivatives to int16 (channels.h).
#include "../channels.h"

#include "lanes.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

POLYLEAF_INLINE int64_t row_of(const Sample& sample, int64_t i) { return sample.rows ? sample.rows[i] : i; }
POLYLEAF_INLINE float multiplier_of(const Sample& sample, int64_t row) {
  return sample.multiplier ? sample.multiplier[row] : 1.0f;
}
POLYLEAF_INLINE float absolute(float x) { return __builtin_fabsf(x); }

// Round half to even for |x| < 2^22, the same on every instruction set.
POLYLEAF_INLINE float round_even(float x) {
  const float magic = 12582912.0f;  // 1.5 * 2^23
  return (x + magic) - magic;
}

void largest_of(const float* values, int n_columns, const Sample& sample, int64_t begin, int64_t end,
                float* largest) {
  if (n_columns == 1 && !sample.rows && !sample.multiplier) {
    float lanes[64] = {};
    int64_t i = begin;
    for (; i + 64 <= end; i += 64)
      for (int j = 0; j < 64; ++j) {
        const float a = absolute(values[i + j]);
        lanes[j] = a > lanes[j] || a != a ? a : lanes[j];
      }
    for (; i < end; ++i) {
      const float a = absolute(values[i]);
      lanes[0] = a > lanes[0] || a != a ? a : lanes[0];
    }
    for (int j = 0; j < 64; ++j) largest[0] = lanes[j] > largest[0] || lanes[j] != lanes[j] ? lanes[j] : largest[0];
    return;
  }
  for (int64_t i = begin; i < end; ++i) {
    const int64_t row = row_of(sample, i);
    const float* v = values + row * n_columns;
    const float m = multiplier_of(sample, row);
    for (int j = 0; j < n_columns; ++j) {
      const float a = absolute(v[j] * m);
      largest[j] = a > largest[j] || a != a ? a : largest[j];  // a NaN sticks, so that it is noticed
    }
  }
}

// One column into interleaved lanes, whole data: the single-output case.
void quantise_column(const float* values, int64_t begin, int64_t end, float inverse, int16_t* channels, int lanes,
                     int64_t* total) {
  constexpr int kRun = 256;
  int32_t q[kRun];
  for (int64_t i = begin; i < end; i += kRun) {
    const int m = static_cast<int>(end - i < kRun ? end - i : kRun);
    for (int j = 0; j < m; ++j) q[j] = static_cast<int32_t>(round_even(values[i + j] * inverse));
    int32_t sum = 0;
    for (int j = 0; j < m; ++j) sum += q[j] < 0 ? -q[j] : q[j];
    *total += sum;
    for (int j = 0; j < m; ++j) channels[(i + j) * lanes] = static_cast<int16_t>(q[j]);
  }
}

void quantise(const float* values, int n_columns, const Sample& sample, int64_t begin, int64_t end,
              const float* inverse, int16_t* channels, int lanes, int offset, int64_t* total) {
  if (n_columns == 1 && !sample.rows && !sample.multiplier) {
    quantise_column(values, begin, end, inverse[0], channels + offset, lanes, total);
    return;
  }
  // Absolute values are summed in int32 over at most 2048 rows of at most 2^15 each, then in int64.
  constexpr int kRun = 2048;
  constexpr int kColumns = 64;
  for (int c = 0; c < n_columns; c += kColumns) {
    const int width = n_columns - c < kColumns ? n_columns - c : kColumns;
    for (int64_t start = begin; start < end; start += kRun) {
      const int64_t stop = start + kRun < end ? start + kRun : end;
      int32_t sums[kColumns] = {};
      for (int64_t i = start; i < stop; ++i) {
        const int64_t row = row_of(sample, i);
        const float m = multiplier_of(sample, row);
        const float* v = values + row * n_columns + c;
        int16_t* out = channels + row * lanes + offset + c;
        for (int j = 0; j < width; ++j) {
          const int32_t q = static_cast<int32_t>(round_even(v[j] * m * inverse[c + j]));
          sums[j] += q < 0 ? -q : q;
          out[j] = static_cast<int16_t>(q);
        }
      }
      for (int j = 0; j < width; ++j) total[c + j] += sums[j];
    }
  }
}

}  // namespace

const ChannelKernels channel_kernels = {largest_of, quantise};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
