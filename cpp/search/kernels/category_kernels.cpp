// Order of categories by their gradients, in float64. Sums run in order of category, then output,
// as in the specification; lanes stand for outputs, or for categories.
#include "base/kernels/lanes.h"
#include "search/dense_scan.h"
#include "split_gain/kernels/candidates.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

constexpr int kDoubles = 8;

// Deviations of the categories' means from the mean of all: one row per category, and one per
// output.
struct Deviations {
  int n, n_outputs, row, column;  // lengths of rows and columns, with padding
  double *by_category, *by_output;

  // Write sum over outputs of f(deviation, output), in order of output, for eight categories.
  template <class F>
  POLYLEAF_INLINE_MEMBER f64x8 sum_outputs(int i, const F& f) const {
    f64x8 sum = {};
    for (int k = 0; k < n_outputs; ++k)
      sum += f(load<f64x8>(by_output + static_cast<int64_t>(k) * column + i), k);
    return sum;
  }
  // Write sum over categories of weight * deviation, in order of category, for each output.
  POLYLEAF_INLINE_MEMBER void sum_categories(const double* weights, double* sums) const {
    for (int k = 0; k < n_outputs; k += kDoubles) {
      f64x8 sum = {};
      for (int i = 0; i < n; ++i)
        sum += weights[i] * load<f64x8>(by_category + static_cast<int64_t>(i) * row + k);
      store(sums + k, sum);
    }
  }
};

void write_means(const ScanNode& node, const ScanFeature& feature, const int32_t* bins,
                 const int32_t* counts, const Deviations& d) {
  const ChannelLayout& layout = *node.layout;
  const double smooth = node.config->cat_smooth;
  for (int i = 0; i < d.n; ++i) {
    const int32_t* at = feature.bin(layout, bins[i]);
    double* means = d.by_category + static_cast<int64_t>(i) * d.row;
    for (int k = 0; k < d.n_outputs; ++k) {
      const int own = layout.hessian_index(k);
      const double h = layout.hessian == HessianKind::unit
                           ? static_cast<double>(counts[i])
                           : static_cast<double>(at[layout.hessian_offset + own]) *
                                 static_cast<double>(node.hessian_step[own]);
      const double g = static_cast<double>(at[k]) * static_cast<double>(node.gradient_step[k]);
      const double denominator = h + smooth;
      means[k] = denominator > 0 ? g / denominator : 0.0;
    }
    for (int k = d.n_outputs; k < d.row; ++k) means[k] = 0;
  }
}

// Subtract the mean of all categories, and write the deviations of each output too.
void centre(const double* weights, double rows, double* mean, const Deviations& d) {
  d.sum_categories(weights, mean);
  for (int k = 0; k < d.n_outputs; ++k) mean[k] = mean[k] / rows;
  for (int k = 0; k < d.n_outputs; ++k)
    for (int i = d.n; i < d.column; ++i) d.by_output[static_cast<int64_t>(k) * d.column + i] = 0;
  for (int i = 0; i < d.n; ++i)
    for (int k = 0; k < d.n_outputs; ++k) {
      double& own = d.by_category[static_cast<int64_t>(i) * d.row + k];
      own -= mean[k];
      d.by_output[static_cast<int64_t>(k) * d.column + i] = own;
    }
}

// Write the means of one output.
void write_means(const ScanNode& node, const ScanFeature& feature, const int32_t* bins,
                 const int32_t* counts, int n, double* means) {
  const ChannelLayout& layout = *node.layout;
  const bool unit = layout.hessian == HessianKind::unit;
  int32_t g[256], h[256];
  for (int i = 0; i < n; ++i) {
    const int32_t* at = feature.bin(layout, bins[i]);
    g[i] = at[0];
    h[i] = unit ? counts[i] : at[layout.hessian_offset];
  }
  const double g_step = node.gradient_step[0], h_step = unit ? 1.0 : node.hessian_step[0];
  const double smooth = node.config->cat_smooth;
  for (int i = 0; i < n; ++i) {
    const double denominator = h[i] * h_step + smooth;
    const double mean = g[i] * g_step / denominator;
    means[i] = denominator > 0 ? mean : 0.0;
  }
}

void position(const ScanNode& node, const ScanFeature& feature, const int32_t* bins,
              const int32_t* counts, int n, double* workspace, double* positions) {
  const int K = node.layout->n_outputs;
  if (K == 1) return write_means(node, feature, bins, counts, n, positions);
  Deviations d{n, K, round_up(K, kDoubles), round_up(n, kDoubles), nullptr, nullptr};
  const auto allocate = [&](int64_t size) {
    double* at = workspace;
    workspace += size;
    return at;
  };
  d.by_category = allocate(int64_t{d.row} * n);
  d.by_output = allocate(int64_t{K} * d.column);
  double *counted = allocate(d.column), *weights = allocate(d.column);
  double *direction = allocate(d.row), *next = allocate(d.row);
  double rows = 0;
  for (int i = 0; i < n; ++i) {
    counted[i] = counts[i];
    rows += counted[i];
  }
  for (int i = n; i < d.column; ++i) counted[i] = 0;
  write_means(node, feature, bins, counts, d);
  centre(counted, rows, next, d);
  const auto dots = [&](int i) {
    return d.sum_outputs(i, [&](const f64x8& own, int k) { return own * direction[k]; });
  };
  for (int i = 0; i < n; i += kDoubles)
    store(weights + i, load<f64x8>(counted + i) *
                           d.sum_outputs(i, [](const f64x8& own, int) { return own * own; }));
  int start = 0;
  double largest = -1;
  for (int i = 0; i < n; ++i) {
    if (!(weights[i] > largest)) continue;
    largest = weights[i];
    start = i;
  }
  std::memcpy(direction, d.by_category + int64_t{start} * d.row, sizeof(double) * d.row);
  for (int round = 0; round < 8; ++round) {  // power iteration
    for (int i = 0; i < n; i += kDoubles) store(weights + i, load<f64x8>(counted + i) * dots(i));
    d.sum_categories(weights, next);
    double scale = 0;
    for (int k = 0; k < K; ++k) {
      const double size = __builtin_fabs(next[k]);
      scale = scale < size ? size : scale;
    }
    if (scale == 0) break;
    for (int k = 0; k < K; ++k) direction[k] = next[k] / scale;
  }
  double last[kDoubles];
  for (int i = 0; i < n; i += kDoubles) {
    store(last, dots(i));
    for (int j = 0; j < kDoubles && i + j < n; ++j) positions[i + j] = last[j];
  }
}

// Write the numbers of n keys in ascending order. Every key counts the lower ones: no branch
// depends on the data. Return false at two equal keys; keeps_ties: these stay in order of number.
template <class T>
bool order_keys(const double* positions, int n, bool keeps_ties, int32_t* numbers) {
  constexpr int kKeys = 64 / sizeof(T);
  T keys[256];
  uint8_t is_taken[257] = {};
  for (int i = 0; i < n; ++i) keys[i] = static_cast<T>(positions[i]);
  for (int i = n; i < round_up(n, kKeys); ++i) keys[i] = static_cast<T>(__builtin_inf());
  for (int i = 0; i < n; ++i) {
    int64_t lower = 0;
#if defined(__AVX512F__)
    for (int j = 0; j < n; j += kKeys)
      if constexpr (sizeof(T) == sizeof(float))
        lower += __builtin_popcount(
            _mm512_cmp_ps_mask(_mm512_loadu_ps(keys + j), _mm512_set1_ps(keys[i]), _CMP_LT_OQ));
      else
        lower += __builtin_popcount(
            _mm512_cmp_pd_mask(_mm512_loadu_pd(keys + j), _mm512_set1_pd(keys[i]), _CMP_LT_OQ));
#else
    for (int j = 0; j < n; ++j) lower += keys[j] < keys[i];
#endif
    for (; is_taken[lower]; ++lower)
      if (!keeps_ties) return false;
    is_taken[lower] = 1;
    numbers[lower] = i;
  }
  return true;
}

// Positions that differ as float32 have that order as float64 too.
void order(const double* positions, int n, int32_t* numbers) {
  if (!order_keys<float>(positions, n, false, numbers))
    order_keys<double>(positions, n, true, numbers);
}

template <class Sum>
void list_sums_as(const int32_t* sums, int lanes, const int32_t* bins, int n, bool running,
                  int32_t* rows) {
  constexpr int kWidth = sizeof(Sum) / sizeof(int32_t);
  for (int j = 0; j < lanes; j += kWidth) {
    Sum sum = {};
    for (int i = 0; i < n; ++i) {
      const Sum own = load<Sum>(sums + static_cast<int64_t>(bins[i]) * lanes + j);
      sum = running ? sum + own : own;
      store(rows + static_cast<int64_t>(i) * lanes + j, sum);
    }
  }
}

void list_sums(const int32_t* sums, int lanes, const int32_t* bins, int n, bool running,
               int32_t* rows) {
  const auto list = lanes == 4   ? list_sums_as<i32x4>
                    : lanes == 8 ? list_sums_as<i32x8>
                                 : list_sums_as<i32x16>;
  list(sums, lanes, bins, n, running, rows);
}

int find_best(const ScanNode& node, const int32_t* left_counts, int n, float* sums) {
  const int32_t min_rows = node.config->min_child_samples;
  for (int i = 0; i < n; i += 16) {
    const i32x16 count = load<i32x16>(left_counts + i);
    const auto admissible = (count >= min_rows) & (node.count - count >= min_rows);
    store(sums + i, select(admissible, load<f32x16>(sums + i), broadcast(kNone)));
  }
  return first_largest(sums, 0, n);
}

}  // namespace

const CategoryKernels category_kernels = {position, order, list_sums, find_best};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
