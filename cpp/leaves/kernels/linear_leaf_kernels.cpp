// Kernels that sum over rows for linear leaves (linear.h).
#include "leaves/kernels/linear_leaf_kernels.h"

#include "base/kernels/lanes.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

POLYLEAF_INLINE void widen(float v, float* lower, float* upper) {
  *lower = v < *lower ? v : *lower;
  *upper = v > *upper ? v : *upper;
}

// Widen a range to some values, without NaN.
void widen_range(const float* values, int64_t n, float* lower, float* upper) {
  f32x16 lowest = broadcast(lower[0]), highest = broadcast(upper[0]);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const f32x16 v = load<f32x16>(values + i);
    lowest = select(v < lowest, v, lowest);
    highest = select(v > highest, v, highest);
  }
  for (int j = 0; j < 16; ++j) {
    *lower = lowest[j] < *lower ? lowest[j] : *lower;
    *upper = highest[j] > *upper ? highest[j] : *upper;
  }
  for (; i < n; ++i) widen(values[i], lower, upper);
}

void gather(const float* values, const uint32_t* ids, int64_t n, float* out, float* range) {
  for (int64_t i = 0; i < n; ++i) {
    if (i + kRowsAhead < n) prefetch(values + ids[i + kRowsAhead]);
    out[i] = values[ids[i]];
  }
  widen_range(out, n, range, range + 1);
}

void mean_sums(const float* x, const double* w, double unit, int64_t n, double* out) {
  f64x8 weight = {}, total = {};
  const auto add = [&](const float* x_at, const double* w_at) __attribute__((always_inline)) {
    const f64x8 value = to_double(x_at);
    const auto here = value == value;
    const f64x8 counted = select(here, load<f64x8>(w_at), f64x8{});
    weight += to_integer(counted);
    total += to_integer(select(here, counted * (value * unit), f64x8{}));
  };
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) add(x + i, w + i);
  if (i < n) {
    float last_x[8] = {};
    double last_w[8] = {};
    std::memcpy(last_x, x + i, sizeof(float) * (n - i));
    std::memcpy(last_w, w + i, sizeof(double) * (n - i));
    add(last_x, last_w);
  }
  out[0] = fold(weight);
  out[1] = fold(total);
}

void standardise(const float* x, int64_t n, double centre, double inverse_scale, double unit,
                 double* out) {
  for (int64_t i = 0; i < n; ++i) {
    const double z = ((static_cast<double>(x[i]) - centre) * inverse_scale) * unit;
    out[i] = x[i] == x[i] ? z : 0.0;
  }
}

double dot(const double* a, const double* b, int64_t n) {
  f64x8 sum = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) sum += to_integer(load<f64x8>(a + i) * load<f64x8>(b + i));
  double rest = 0;
  for (; i < n; ++i) rest += to_integer(a[i] * b[i]);
  return fold(sum) + rest;
}

// Compute columns [column, column + 8) of the outer product; the sums of P regressors stay in
// registers.
template <int P>
void outer_columns(const double* z, int64_t z_step, const float* values, const double* units,
                   int n_columns, int column, int width, const uint32_t* ids,
                   const RowSample& sample, int64_t n, double* out) {
  const f64x8 unit = load<f64x8>(units + column);
  f64x8 sums[P] = {};
  for (int64_t i = 0; i < n; ++i) {
    const float* v = values + static_cast<int64_t>(ids[i]) * n_columns + column;
    const float m = sample.factor(ids[i]);
    float row[8] = {};
    if (width == 8)
      store(row, load<f32x8>(v) * m);
    else
      for (int k = 0; k < width; ++k) row[k] = v[k] * m;
    const f64x8 wide = to_double(row) * unit;
    for (int j = 0; j < P; ++j) sums[j] += to_integer(z[j * z_step + i] * wide);
  }
  for (int j = 0; j < P; ++j)
    for (int k = 0; k < width; ++k) out[j * n_columns + column + k] = sums[j][k];
}

template <int P>
void outer_regressors(const double* z, int64_t z_step, const float* values, const double* units,
                      int n_columns, const uint32_t* ids, const RowSample& sample, int64_t n,
                      double* out) {
  for (int k = 0; k < n_columns; k += 8)
    outer_columns<P>(z, z_step, values, units, n_columns, k, n_columns - k < 8 ? n_columns - k : 8,
                     ids, sample, n, out);
}

void outer(const double* z, int64_t z_step, int p, const float* values, const double* units,
           int n_columns, const uint32_t* ids, const RowSample& sample, int64_t n, double* out) {
  const auto from = [&](auto* regressors, int j) {
    regressors(z + j * z_step, z_step, values, units, n_columns, ids, sample, n,
               out + j * n_columns);
  };
  int j = 0;
  for (; p - j >= 5; j += 5) from(outer_regressors<5>, j);
  if (p - j == 4) from(outer_regressors<4>, j);
  if (p - j == 3) from(outer_regressors<3>, j);
  if (p - j == 2) from(outer_regressors<2>, j);
  if (p - j == 1) from(outer_regressors<1>, j);
}

void evaluate_column(const LeafView& leaf, const float* x, int64_t step, int64_t n, float* scores) {
  // FLT_MAX: <cfloat> does not define the name on every macOS.
  const f32x16 constant = broadcast(leaf.values[0]), largest = broadcast(__FLT_MAX__);
  for (int64_t i = 0; i < n; i += 16) {
    f32x16 sum = constant;
    for (int64_t e = leaf.begin[0]; e < leaf.begin[1]; ++e) {
      const f32x16 value = load<f32x16>(x + leaf.index[e] * step + i);
      sum += select(value == value, value - leaf.centre[e], f32x16{}) * leaf.weights[e];
    }
    sum = select(sum == sum, sum, constant);
    sum = select(sum < -largest, -largest, select(sum > largest, largest, sum));
    store(scores + i, f32x16{} + sum);
  }
}

void bound(const float* scores, int n_columns, int64_t n, float* lower, float* upper) {
  if (n_columns == 1) return widen_range(scores, n, lower, upper);
  for (int64_t i = 0; i < n; ++i)
    for (int k = 0; k < n_columns; ++k) widen(scores[i * n_columns + k], lower + k, upper + k);
}

}  // namespace

const LinearLeafKernels linear_leaf_kernels = {gather, mean_sums,       standardise, dot,
                                               outer,  evaluate_column, bound};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
