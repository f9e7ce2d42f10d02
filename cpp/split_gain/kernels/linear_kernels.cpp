// Candidate scan for linear leaves: running sums of channels and of their products with bin means.
// One output, and many outputs without regressors of the node (linear_many.h), have scans of their
// own; all other cases score eight candidates at a time.
#include "split_gain/kernels/linear_many.h"
#include "split_gain/score_kernels.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

// The scan over one feature where leaves are linear and there is one output.
//
// Inside the namespace of an instruction set.

// Scan of one output and at most one regressor, the half-additive fit: the sums of a bin are
// contiguous, as in the histogram, and are transposed for eight candidates at a time.
template <int P, bool UNIT>
struct One {
  static constexpr int kLanes = P == 0 ? 4 : 8;
  // Lanes of g, h, the h that belongs to x^2, and hz.
  static constexpr int kH = UNIT ? (P == 0 ? 1 : 4) : 1, kHz = UNIT ? 1 : 2;
  static constexpr int kCount = UNIT ? (P == 0 ? 1 : 4) : (P == 0 ? 2 : 5);

  int32_t (*lanes)[8];
  double (*products)[4];  // gx, hx, hxx, hzx

  // moments: of ScanScratch; not read unless there is a scan.
  explicit One(double* moments)
      : lanes(reinterpret_cast<int32_t (*)[8]>(moments + 4 * kRow)),
        products(reinterpret_cast<double (*)[4]>(moments)) {}

  POLYLEAF_INLINE_MEMBER i32x8 bin(const ScanFeature& feature, int b) const {
    if constexpr (P == 0) {
      const i32x4 half = load<i32x4>(feature.sums + b * 4);
      return __builtin_shufflevector(half, half, 0, 1, 2, 3, 0, 1, 2, 3);
    } else {
      return load<i32x8>(feature.sums + b * 8);
    }
  }

  // Return gx, hx, hxx, hzx of one bin.
  POLYLEAF_INLINE_MEMBER static f64x4 compute_products(const i32x8& sums, double x) {
    const i32x4 factor = __builtin_shufflevector(sums, sums, 0, kH, kH, kHz);
    const f64x4 first = {x, x, x, x}, second = first * first;
    return to_double(factor) * __builtin_shufflevector(first, second, 0, 1, 6, 3);
  }

  int run_over_bins(const ScanFeature& feature, ScanScratch& s) const {
    return feature.means != nullptr ? run_over_bins<true>(feature, s)
                                    : run_over_bins<false>(feature, s);
  }
  // Stores may alias members of the scan for the compiler, hence the copies.
  template <bool WITH_X>
  int run_over_bins(const ScanFeature& scanned, ScanScratch& s) const {
    const One own = *this;
    const ScanFeature feature = scanned;
    int32_t *const bins = s.bins, *const counts = s.count;
    i32x8 sum = {};
    f64x4 product = {};
    int32_t count = 0;
    int m = 0;
    visit_bins(feature, [&](int b) __attribute__((always_inline)) {
      const i32x8 v = bin(feature, b);
      const int32_t rows = feature.sums[b * kLanes + kCount];
      sum += v;
      store(own.lanes[m], sum);
      if (WITH_X) {
        product += compute_products(v, feature.means[b]);
        store(own.products[m], product);
      }
      bins[m] = b;
      counts[m] = count += rows;
      m += (rows != 0) | (b == 0);
    });
    return m;
  }

  // Write the sums of the bins up to `last`, and of all bins; four numbers each.
  void sum_products(const ScanFeature& feature, int last, double* left, double* whole) const {
    f64x4 product = {}, before = {};
    visit_bins(feature, [&](int b) __attribute__((always_inline)) {
      product += compute_products(bin(feature, b), feature.means[b]);
      before = b <= last ? product : before;
    });
    store(left, before);
    store(whole, product);
  }

  // Transpose rows [i, i + 8).
  POLYLEAF_INLINE_MEMBER void turn_lanes(int i, i32x8* out) const {
    i32x8 r[8], t[8];
    for (int j = 0; j < 8; ++j) r[j] = load<i32x8>(lanes[i + j]);
    interleave(r, t);
    interleave(t, r);
    interleave(r, out);
  }
  POLYLEAF_INLINE_MEMBER static void interleave(const i32x8* in, i32x8* out) {
    for (int j = 0; j < 4; ++j) {
      out[2 * j] = __builtin_shufflevector(in[j], in[j + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      out[2 * j + 1] = __builtin_shufflevector(in[j], in[j + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
  }
  POLYLEAF_INLINE_MEMBER void turn_products(int i, f64x8* out) const {
    f64x4 low[4], high[4];
    turn_four(i, low);
    turn_four(i + 4, high);
    for (int q = 0; q < 4; ++q) out[q] = join(low[q], high[q]);
  }
  POLYLEAF_INLINE_MEMBER void turn_four(int i, f64x4* out) const {
    f64x4 r[4], t[4];
    for (int j = 0; j < 4; ++j) r[j] = load<f64x4>(products[i + j]);
    for (int j = 0; j < 4; j += 2) {
      t[j] = __builtin_shufflevector(r[j], r[j + 1], 0, 4, 2, 6);
      t[j + 1] = __builtin_shufflevector(r[j], r[j + 1], 1, 5, 3, 7);
    }
    for (int j = 0; j < 2; ++j) {
      out[j] = __builtin_shufflevector(t[j], t[j + 2], 0, 1, 4, 5);
      out[j + 2] = __builtin_shufflevector(t[j], t[j + 2], 2, 3, 6, 7);
    }
  }

  // Copy of what all candidates of a feature share: the compiler has to assume that stores of
  // scores change the original.
  struct Constants {
    double step[8], whole[4];  // of lanes; products of all bins
    int32_t totals[8];
    double reg_lambda, slope_ridge, ridge = 0, noise = 0;

    Constants(const ScanNode& node, const double* products)
        : reg_lambda(node.config->reg_lambda), slope_ridge(node.linear->slope_ridge) {
      for (int j = 0; j < 8; ++j) step[j] = static_cast<double>(node.linear->step[j]);
      for (int j = 0; j < 8; ++j) totals[j] = node.totals[j];
      for (int q = 0; q < 4; ++q) whole[q] = products[q];
      if (P == 1) {
        ridge = node.linear->ridge[0];
        noise = node.linear->noise[0];
      }
    }
  };

  // Score one side of eight candidates. all(j), there(j): sums of lane j over all its rows and over
  // those where the feature is present; product(q): gx, hx, hxx, hzx, which are 0 if the feature
  // does not join.
  template <class All, class There, class Product>
  POLYLEAF_INLINE_MEMBER static f64x8 side(const Constants& node, const All& all,
                                           const There& there, const Product& product,
                                           f64x8* weight) {
    const double h_step = UNIT ? 1.0 : node.step[kH], g_step = node.step[0];
    OneOutput<f64x8, P> sums;
    sums.count = all(kCount);
    sums.h = UNIT ? sums.count : all(kH) * h_step;
    sums.g = all(0) * g_step;
    sums.h_there = UNIT ? there(kCount) : there(kH) * h_step;
    sums.g_there = there(0) * g_step;
    sums.gx = product(0) * g_step;
    sums.hx = product(1) * h_step;
    sums.hxx = product(2) * h_step;
    if constexpr (P == 1) {
      sums.hz = all(kHz) * node.step[kHz];
      sums.hzz = all(kHz + 1) * node.step[kHz + 1];
      sums.gz = all(kHz + 2) * node.step[kHz + 2];
      sums.hz_there = there(kHz) * node.step[kHz];
      sums.hzx = product(3) * node.step[kHz];
    }
    *weight = sums.h;
    return sums.score(node.reg_lambda, node.slope_ridge, node.ridge, node.noise);
  }

  template <bool MISSING>
  void score(const ScanNode& node, const ScanFeature& feature, bool missing_left,
             const Candidates& c, float* out) const {
    const One own = *this;
    const Constants constants(node, products[c.n - 1]);
    const i32x8 absent = bin(feature, feature.missing);
    const double min_weight = node.config->min_child_weight;
    const bool with_x = feature.means != nullptr;
    for (int i = c.first; i < c.last; i += 8) {
      i32x8 sums[8];
      f64x8 product[4] = {}, rest[4] = {};
      own.turn_lanes(i, sums);
      if (with_x) {
        own.turn_products(i, product);
        for (int q = 0; q < 4; ++q) rest[q] = constants.whole[q] - product[q];
      }
      const auto all_left = [&](int j) __attribute__((always_inline)) {
        return to_double(MISSING && missing_left ? sums[j] + absent[j] : sums[j]);
      };
      const auto all_right = [&](int j) __attribute__((always_inline)) {
        return to_double(constants.totals[j] -
                         (MISSING && missing_left ? sums[j] + absent[j] : sums[j]));
      };
      const auto there_left = [&](int j)
                                  __attribute__((always_inline)) { return to_double(sums[j]); };
      const auto there_right = [&](int j) __attribute__((always_inline)) {
        return to_double(MISSING ? (constants.totals[j] - absent[j]) - sums[j]
                                 : constants.totals[j] - sums[j]);
      };
      const auto left = [&](int q) __attribute__((always_inline)) { return product[q]; };
      const auto right = [&](int q) __attribute__((always_inline)) { return rest[q]; };
      f64x8 weight_left, weight_right;
      const f64x8 sum_left = side(constants, all_left, there_left, left, &weight_left);
      const f64x8 sum_right = side(constants, all_right, there_right, right, &weight_right);
      store_scores(sum_left + sum_right, weight_left, weight_right, min_weight, out + i);
    }
  }
};

// Running sums over the bins of a feature: rows of kRow numbers, one per lane, then one per
// product.
struct Running {
  int32_t* lanes;
  double* products;
  int n_lanes, n_products;
  int32_t* lane(int j) const { return lanes + j * kRow; }
  double* product(int q) const { return products + q * kRow; }
};

// List candidates as `list_candidates` does, with missing values on neither side, and fill `sums`.
int run_over_bins(const ScanNode& node, const ScanFeature& feature, ScanScratch& s,
                  const Running& sums) {
  const ChannelLayout& layout = *node.layout;
  const int K = layout.n_outputs, h_lane = layout.hessian_offset, first = layout.first_product();
  const int p = layout.regressors;
  for (int j = 0; j < sums.n_lanes; ++j) sums.lane(j)[0] = 0;
  for (int q = 0; q < sums.n_products; ++q) sums.product(q)[0] = 0;
  int m = 0;
  int32_t count = 0;
  const auto add = [&](int b) __attribute__((always_inline)) {
    const int32_t c = static_cast<int32_t>(feature.count(layout, b));
    const int32_t* at = feature.bin(layout, b);
    const int before = m == 0 ? 0 : m - 1;
    s.bins[m] = b;
    s.count[m] = count += c;
    for (int j = 0; j < sums.n_lanes; ++j) sums.lane(j)[m] = sums.lane(j)[before] + at[j];
    if (sums.n_products > 0) {
      const double x = feature.means[b], h = h_lane < 0 ? c : at[h_lane];
      for (int k = 0; k < K; ++k) sums.product(k)[m] = sums.product(k)[before] + at[k] * x;
      sums.product(K)[m] = sums.product(K)[before] + h * x;
      sums.product(K + 1)[m] = sums.product(K + 1)[before] + h * (x * x);
      for (int i = 0; i < p; ++i)
        sums.product(K + 2 + i)[m] = sums.product(K + 2 + i)[before] + at[first + i] * x;
    }
    m += (c != 0) | (b == 0);
  };
  visit_bins(feature, add);
  return m;
}

// Write the score sums of candidates [c.first, c.last).
template <int P>
void score_candidates(const ScanNode& node, const ScanFeature& feature, bool missing_left,
                      const Candidates& c, const ScanScratch& s, const Running& sums, float* out) {
  const ChannelLayout& layout = *node.layout;
  const int32_t* absent = feature.bin(layout, feature.missing);
  const int32_t n_absent = static_cast<int32_t>(feature.count(layout, feature.missing));
  const double min_weight = node.config->min_child_weight;
  const bool with_x = feature.means != nullptr;
  for (int i = c.first; i < c.last; i += 8) {
    const auto there_left = [&](int j) __attribute__((always_inline)) {
      return to_double(load<i32x8>(sums.lane(j) + i));
    };
    const auto there_right = [&](int j) __attribute__((always_inline)) {
      return to_double((node.totals[j] - absent[j]) - load<i32x8>(sums.lane(j) + i));
    };
    const auto all_left = [&](int j) __attribute__((always_inline)) {
      const i32x8 v = load<i32x8>(sums.lane(j) + i);
      return to_double(missing_left ? v + absent[j] : v);
    };
    const auto all_right = [&](int j) __attribute__((always_inline)) {
      const i32x8 v = load<i32x8>(sums.lane(j) + i);
      return to_double(node.totals[j] - (missing_left ? v + absent[j] : v));
    };
    const auto product_left = [&](int q) __attribute__((always_inline)) {
      return load<f64x8>(sums.product(q) + i);
    };
    const auto product_right = [&](int q) __attribute__((always_inline)) {
      return sums.product(q)[c.n - 1] - load<f64x8>(sums.product(q) + i);
    };
    const i32x8 there = load<i32x8>(s.count + i), left = missing_left ? there + n_absent : there;
    f64x8 weight_left, weight_right, middle;
    const f64x8 sum_left =
        SideSums<f64x8, P, decltype(all_left), decltype(there_left), decltype(product_left)>{
            node, layout, all_left, there_left, product_left, with_x}
            .score(to_double(left), to_double(there), &weight_left, &middle, nullptr, nullptr);
    const f64x8 sum_right =
        SideSums<f64x8, P, decltype(all_right), decltype(there_right), decltype(product_right)>{
            node, layout, all_right, there_right, product_right, with_x}
            .score(to_double(node.count - left), to_double((node.count - n_absent) - there),
                   &weight_right, &middle, nullptr, nullptr);
    store_scores(sum_left + sum_right, weight_left, weight_right, min_weight, out + i);
  }
}

Running running(const ScanNode& node, const ScanScratch& s, bool with_x) {
  const ChannelLayout& layout = *node.layout;
  Running sums;
  sums.n_lanes = layout.n_outputs + layout.n_hessian() + layout.n_products();
  sums.n_products = with_x ? layout.n_outputs + 2 + layout.regressors : 0;
  sums.products = s.moments;
  sums.lanes =
      reinterpret_cast<int32_t*>(s.moments + (layout.n_outputs + 2 + layout.regressors) * kRow);
  return sums;
}

template <int P>
void scan(const ScanNode& node, const ScanFeature& feature, ScanScratch& s, NumericBest* best) {
  const Running sums = running(node, s, feature.means != nullptr);
  const int m = run_over_bins(node, feature, s, sums);
  scan_listed(node, feature, m, s, best, [&](bool missing_left, const Candidates& c, float* out) {
    score_candidates<P>(node, feature, missing_left, c, s, sums, out);
  });
}

template <int P, bool UNIT>
void scan_one(const One<P, UNIT>& one, const ScanNode& node, const ScanFeature& feature,
              ScanScratch& s, NumericBest* best) {
  const int m = one.run_over_bins(feature, s);
  scan_listed(node, feature, m, s, best, [&](bool missing_left, const Candidates& c, float* out) {
    if (feature.count(*node.layout, feature.missing) != 0)
      one.template score<true>(node, feature, missing_left, c, out);
    else
      one.template score<false>(node, feature, missing_left, c, out);
  });
}

// Call f with the scan of a node of one output and at most one regressor.
template <class F>
POLYLEAF_INLINE void visit_one(const ScanNode& node, double* moments, const F& f) {
  const bool unit = node.layout->hessian == HessianKind::unit;
  if (node.layout->regressors == 0)
    unit ? f(One<0, true>(moments)) : f(One<0, false>(moments));
  else
    unit ? f(One<1, true>(moments)) : f(One<1, false>(moments));
}

bool has_one(const ChannelLayout& layout) {
  return layout.n_outputs == 1 && layout.regressors <= 1;
}

bool has_many(const ChannelLayout& layout) {
  return layout.n_outputs > 1 && layout.regressors == 0;
}

// Call f with the number of the node's regressors, as a constant if it has specialised code.
template <class F>
void visit_regressor_count(const ScanNode& node, F f) {
  if constexpr (kSpecialised) {
    switch (node.layout->regressors) {
#define POLYLEAF_CASE(P) \
  case P:                \
    return f(std::integral_constant<int, P>());
      POLYLEAF_CASE(1)
      POLYLEAF_CASE(2)
      POLYLEAF_CASE(3)
      POLYLEAF_CASE(4)
      POLYLEAF_CASE(5)
#undef POLYLEAF_CASE
    }
  }
  f(std::integral_constant<int, kAnyRegressors>());
}

void scan_numeric(const ScanNode& node, const ScanFeature& feature, ScanScratch& scratch,
                  NumericBest* best) {
  const ChannelLayout& layout = *node.layout;
  if (has_many(layout)) {
    if (layout.hessian == HessianKind::diagonal)
      return Many<true>(node, feature, scratch).scan(best);
    if (layout.n_outputs <= 8) return Many<false, 1>(node, feature, scratch).scan(best);
    if (layout.n_outputs <= 16) return Many<false, 2>(node, feature, scratch).scan(best);
    return Many<false>(node, feature, scratch).scan(best);
  }
  if (has_one(layout))
    return visit_one(node, scratch.moments,
                     [&](const auto& one) { scan_one(one, node, feature, scratch, best); });
  visit_regressor_count(node,
                        [&](auto p) { scan<decltype(p)::value>(node, feature, scratch, best); });
}

// Score one side, from integer sums over all its rows, over those where x is present, and products
// with x (nullptr: x is not used); all readable to the next eight.
double score_side(const ScanNode& node, const int32_t* lanes, int32_t count, const int32_t* there,
                  int32_t count_there, const double* products, double* weight,
                  const SideSolution* solution) {
  const ChannelLayout& layout = *node.layout;
  if (has_many(layout))
    return layout.hessian == HessianKind::diagonal
               ? score_many<true>(node, lanes, count, there, count_there, products, weight,
                                  solution)
               : score_many<false>(node, lanes, count, there, count_there, products, weight,
                                   solution);
  const auto all = [&](int j) { return static_cast<double>(lanes[j]); };
  const auto here = [&](int j) { return static_cast<double>(there[j]); };
  const auto product = [&](int q) { return products[q]; };
  double middle;
  const double sum =
      SideSums<double, kAnyRegressors, decltype(all), decltype(here), decltype(product)>{
          node, layout, all, here, product, products != nullptr}
          .score(count, count_there, weight, &middle,
                 solution != nullptr ? solution->slopes : nullptr,
                 solution != nullptr ? solution->terms : nullptr);
  if (solution != nullptr)
    for (int k = 0; k < layout.n_outputs; ++k) solution->middle[k] = middle;
  return sum;
}

// Score a categorical split: no feature joins.
float candidate_sum(const ScanNode& node, const int32_t* left, int32_t left_count) {
  int32_t* right = reinterpret_cast<int32_t*>(node.workspace);
  const int readable = node.layout->lanes + 8;
  for (int j = 0; j < readable; ++j) right[j] = node.totals[j] - left[j];
  double weight_left, weight_right;
  const double sum_left =
      score_side(node, left, left_count, left, 0, nullptr, &weight_left, nullptr);
  const double sum_right =
      score_side(node, right, node.count - left_count, right, 0, nullptr, &weight_right, nullptr);
  const double min_weight = node.config->min_child_weight;
  return weight_left >= min_weight && weight_right >= min_weight
             ? static_cast<float>(sum_left + sum_right)
             : kNone;
}

float node_sum(const ScanNode& node) {
  double weight;
  return static_cast<float>(
      score_side(node, node.totals, node.count, node.totals, 0, nullptr, &weight, nullptr));
}

float node_hessian(const ScanNode& node) {
  return separable_scores.node_hessian(node);
}

// Sum products of the bins up to `last` with their means, and of all bins, for the slopes of the
// best split.
void products(const ScanNode& node, const ScanFeature& feature, int last, double* left,
              double* whole) {
  const ChannelLayout& layout = *node.layout;
  if (has_one(layout))
    return visit_one(node, nullptr,
                     [&](const auto& one) { one.sum_products(feature, last, left, whole); });
  const int K = layout.n_outputs, p = layout.regressors, h_lane = layout.hessian_offset;
  const int m = layout.hessian == HessianKind::diagonal ? K : 1, n = K + 2 * m + p;
  for (int q = 0; q < n; ++q) whole[q] = 0;
  for (int b = 0; b < feature.n_bins; ++b) {
    const int32_t* at = feature.bin(layout, b);
    const double x = feature.means[b];
    for (int k = 0; k < K; ++k) whole[k] += at[k] * x;
    for (int j = 0; j < m; ++j) {
      const double h = h_lane < 0 ? feature.count(layout, b) : at[h_lane + j];
      whole[K + j] += h * x;
      whole[K + m + j] += h * (x * x);
    }
    for (int i = 0; i < p; ++i) whole[K + 2 + i] += at[layout.first_product() + i] * x;
    if (b == last)
      for (int q = 0; q < n; ++q) left[q] = whole[q];
  }
}

void solve(const ScanNode& node, const int32_t* lanes, int32_t count, const int32_t* there,
           int32_t count_there, const double* products_with_x, double* slopes, double* middle,
           double* terms) {
  double weight;
  const SideSolution solution{slopes, middle, terms};
  score_side(node, lanes, count, there, count_there, products_with_x, &weight, &solution);
}

}  // namespace

const LinearKernels linear_kernels = {products, solve};
const ScoreKernels linear_scores = {scan_numeric, candidate_sum, node_sum, node_hessian, nullptr};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
