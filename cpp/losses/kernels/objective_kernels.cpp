// Loops around the element-wise losses (elementwise_kernels.h), the class losses themselves, and
// the tables of both.
//
// Derivatives are float32; losses are float64 sums of float32 transcendentals, so squares of large
// residuals do not overflow. Finite raw scores and targets never give NaN or infinity.
#include "base/kernels/lanes.h"
#include "losses/kernels/elementwise_kernels.h"
#include "losses/objectives.h"

namespace polyleaf::POLYLEAF_ISA_NAMESPACE {
namespace {

template <class L>
void derivatives(const LossParams& params, const LossChunk& chunk, float* g_out, float* h_out) {
  const float* __restrict raw = chunk.raw, * __restrict target = chunk.target;
  const float* __restrict offset = chunk.offset, * __restrict parameter = chunk.parameter;
  float* __restrict g = g_out, * __restrict h = h_out;
  const int64_t n = chunk.n;
  dispatch_loss<L>(params, [&](auto loss) {
    if constexpr (kHasUnitHessian<decltype(loss)>) {
      for (int64_t i = 0; i < n; ++i)
        g[i] = loss.gradient(raw[i] + offset[i], target[i], parameter[i]);
    } else if (h == nullptr) {
      for (int64_t i = 0; i < n; ++i)
        g[i] = loss.derivative(raw[i] + offset[i], target[i], parameter[i]).g;
    } else {
      for (int64_t i = 0; i < n; ++i) {
        const Derivative d = loss.derivative(raw[i] + offset[i], target[i], parameter[i]);
        g[i] = d.g;
        h[i] = d.h;
      }
    }
  });
}

template <class L>
void losses(const LossParams& params, const LossChunk& chunk, double* out) {
  const float* __restrict raw = chunk.raw, * __restrict target = chunk.target;
  const float* __restrict offset = chunk.offset, * __restrict parameter = chunk.parameter;
  double* __restrict loss_out = out;
  const int64_t n = chunk.n;
  dispatch_loss<L>(params, [&](auto loss) {
    for (int64_t i = 0; i < n; ++i)
      loss_out[i] = loss.loss(raw[i] + offset[i], target[i], parameter[i]);
  });
}

// Class losses process 16 rows at a time, transposed: scores[k * 16 + lane] is class k of row
// `lane`. Every step is then one vector operation for any number of classes, and sums over classes
// run in class order.
// below this, copying single elements is as fast as transposing
constexpr int64_t kMinTransposedClasses = 4;

// Call square(k) for blocks of 16 classes from k on; the last block may overlap the one before.
template <class F>
POLYLEAF_INLINE void visit_squares(int64_t n_outputs, const F& square) {
  for (int64_t k = 0; k + kLanes <= n_outputs; k += kLanes) square(k);
  if (n_outputs % kLanes != 0) square(n_outputs - kLanes);
}

POLYLEAF_INLINE void transpose_square(const float* from, int64_t stride, i32x16* to) {
  transpose(reinterpret_cast<const int32_t*>(from), static_cast<int>(stride), to);
}

// Read 16 whole rows and add the offset.
inline void read_rows(const float* rows, int64_t n_outputs, const float* offset, float* scores) {
  i32x16 square[kLanes];
  const auto add_offset = [&](int64_t k, const i32x16& from) {
    store(scores + k * kLanes, load<f32x16>(&from) + offset[k]);
  };
  if (n_outputs >= kLanes)
    return visit_squares(n_outputs, [&](int64_t k) {
      transpose_square(rows + k, n_outputs, square);
      for (int c = 0; c < kLanes; ++c) add_offset(k + c, square[c]);
    });
  float buffer[kLanes * (kLanes + 1)];  // the last row is read past its end
  __builtin_memcpy(buffer, rows, static_cast<size_t>(n_outputs) * kLanes * sizeof(float));
  for (int j = 0; j < kLanes; ++j) buffer[n_outputs * kLanes + j] = 0.0f;
  transpose_square(buffer, n_outputs, square);
  for (int c = 0; c < n_outputs; ++c) add_offset(c, square[c]);
}

// Read up to 16 rows (the last one fills the remaining lanes) and add the offset.
inline void read_group(const ClassChunk& chunk, int64_t first, float* scores_out) {
  const int64_t n_outputs = chunk.n_outputs;
  float* __restrict scores = scores_out;
  if (chunk.n_rows - first >= kLanes && n_outputs >= kMinTransposedClasses)
    return read_rows(chunk.raw + first * n_outputs, n_outputs, chunk.offset, scores);
  for (int j = 0; j < kLanes; ++j) {
    const int64_t row = first + j < chunk.n_rows ? first + j : chunk.n_rows - 1;
    const float* __restrict raw = chunk.raw + row * n_outputs;
    for (int64_t k = 0; k < n_outputs; ++k) scores[k * kLanes + j] = raw[k] + chunk.offset[k];
  }
}

// Inverse of `read_rows`.
inline void write_rows(const float* scores, int64_t n_outputs, float* rows) {
  i32x16 square[kLanes];
  if (n_outputs >= kLanes)
    return visit_squares(n_outputs, [&](int64_t k) {
      transpose_square(scores + k * kLanes, kLanes, square);
      for (int j = 0; j < kLanes; ++j) store(rows + j * n_outputs + k, square[j]);
    });
  float buffer[kLanes * (kLanes + 1)];  // rows are written past their end, in order
  transpose_square(scores, kLanes, square);
  for (int j = 0; j < kLanes; ++j) store(buffer + j * n_outputs, square[j]);
  __builtin_memcpy(rows, buffer, static_cast<size_t>(n_outputs) * kLanes * sizeof(float));
}

// Inverse of `read_group`, without the offset.
inline void write_group(const float* scores, int64_t n_rows, int64_t n_outputs, float* rows) {
  if (n_rows == kLanes && n_outputs >= kMinTransposedClasses)
    return write_rows(scores, n_outputs, rows);
  for (int64_t j = 0; j < n_rows; ++j) {
    float* __restrict row = rows + j * n_outputs;
    for (int64_t k = 0; k < n_outputs; ++k) row[k] = scores[k * kLanes + j];
  }
}

inline int64_t count_group_rows(const ClassChunk& chunk, int64_t first) {
  return chunk.n_rows - first < kLanes ? chunk.n_rows - first : kLanes;
}

struct SoftmaxGroup {
  float largest[kLanes];
  float sum[kLanes];
};

// Write e^(score - largest) to `chunk.scratch`.
inline void softmax_group(const ClassChunk& chunk, int64_t first, SoftmaxGroup& group) {
  const int64_t n_outputs = chunk.n_outputs;
  float* __restrict scores = chunk.scratch;
  read_group(chunk, first, scores);
  f32x16 largest = load<f32x16>(scores);
  for (int64_t k = 1; k < n_outputs; ++k) largest = max(load<f32x16>(scores + k * kLanes), largest);
  // Sum in parts of 16 classes, so that the error does not grow with thousands of them.
  f32x16 sum = {};
  for (int64_t begin = 0; begin < n_outputs; begin += kLanes) {
    const int64_t end = begin + kLanes < n_outputs ? begin + kLanes : n_outputs;
    f32x16 part = {};
    for (int64_t k = begin; k < end; ++k) {
      const f32x16 x = load<f32x16>(scores + k * kLanes) - largest;
      const f32x16 e = exp_within_limits<i32x16>(max(broadcast(kLeastExponent), x));
      store(scores + k * kLanes, e);
      part += e;
    }
    sum += part;
  }
  store(group.largest, largest);
  store(group.sum, sum);
}

// Write the probabilities to `chunk.scratch`.
inline void probability_group(const ClassChunk& chunk, int64_t first) {
  SoftmaxGroup group;
  softmax_group(chunk, first, group);
  float* __restrict p = chunk.scratch;
  float inverse[kLanes];
  for (int j = 0; j < kLanes; ++j) inverse[j] = 1.0f / group.sum[j];
  for (int64_t k = 0; k < chunk.n_outputs; ++k)
    for (int j = 0; j < kLanes; ++j) p[k * kLanes + j] *= inverse[j];
}

// Rows of a packed matrix are written 16 entries at a time: what runs past the end of one row is
// overwritten by the next, so the inner loop has no remainder. Up to 15 floats behind `out` are
// overwritten.
inline void softmax_hessian(const float* p, const float* others, int64_t n_outputs, float* out) {
  for (int64_t i = 0, at = 0; i < n_outputs; at += ++i) {
    const float minus = -p[i];
    for (int64_t begin = 0; begin < i; begin += kLanes)
      for (int j = 0; j < kLanes; ++j) out[at + begin + j] = minus * p[begin + j];
    out[at + i] = max(p[i] * others[i * kLanes], kMinHessian);
  }
}

// l = ln sum of e^score - score of the class. `factor`: the Hessian diagonal is factor * p (1 - p);
// 0: |p - y|. For shares y of the classes, both are means over classes: the score is sum of y_k
// score_k, and |p - y| is y (1 - p) + (1 - y) p.
struct Softmax {
  static constexpr const char* kName = "softmax";
  static constexpr bool kTakesShares = true;
  static constexpr const char* kParameters[] = {"factor"};

  static void derivatives(const LossParams& params, const ClassChunk& chunk, float* g, float* h) {
    const int64_t n_outputs = chunk.n_outputs;
    const float factor = params[0];
    for (int64_t first = 0; first < chunk.n_rows; first += kLanes) {
      probability_group(chunk, first);
      write_group(chunk.scratch, count_group_rows(chunk, first), n_outputs, g + first * n_outputs);
    }
    // Row-major again; the following loops are flat.
    const int64_t n = chunk.n_rows * n_outputs;
    float* __restrict gradient = g, * __restrict hessian = h;
    if (factor != 0.0f)
      for (int64_t i = 0; i < n; ++i)
        hessian[i] = max(factor * (gradient[i] * (1.0f - gradient[i])), kMinHessian);
    if (chunk.shares != nullptr) return subtract_shares(factor, chunk.shares, n, g, h);
    for (int64_t i = 0; i < chunk.n_rows; ++i) gradient[i * n_outputs + chunk.label[i]] -= 1.0f;
    if (factor == 0.0f)
      for (int64_t i = 0; i < n; ++i) hessian[i] = max(magnitude(gradient[i]), kMinHessian);
  }

  static void subtract_shares(float factor, const float* shares, int64_t n, float* g, float* h) {
    const float* __restrict y = shares;
    float* __restrict gradient = g, * __restrict hessian = h;
    if (factor == 0.0f)
      for (int64_t i = 0; i < n; ++i)
        hessian[i] = max(y[i] * (1.0f - gradient[i]) + (1.0f - y[i]) * gradient[i], kMinHessian);
    for (int64_t i = 0; i < n; ++i) gradient[i] -= y[i];
  }

  // diag(p) - p p'. 1 - p is computed as the sum of the other probabilities, which keeps its
  // digits for p near 1: rows sum to zero, and the matrix is positive semi-definite up to
  // rounding.
  static void hessians(const ClassChunk& chunk, float* g, float* h) {
    const int64_t n_outputs = chunk.n_outputs, size = packed_size(n_outputs);
    const float* __restrict p = chunk.scratch;
    float* __restrict others = chunk.scratch + kLanes * n_outputs;
    float* row = others + kLanes * n_outputs;
    float* packed = row + n_outputs + kLanes;
    for (int j = 0; j < kLanes; ++j) row[n_outputs + j] = 0.0f;
    for (int64_t first = 0; first < chunk.n_rows; first += kLanes) {
      probability_group(chunk, first);
      float sum[kLanes] = {};
      for (int64_t k = 0; k < n_outputs; ++k)
        for (int j = 0; j < kLanes; ++j) {
          others[k * kLanes + j] = sum[j];
          sum[j] += p[k * kLanes + j];
        }
      for (int j = 0; j < kLanes; ++j) sum[j] = 0.0f;
      for (int64_t k = n_outputs - 1; k >= 0; --k)
        for (int j = 0; j < kLanes; ++j) {
          others[k * kLanes + j] += sum[j];
          sum[j] += p[k * kLanes + j];
        }
      for (int64_t j = 0; j < count_group_rows(chunk, first); ++j) {
        float* gi = g + (first + j) * n_outputs;
        for (int64_t k = 0; k < n_outputs; ++k) row[k] = p[k * kLanes + j];
        __builtin_memcpy(gi, row, static_cast<size_t>(n_outputs) * sizeof(float));
        if (chunk.shares == nullptr) {
          gi[chunk.label[first + j]] -= 1.0f;
        } else {
          const float* y = chunk.shares + (first + j) * n_outputs;
          for (int64_t k = 0; k < n_outputs; ++k) gi[k] -= y[k];
        }
        float* hi = h + (first + j) * size;
        // Writing past the end is not allowed.
        const bool is_at_end = (chunk.n_rows - 1 - first - j) * size < kLanes;
        softmax_hessian(row, others + j, n_outputs, is_at_end ? packed : hi);
        if (is_at_end) __builtin_memcpy(hi, packed, static_cast<size_t>(size) * sizeof(float));
      }
    }
  }

  static void losses(const ClassChunk& chunk, double* out) {
    SoftmaxGroup group;
    for (int64_t first = 0; first < chunk.n_rows; first += kLanes) {
      softmax_group(chunk, first, group);
      for (int64_t j = 0; j < count_group_rows(chunk, first); ++j) {
        const int64_t row = first + j;
        const float* raw = chunk.raw + row * chunk.n_outputs;
        const auto distance = [&](int64_t k) {
          return double(group.largest[j]) - double(raw[k] + chunk.offset[k]);
        };
        double mean = 0;
        if (chunk.shares == nullptr) {
          mean = distance(chunk.label[row]);
        } else {
          const float* y = chunk.shares + row * chunk.n_outputs;
          for (int64_t k = 0; k < chunk.n_outputs; ++k) mean += double(y[k]) * distance(k);
        }
        out[row] = double(log_normal(group.sum[j])) + mean;
      }
    }
  }
};

// Base of losses with code vectors: `L::group` computes one factor per row for 16 rows, and
// `L::rows` and `L::hessian` compute derivatives from it. The factor is the loss.
template <class L>
struct CodedLoss {
  static constexpr bool kTakesShares = false;

  static void derivatives(const LossParams&, const ClassChunk& chunk, float* g, float* h) {
    float factors[kLanes];
    for (int64_t first = 0; first < chunk.n_rows; first += kLanes) {
      L::group(chunk, first, factors);
      L::rows(chunk, first, factors, g, h);
    }
  }

  static void hessians(const ClassChunk& chunk, float* g, float* h) {
    const int64_t n_outputs = chunk.n_outputs, size = packed_size(n_outputs);
    float factors[kLanes];
    for (int64_t first = 0; first < chunk.n_rows; first += kLanes) {
      L::group(chunk, first, factors);
      L::rows(chunk, first, factors, g, nullptr);
      for (int64_t j = 0; j < count_group_rows(chunk, first); ++j)
        L::hessian(chunk.scratch + j, factors[j], chunk.label[first + j], n_outputs,
                   h + (first + j) * size);
    }
  }

  static void losses(const ClassChunk& chunk, double* out) {
    float factors[kLanes];
    for (int64_t first = 0; first < chunk.n_rows; first += kLanes) {
      L::group(chunk, first, factors);
      for (int64_t j = 0; j < count_group_rows(chunk, first); ++j)
        out[first + j] = double(factors[j]);
    }
  }
};

// l = e^(mean of the scores - score of the class); the factor of a row is e^(...).
struct Exponential : CodedLoss<Exponential> {
  static constexpr const char* kName = "exponential";

  __attribute__((noinline)) static void group(const ClassChunk& chunk, int64_t first, float* e) {
    float* __restrict scores = chunk.scratch;
    read_group(chunk, first, scores);
    float sum[kLanes] = {}, own[kLanes] = {};
    for (int64_t k = 0; k < chunk.n_outputs; ++k)
      for (int j = 0; j < kLanes; ++j) sum[j] += scores[k * kLanes + j];
    for (int64_t j = 0; j < count_group_rows(chunk, first); ++j)
      own[j] = scores[chunk.label[first + j] * kLanes + j];
    const float n_outputs = static_cast<float>(chunk.n_outputs);
    for (int j = 0; j < kLanes; ++j)
      e[j] = min(exp_saturating(sum[j] / n_outputs - own[j]), kMaxGradientPart);
  }

  // Write rows [first, first + 16) of the gradients and, unless h is nullptr, of the Hessian
  // diagonal.
  static void rows(const ClassChunk& chunk, int64_t first, const float* e, float* g, float* h) {
    const int64_t n_outputs = chunk.n_outputs;
    const float other = 1.0f / static_cast<float>(n_outputs), own = 1.0f - other;
    for (int64_t j = 0; j < count_group_rows(chunk, first); ++j) {
      const int64_t at = (first + j) * n_outputs, label = at + chunk.label[first + j];
      for (int64_t k = at; k < at + n_outputs; ++k) g[k] = other * e[j];
      g[label] = -(own * e[j]);
      if (h == nullptr) continue;
      for (int64_t k = at; k < at + n_outputs; ++k) h[k] = max((other * other) * e[j], kMinHessian);
      h[label] = max((own * own) * e[j], kMinHessian);
    }
  }

  // e v v' with the code vector v of the class: 1 - 1 / K for itself, -1 / K for the others.
  static void hessian(const float*, float e, int64_t label, int64_t n_outputs, float* packed) {
    const float other = 1.0f / static_cast<float>(n_outputs), own = 1.0f - other;
    const float plain = (other * other) * e, mixed = -((own * other) * e);
    for (int64_t i = 0, at = 0; i < n_outputs; at += ++i) {
      for (int64_t j = 0; j < i; ++j) packed[at + j] = i == label || j == label ? mixed : plain;
      packed[at + i] = max(i == label ? (own * own) * e : plain, kMinHessian);
    }
  }
};

// l = sum over the other classes k of e^((score k - score of the class) / 2). Each term is written
// to `chunk.scratch` (0 for the class itself); the factor of a row is their sum.
struct ExponentialMargin : CodedLoss<ExponentialMargin> {
  static constexpr const char* kName = "exponential_margin";

  __attribute__((noinline)) static void group(const ClassChunk& chunk, int64_t first,
                                              float* total) {
    float* __restrict scores = chunk.scratch;
    read_group(chunk, first, scores);
    const int64_t n_rows = count_group_rows(chunk, first);
    float own[kLanes] = {}, sum[kLanes] = {};
    for (int64_t j = 0; j < n_rows; ++j) own[j] = scores[chunk.label[first + j] * kLanes + j];
    for (int64_t k = 0; k < chunk.n_outputs; ++k)
      for (int j = 0; j < kLanes; ++j) {
        float& z = scores[k * kLanes + j];
        z = min(exp_saturating(0.5f * (z - own[j])), kMaxGradientPart);
      }
    for (int64_t j = 0; j < n_rows; ++j) scores[chunk.label[first + j] * kLanes + j] = 0.0f;
    for (int64_t k = 0; k < chunk.n_outputs; ++k)
      for (int j = 0; j < kLanes; ++j) sum[j] += scores[k * kLanes + j];
    for (int j = 0; j < kLanes; ++j) total[j] = sum[j];
  }

  static void rows(const ClassChunk& chunk, int64_t first, const float* total, float* g, float* h) {
    const int64_t n_outputs = chunk.n_outputs, n_rows = count_group_rows(chunk, first);
    write_group(chunk.scratch, n_rows, n_outputs, g + first * n_outputs);
    for (int64_t j = 0; j < n_rows; ++j) {
      const int64_t at = (first + j) * n_outputs, label = at + chunk.label[first + j];
      if (h != nullptr) {
        for (int64_t k = at; k < at + n_outputs; ++k) h[k] = max(0.25f * g[k], kMinHessian);
        h[label] = max(0.25f * total[j], kMinHessian);
      }
      for (int64_t k = at; k < at + n_outputs; ++k) g[k] *= 0.5f;
      g[label] = -0.5f * total[j];
    }
  }

  // The other classes interact with the class only. `e`: the terms of one row, 16 apart.
  static void hessian(const float* e, float total, int64_t label, int64_t n_outputs,
                      float* packed) {
    for (int64_t i = 0, at = 0; i < n_outputs; at += ++i) {
      for (int64_t j = 0; j < i; ++j)
        packed[at + j] = i == label   ? -0.25f * e[j * kLanes]
                         : j == label ? -0.25f * e[i * kLanes]
                                      : 0.0f;
      packed[at + i] = max(0.25f * (i == label ? total : e[i * kLanes]), kMinHessian);
    }
  }
};

void multiply(float* x, const float* weight, int64_t n) {
  float* __restrict out = x;
  for (int64_t i = 0; i < n; ++i) out[i] *= weight[i];
}

void add_leaves(const float* raw, const float* leaves, const int32_t* leaf_of_row, int64_t n,
                int64_t k, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float *from = raw + i * k, *leaf = leaves + leaf_of_row[i] * k;
    float* __restrict to = out + i * k;
    if (k < kLanes)
      for (int64_t j = 0; j < k; ++j) to[j] = from[j] + leaf[j];
    else
      visit_squares(
          k, [&](int64_t j) { store(to + j, load<f32x16>(from + j) + load<f32x16>(leaf + j)); });
  }
}

void add_weighted(const double* loss, const float* weight, int64_t n, double* sums) {
  double total[kLanes] = {}, weights[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int j = 0; j < kLanes; ++j) {
      const double w = double(weight[i + j]);
      total[j] += w * loss[i + j];
      weights[j] += w;
    }
  for (int j = 0; i + j < n; ++j) {
    const double w = double(weight[i + j]);
    total[j] += w * loss[i + j];
    weights[j] += w;
  }
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) {
      total[j] += total[j + half];
      weights[j] += weights[j + half];
    }
  sums[0] += total[0];
  sums[1] += weights[0];
}

void exp_array(const float* x, float* out, int64_t n) {
  float* __restrict result = out;
  for (int64_t i = 0; i < n; ++i) result[i] = exp_saturating(x[i]);
}

void log_array(const float* x, float* out, int64_t n) {
  float* __restrict result = out;
  for (int64_t i = 0; i < n; ++i) result[i] = log_normal(x[i]);
}

template <class L, class K>
constexpr K make_kernels(K kernels) {
  kernels.name = L::kName;
  if constexpr (requires { L::kParameters; }) {
    const char** to = kernels.parameters;
    for (const char* parameter : L::kParameters) *to++ = parameter;
  }
  return kernels;
}

template <class>
struct Kernels;
template <class... L>
struct Kernels<Losses<L...>> {
  static constexpr LossKernels kTable[] = {
      make_kernels<L>(LossKernels{"", {}, kHasUnitHessian<L>, derivatives<L>, losses<L>})...};
};
template <class... L>
constexpr ClassLossKernels kClassLosses[] = {make_kernels<L>(
    ClassLossKernels{"", {}, L::kTakesShares, L::derivatives, L::hessians, L::losses})...};

template <class K, int n>
constexpr LossTable<K> table(const K (&losses)[n]) {
  return {losses, n};
}

}  // namespace

extern const ObjectiveKernels objective_kernels;
const ObjectiveKernels objective_kernels{
    table(Kernels<ElementwiseLosses>::kTable),
    table(kClassLosses<Softmax, Exponential, ExponentialMargin>),
    multiply,
    add_leaves,
    add_weighted,
    exp_array,
    log_array};

}  // namespace polyleaf::POLYLEAF_ISA_NAMESPACE
