// Kernels of products of derivatives with few columns, in one order of additions (sketch.h).
#include <cstring>

#include "base/fixed_point.h"
#include "base/kernels/lanes.h"
#include "base/rng.h"
#include "sketch/sketch.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

// Vectors are as wide as the registers: a lane is one column of a sketch, so the width changes no
// sum. (16 lanes in four registers, as in lanes.h, would leave none for the rows.)
#if defined(__AVX512F__)
typedef float Vector __attribute__((vector_size(64)));
typedef double Doubles __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
#elif defined(__AVX2__)
typedef float Vector __attribute__((vector_size(32)));
typedef double Doubles __attribute__((vector_size(32)));
typedef int32_t Ints __attribute__((vector_size(32)));
#else
typedef float Vector __attribute__((vector_size(16)));
typedef double Doubles __attribute__((vector_size(16)));
typedef int32_t Ints __attribute__((vector_size(16)));
#endif
constexpr int kWidth = sizeof(Vector) / sizeof(float);

POLYLEAF_INLINE void write(Vector v, float* out, int width) {
  if (width >= kWidth)
    store(out, v);
  else if (width > 0)
    std::memcpy(out, &v, sizeof(float) * width);
}

template <int kN>
POLYLEAF_INLINE void project_rows(const float* values, int32_t n_columns, const float* matrix,
                                  int lanes, float scale, float* out, int width) {
  for (int c = 0; c < width; c += kWidth) {
    Vector sums[kN] = {};
    for (int32_t k = 0; k < n_columns; ++k) {
      const Vector m = load<Vector>(matrix + static_cast<int64_t>(k) * lanes + c);
      for (int r = 0; r < kN; ++r) sums[r] += values[static_cast<int64_t>(r) * n_columns + k] * m;
    }
    for (int r = 0; r < kN; ++r)
      write(sums[r] * scale, out + static_cast<int64_t>(r) * width + c, width - c);
  }
}

void project(const float* values, int64_t n, int32_t n_columns, const float* matrix, int lanes,
             float scale, float* out, int width) {
  int64_t i = 0;
  for (; i + kProductRows <= n; i += kProductRows)
    project_rows<kProductRows>(values + i * n_columns, n_columns, matrix, lanes, scale,
                               out + i * width, width);
  for (; i < n; ++i)
    project_rows<1>(values + i * n_columns, n_columns, matrix, lanes, scale, out + i * width,
                    width);
}

POLYLEAF_INLINE void round_rows(const float* values, int n, int32_t n_columns, const double* unit,
                                double* rounded) {
  for (int i = 0; i < n; ++i, values += n_columns, rounded += n_columns)
    for (int32_t k = 0; k < n_columns; ++k)
      rounded[k] = to_integer(static_cast<double>(values[k]) * unit[k]);
}

template <int kN>
POLYLEAF_INLINE void accumulate_rows(const double* values, int32_t n_columns, const double* factors,
                                     int lanes, double* sums) {
  constexpr int kDoubles = sizeof(Doubles) / sizeof(double);
  for (int c = 0; c < lanes; c += kDoubles) {
    Doubles f[kN];
    for (int r = 0; r < kN; ++r) f[r] = load<Doubles>(factors + r * lanes + c);
    for (int32_t k = 0; k < n_columns; ++k) {
      double* at = sums + static_cast<int64_t>(k) * lanes + c;
      Doubles sum = load<Doubles>(at);
      for (int r = 0; r < kN; ++r) sum += values[static_cast<int64_t>(r) * n_columns + k] * f[r];
      store(at, sum);
    }
  }
}

void accumulate(const float* values, int64_t n, int32_t n_columns, const double* unit,
                const float* factors, int lanes, const double* factor_unit, double* space,
                double* sums) {
  double* rounded_factors = space + static_cast<int64_t>(kProductRows) * n_columns;
  for (int64_t i = 0; i < n; i += kProductRows) {
    const int rows = static_cast<int>(n - i < kProductRows ? n - i : kProductRows);
    round_rows(values + i * n_columns, rows, n_columns, unit, space);
    round_rows(factors + i * lanes, rows, lanes, factor_unit, rounded_factors);
    if (rows == kProductRows) {
      accumulate_rows<kProductRows>(space, n_columns, rounded_factors, lanes, sums);
      continue;
    }
    for (int r = 0; r < rows; ++r)
      accumulate_rows<1>(space + static_cast<int64_t>(r) * n_columns, n_columns,
                         rounded_factors + r * lanes, lanes, sums);
  }
}

// Process 16 rows at a time, transposed in 16 x 16 blocks, so that a bucket is one vector.
void count(const float* values, int64_t n, int32_t n_columns, const int32_t* bucket,
           const float* sign, int32_t d, float scale, float* space, float* out) {
  alignas(64) float square[kLanes][kLanes];
  for (int64_t i = 0; i < n; i += kLanes) {
    const int rows = static_cast<int>(n - i < kLanes ? n - i : kLanes);
    std::memset(space, 0, sizeof(float) * kLanes * d);
    for (int32_t k = 0; k < n_columns; k += kLanes) {
      const int columns = n_columns - k < kLanes ? n_columns - k : kLanes;
      for (int r = 0; r < kLanes; ++r) {  // lanes after the last row repeat it and are not written
        const float* v = values + (i + (r < rows ? r : rows - 1)) * n_columns + k;
        for (int j = 0; j < columns; ++j) square[j][r] = v[j];
      }
      for (int j = 0; j < columns; ++j) {
        float* at = space + static_cast<int64_t>(bucket[k + j]) * kLanes;
        store(at, load<f32x16>(at) + load<f32x16>(square[j]) * sign[k + j]);
      }
    }
    for (int r = 0; r < rows; ++r)
      for (int32_t b = 0; b < d; ++b)
        out[(i + r) * d + b] = space[static_cast<int64_t>(b) * kLanes + r] * scale;
  }
}

// One row's buckets stay in kN registers: adding 0 to the other buckets costs less than a
// store-to-load round trip.
template <int kN>
POLYLEAF_INLINE void count_row(const int32_t* bucket, const float* signed_values, int64_t n,
                               Vector* sums) {
  Ints index[kN];
  for (int b = 0; b < kN; ++b)
    for (int j = 0; j < kWidth; ++j) index[b][j] = b * kWidth + j;
  for (int64_t i = 0; i < n; ++i)
    for (int b = 0; b < kN; ++b) {
      const Vector v = signed_values[i] - Vector{};
      sums[b] += index[b] == bucket[i] ? v : Vector{};
    }
}

constexpr int kRun = 256;  // entries hashed before they are added

template <int kN>
void count_rows(const CsrRows& rows, uint64_t seed, int32_t d, float scale, float* out) {
  int32_t bucket[kRun];
  float values[kRun];
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    Vector sums[kN] = {};
    for (int64_t start = rows.indptr[i]; start < rows.indptr[i + 1]; start += kRun) {
      const int64_t n = rows.indptr[i + 1] - start < kRun ? rows.indptr[i + 1] - start : kRun;
      for (int64_t j = 0; j < n; ++j) {
        const uint64_t z = hash(seed, static_cast<uint64_t>(rows.indices[start + j]), 0);
        bucket[j] = get_bucket(z, d);
        values[j] = rows.values[start + j] * get_sign(z);
      }
      count_row<kN>(bucket, values, n, sums);
    }
    for (int b = 0; b < kN; ++b) write(sums[b] * scale, out + i * d + b * kWidth, d - b * kWidth);
  }
}

// Any number of buckets, kept in memory.
void count_rows_many(const CsrRows& rows, uint64_t seed, int32_t d, float scale, float* out) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    float* row = out + i * d;
    for (int32_t j = 0; j < d; ++j) row[j] = 0.0f;
    for (int64_t at = rows.indptr[i]; at < rows.indptr[i + 1]; ++at) {
      const uint64_t z = hash(seed, static_cast<uint64_t>(rows.indices[at]), 0);
      row[get_bucket(z, d)] += rows.values[at] * get_sign(z);
    }
    for (int32_t j = 0; j < d; ++j) row[j] *= scale;
  }
}

void count_csr(const CsrRows& rows, uint64_t seed, int32_t d, float scale, float* out) {
  if (d <= kWidth)
    count_rows<1>(rows, seed, d, scale, out);
  else if (d <= 2 * kWidth)
    count_rows<2>(rows, seed, d, scale, out);
  else if (d <= 4 * kWidth)
    count_rows<4>(rows, seed, d, scale, out);
  else
    count_rows_many(rows, seed, d, scale, out);
}

void largest(const float* values, int64_t n, int32_t n_columns, uint32_t* found) {
  uint32_t* __restrict out = found;
  for (int64_t i = 0; i < n; ++i) {
    const float* __restrict v = values + i * n_columns;
    for (int32_t k = 0; k < n_columns; ++k) {
      uint32_t bits;
      std::memcpy(&bits, v + k, sizeof(bits));
      bits &= 0x7fffffffu;
      out[k] = bits > out[k] ? bits : out[k];
    }
  }
}

void energy(const float* values, int64_t n, int32_t n_columns, const double* unit, double* sums) {
  double* __restrict out = sums;
  const double* __restrict u = unit;
  for (int64_t i = 0; i < n; ++i) {
    const float* __restrict v = values + i * n_columns;
    for (int32_t k = 0; k < n_columns; ++k)
      out[k] += to_integer(static_cast<double>(v[k]) * static_cast<double>(v[k]) * u[k]);
  }
}

void row_means(const float* values, int64_t n, int32_t n_columns, float* out) {
  constexpr int kParts = kLanes / kWidth;
  const float share = static_cast<float>(1.0 / n_columns);
  for (int64_t i = 0; i < n; ++i) {
    const float* v = values + i * n_columns;
    Vector sums[kParts] = {};
    int32_t k = 0;
    for (; k + kLanes <= n_columns; k += kLanes)
      for (int p = 0; p < kParts; ++p) sums[p] += load<Vector>(v + k + p * kWidth);
    Vector rest[kParts] = {};
    std::memcpy(rest, v + k, sizeof(float) * (n_columns - k));
    for (int p = 0; p < kParts; ++p) sums[p] += rest[p];
    out[i] = fold(load<f32x16>(sums)) * share;
  }
}

}  // namespace

const SketchKernels sketch_kernels = {project, accumulate, count,    count_csr,
                                      largest, energy,     row_means};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
