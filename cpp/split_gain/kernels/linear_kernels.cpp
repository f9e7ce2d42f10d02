// The scan over candidates where leaves are linear (score_kernels.h, split_gain/linear.h): running
// sums of channels and of their products with bin means. One output (linear_one.h) and many without
// regressors of the node's own (linear_many.h) have scans of their own; the others are here, eight
// candidates at a time.
#include "split_gain/kernels/linear_many.h"
#include "split_gain/kernels/linear_one.h"
#include "split_gain/score_kernels.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

// Running sums over the bins of a feature: rows of kRow numbers, one for each lane, then one for
// each product.
struct Running {
  int32_t* lanes;
  double* products;
  int n_lanes, n_products;
  int32_t* lane(int j) const { return lanes + j * kRow; }
  double* product(int q) const { return products + q * kRow; }
};

// Lists candidates as `list_candidates` does, with missing values on neither side, and fills
// `sums`.
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

// Score sums of candidates [c.first, c.last).
template <int P>
void score_candidates(const ScanNode& node, const ScanFeature& feature, bool missing_left,
                      const Candidates& c, const ScanScratch& s, const Running& sums, float* out) {
  const ChannelLayout& layout = *node.layout;
  const int32_t* absent = feature.bin(layout, feature.missing);
  const int32_t n_absent = static_cast<int32_t>(feature.count(layout, feature.missing));
  const double least = node.config->min_child_weight;
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
    store_scores(sum_left + sum_right, weight_left, weight_right, least, out + i);
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

// Calls f with the scan of a node of one output and at most one regressor.
template <class F>
POLYLEAF_INLINE void with_one(const ScanNode& node, double* moments, const F& f) {
  const bool unit = node.layout->hessian == Hessian::unit;
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

// Calls f with the number of the node's regressors where that is a constant worth code of its own.
template <class F>
void with_regressors(const ScanNode& node, F f) {
  if constexpr (kOwnCode) {
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
    if (layout.hessian == Hessian::diagonal) return Many<true>(node, feature, scratch).scan(best);
    if (layout.n_outputs <= 8) return Many<false, 1>(node, feature, scratch).scan(best);
    if (layout.n_outputs <= 16) return Many<false, 2>(node, feature, scratch).scan(best);
    return Many<false>(node, feature, scratch).scan(best);
  }
  if (has_one(layout))
    return with_one(node, scratch.moments,
                    [&](const auto& one) { scan_one(one, node, feature, scratch, best); });
  with_regressors(node, [&](auto p) { scan<decltype(p)::value>(node, feature, scratch, best); });
}

// One side, from integer sums over all its rows, over those where x is there, and products with x
// (nullptr: x takes no part); all readable to the next eight.
double score_side(const ScanNode& node, const int32_t* lanes, int32_t count, const int32_t* there,
                  int32_t count_there, const double* products, double* weight,
                  const SideSolution* wanted) {
  const ChannelLayout& layout = *node.layout;
  if (has_many(layout))
    return layout.hessian == Hessian::diagonal
               ? score_many<true>(node, lanes, count, there, count_there, products, weight, wanted)
               : score_many<false>(node, lanes, count, there, count_there, products, weight,
                                   wanted);
  const auto all = [&](int j) { return static_cast<double>(lanes[j]); };
  const auto here = [&](int j) { return static_cast<double>(there[j]); };
  const auto product = [&](int q) { return products[q]; };
  double middle;
  const double sum =
      SideSums<double, kAnyRegressors, decltype(all), decltype(here), decltype(product)>{
          node, layout, all, here, product, products != nullptr}
          .score(count, count_there, weight, &middle, wanted != nullptr ? wanted->slopes : nullptr,
                 wanted != nullptr ? wanted->terms : nullptr);
  if (wanted != nullptr)
    for (int k = 0; k < layout.n_outputs; ++k) wanted->middle[k] = middle;
  return sum;
}

// A set of categories goes left: no feature joins.
float candidate_sum(const ScanNode& node, const int32_t* left, int32_t left_count) {
  int32_t* right = reinterpret_cast<int32_t*>(node.workspace);
  const int readable = node.layout->lanes + 8;
  for (int j = 0; j < readable; ++j) right[j] = node.totals[j] - left[j];
  double weight_left, weight_right;
  const double sum_left =
      score_side(node, left, left_count, left, 0, nullptr, &weight_left, nullptr);
  const double sum_right =
      score_side(node, right, node.count - left_count, right, 0, nullptr, &weight_right, nullptr);
  const double least = node.config->min_child_weight;
  return weight_left >= least && weight_right >= least ? static_cast<float>(sum_left + sum_right)
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

// Products of the bins up to `last` with their means, and of all bins: what the winner's slopes are
// solved from.
void products(const ScanNode& node, const ScanFeature& feature, int last, double* left,
              double* whole) {
  const ChannelLayout& layout = *node.layout;
  if (has_one(layout))
    return with_one(node, nullptr,
                    [&](const auto& one) { one.sum_products(feature, last, left, whole); });
  const int K = layout.n_outputs, p = layout.regressors, h_lane = layout.hessian_offset;
  const int m = layout.hessian == Hessian::diagonal ? K : 1, n = K + 2 * m + p;
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
  const SideSolution wanted{slopes, middle, terms};
  score_side(node, lanes, count, there, count_there, products_with_x, &weight, &wanted);
}

}  // namespace

const LinearKernels linear_kernels = {products, solve};
const ScoreKernels linear_scores = {scan_numeric, candidate_sum, node_sum, node_hessian, nullptr};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
