// Quantised gradients of nodes with linear leaves.
#include "search/kernels/linear_gradient_kernels.h"

#include <type_traits>

#include "base/kernels/lanes.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

void gather(const float* rows, int stride, const uint32_t* ids, int64_t first, int64_t n,
            int n_columns, int64_t step, float* out, float* largest) {
  for (int64_t i = 0; i < n; ++i) {
    if (ids != nullptr && i + kRowsAhead < n)
      prefetch(rows + static_cast<int64_t>(ids[i + kRowsAhead]) * stride);
    const float* row = rows + (ids != nullptr ? static_cast<int64_t>(ids[i]) : first + i) * stride;
    for (int c = 0; c < n_columns; ++c) out[c * step + i] = row[c];
  }
  for (int c = 0; c < n_columns; ++c) {
    float most = largest[c];
    for (int64_t i = 0; i < n; ++i) {
      const float size = __builtin_fabsf(out[c * step + i]);
      most = size > most ? size : most;
    }
    largest[c] = most;
  }
}

// Round half to even for |x| < 2^22, the same on every instruction set.
template <class V>
POLYLEAF_INLINE V round_even(const V& x) {
  return (x + 12582912.0f) - 12582912.0f;
}

template <bool UPDATES>
void read_rows(float* rows, const uint32_t* ids, int64_t first, int64_t n,
               const FittedUpdate& update, float* out, float* least, float* most) {
  f32x4 low = load<f32x4>(least), high = load<f32x4>(most);
  for (int64_t i = 0; i < n; ++i) {
    if (ids != nullptr && i + kRowsAhead < n)
      prefetch(rows + static_cast<int64_t>(ids[i + kRowsAhead]) * 4);
    float* row = rows + (ids != nullptr ? static_cast<int64_t>(ids[i]) : first + i) * 4;
    f32x4 v = load<f32x4>(row);
    if (UPDATES) {
      v[2] = update.factor * v[2] + update.added.number[update.added.code(i)];
      row[2] = v[2];
    }
    store(out + i * 4, v);
    low = v < low ? v : low;
    high = v > high ? v : high;
  }
  store(least, low);
  store(most, high);
}

void read_narrow(float* rows, const uint32_t* ids, int64_t first, int64_t n,
                 const FittedUpdate* update, float* out, float* least, float* most) {
  if (update != nullptr)
    read_rows<true>(rows, ids, first, n, FittedUpdate(*update), out, least, most);
  else
    read_rows<false>(rows, ids, first, n, {}, out, least, most);
}

// Turn a row of four floats (g, h, z, 1) into lanes: products of up to three of them.
template <int P, bool UNIT>
void quantise_rows(const float* rows, int64_t n, float middle, const float* inverse,
                   int16_t* channels, int64_t* totals) {
  constexpr int kLanes = P == 0 ? 4 : 8;
  const f32x4 centre = {0, 0, middle, 0};
  const f32x8 scale = load<f32x8>(inverse);
  i32x8 sum = {};
  for (int64_t i = 0; i < n; ++i) {
    const f32x4 v = load<f32x4>(rows + i * 4) - centre;
    f32x8 x;
    if constexpr (P == 0) {
      x = __builtin_shufflevector(v, v, 0, UNIT ? 3 : 1, 3, 3, 3, 3, 3, 3);
    } else if constexpr (UNIT) {
      x = __builtin_shufflevector(v, v, 0, 2, 2, 0, 3, 3, 3, 3) *
          __builtin_shufflevector(v, v, 3, 3, 2, 2, 3, 3, 3, 3);
    } else {
      x = __builtin_shufflevector(v, v, 0, 1, 1, 1, 0, 3, 3, 3) *
          __builtin_shufflevector(v, v, 3, 3, 2, 2, 2, 3, 3, 3) *
          __builtin_shufflevector(v, v, 3, 3, 3, 2, 3, 3, 3, 3);
    }
    const i32x8 q = __builtin_convertvector(round_even(x * scale), i32x8);
    sum += q;
    const i16x8 narrow = __builtin_convertvector(q, i16x8);
    if constexpr (P == 0) {
      const i16x4 half = __builtin_shufflevector(narrow, narrow, 0, 1, 2, 3);
      store(channels + i * kLanes, half);
    } else {
      store(channels + i * kLanes, narrow);
    }
  }
  for (int j = 0; j < kLanes; ++j) totals[j] += sum[j];
}

void quantise_narrow(const float* rows, int64_t n, int regressors, bool unit, float middle,
                     const float* inverse, int16_t* channels, int64_t* totals) {
  if (regressors == 0)
    return unit ? quantise_rows<0, true>(rows, n, middle, inverse, channels, totals)
                : quantise_rows<0, false>(rows, n, middle, inverse, channels, totals);
  return unit ? quantise_rows<1, true>(rows, n, middle, inverse, channels, totals)
              : quantise_rows<1, false>(rows, n, middle, inverse, channels, totals);
}

// Vector types for blocks of a row.
struct Four {
  using Floats = f32x4;
  using Integers = i32x4;
  using Row = i16x4;
  static constexpr int kWidth = 4;
};
struct Eight {
  using Floats = f32x8;
  using Integers = i32x8;
  using Row = i16x8;
  static constexpr int kWidth = 8;
};
struct Sixteen {
  using Floats = f32x16;
  using Integers = i32x16;
  using Row = i16x16;
  static constexpr int kWidth = 16;
};

// Call f with the vector type for rows of `stride` floats (4, or a multiple of 8), and whether one
// vector is a whole row.
template <class F>
POLYLEAF_INLINE void visit_vector_type(int stride, const F& f) {
  if (stride == 4) return f(Four(), std::true_type());
  if (stride == 8) return f(Eight(), std::true_type());
  if (stride == 16) return f(Sixteen(), std::true_type());
  if (stride % 16 == 0) return f(Sixteen(), std::false_type());
  f(Eight(), std::false_type());
}

// g_k += (h_k * (x - middle_k)) * slope_k
template <class V, bool ONE>
POLYLEAF_INLINE void apply_step(float* row, int n_outputs, int n_hessian, float x,
                                const float* middle, const float* slope) {
  using Floats = typename V::Floats;
  float number[V::kWidth];
  for (int j = 0; j < V::kWidth; ++j) number[j] = static_cast<float>(j);
  const float shared = n_hessian == 0 ? 1.0f : row[n_outputs];
  for (int c = 0; c < (ONE ? V::kWidth : n_outputs); c += V::kWidth) {
    const Floats g = load<Floats>(row + c), away = x - load<Floats>(middle + c);
    const Floats weighted =
        n_hessian <= 1 ? shared * away : load<Floats>(row + n_outputs + c) * away;
    const Floats moved = g + weighted * load<Floats>(slope + c);
    const auto is_gradient = load<Floats>(number) < static_cast<float>(n_outputs - c);
    store(row + c, select(is_gradient, moved, g));
  }
}

template <class V, bool ONE>
void read_many_as(float* rows, int stride, int n_outputs, int n_hessian, const uint32_t* ids,
                  int64_t first, int64_t n, const FittedStep* step, float* out, float* largest) {
  using Floats = typename V::Floats;
  Floats most = load<Floats>(largest);
  for (int64_t i = 0; i < n; ++i) {
    if (ids != nullptr && i + kRowsAhead < n)
      prefetch(rows + static_cast<int64_t>(ids[i + kRowsAhead]) * stride);
    float* row = rows + (ids != nullptr ? static_cast<int64_t>(ids[i]) : first + i) * stride;
    if (step != nullptr) {
      const int code = step->x.code(i);
      if (code != step->missing)
        apply_step<V, ONE>(row, n_outputs, n_hessian, step->x.number[code], step->middle,
                           step->slope);
    }
    for (int c = 0; c < (ONE ? V::kWidth : stride); c += V::kWidth) {
      const Floats v = load<Floats>(row + c), size = max(v, -v);
      store(out + i * stride + c, v);
      if (ONE)
        most = max(size, most);
      else
        store(largest + c, max(size, load<Floats>(largest + c)));
    }
  }
  if (ONE) store(largest, most);
}

void read_many(float* rows, int stride, int n_outputs, int n_hessian, const uint32_t* ids,
               int64_t first, int64_t n, const FittedStep* step, float* out, float* largest) {
  visit_vector_type(stride, [&](auto v, auto one) {
    read_many_as<decltype(v), decltype(one)::value>(rows, stride, n_outputs, n_hessian, ids, first,
                                                    n, step, out, largest);
  });
}

// Quantise one vector of every row.
template <class V>
void quantise_vector(const float* rows, int64_t n, int stride, const float* inverse, int lanes,
                     int16_t* channels, int64_t* totals) {
  using Floats = typename V::Floats;
  using Integers = typename V::Integers;
  const Floats scale = load<Floats>(inverse);
  Integers sum = {};
  for (int64_t i = 0; i < n; ++i) {
    const Floats x = load<Floats>(rows + i * stride) * scale;
    const Integers q = convert<Integers>(round_even(select(x == x, x, Floats{})));
    sum += q;
    store(channels + i * lanes, convert<typename V::Row>(q));
  }
  for (int j = 0; j < V::kWidth; ++j) totals[j] += sum[j];
}

void quantise_many(const float* rows, int64_t n, int stride, const float* inverse, int count_lane,
                   int lanes, int16_t* channels, int64_t* totals) {
  visit_vector_type(stride, [&](auto v, auto) {
    using V = decltype(v);
    for (int c = 0; c < stride; c += V::kWidth)
      quantise_vector<V>(rows + c, n, stride, inverse + c, lanes, channels + c, totals + c);
  });
  for (int64_t i = 0; i < n && stride < lanes; ++i)
    for (int c = stride; c < lanes; ++c) channels[i * lanes + c] = 0;
  for (int64_t i = 0; i < n && count_lane >= 0; ++i) channels[i * lanes + count_lane] = 1;
}

void look_up(const CodeTable& table, int64_t n, float* out) {
  const CodeTable local = table;  // a copy, which writing to `out` does not change
  for (int64_t i = 0; i < n; ++i) out[i] = local.number[local.code(i)];
}

void range(const float* values, int64_t n, float* range) {
  float least = range[0], most = range[1];
  for (int64_t i = 0; i < n; ++i) {
    least = values[i] < least ? values[i] : least;
    most = values[i] > most ? values[i] : most;
  }
  range[0] = least;
  range[1] = most;
}

void centre(float* values, int64_t n, float middle) {
  for (int64_t i = 0; i < n; ++i) {
    const float z = values[i] - middle;
    values[i] = z == z ? z : 0.0f;
  }
}

void quantise(const float* const* columns, int64_t n, const LaneProduct* products, int n_products,
              const float* inverse, int count_lane, int lanes, int16_t* channels, int64_t* totals) {
  constexpr int kRun = 256;
  int32_t q[kRun];
  float value[kRun];
  const auto times = [&](int column, int64_t i, int m) {
    if (column < 0 || columns[column] == nullptr) return;
    const float* factor = columns[column] + i;
    for (int j = 0; j < m; ++j) value[j] *= factor[j];
  };
  for (int64_t i = 0; i < n; i += kRun) {
    const int m = static_cast<int>(n - i < kRun ? n - i : kRun);
    int16_t* out = channels + i * lanes;
    for (int lane = 0; lane < lanes; ++lane) {
      if (lane >= n_products) {
        const int16_t constant = lane == count_lane ? 1 : 0;
        for (int j = 0; j < m; ++j) out[j * lanes + lane] = constant;
        continue;
      }
      const float* first = columns[products[lane].a];
      for (int j = 0; j < m; ++j) value[j] = first != nullptr ? first[j + i] : 1.0f;
      times(products[lane].b, i, m);
      times(products[lane].c, i, m);
      for (int j = 0; j < m; ++j) q[j] = static_cast<int32_t>(round_even(value[j] * inverse[lane]));
      int32_t sum = 0;
      for (int j = 0; j < m; ++j) sum += q[j];
      totals[lane] += sum;
      for (int j = 0; j < m; ++j) out[j * lanes + lane] = static_cast<int16_t>(q[j]);
    }
  }
}

}  // namespace

const LinearGradientKernels linear_gradient_kernels = {gather,    read_narrow,   quantise_narrow,
                                                       read_many, quantise_many, look_up,
                                                       range,     centre,        quantise};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
