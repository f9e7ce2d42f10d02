// The scan over candidates where leaves are linear (split.h, scores/linear.h): running sums of channels and
// of their products with bin means, then eight candidates at a time.
#include "../scores/linear.h"
#include "../split.h"
#include "candidates.h"
#include "lanes.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

typedef float f32x8 __attribute__((vector_size(32)));
typedef double f64x4 __attribute__((vector_size(32)));

POLYLEAF_INLINE f64x8 to_double(i32x8 v) {
  return __builtin_convertvector(v, f64x8);
}

// Sums of one side in the unit of the derivatives. LANE(j): the integer sum of lane j over all rows or over
// those where x is there; PRODUCT(q): product number q with x. As doubles, or as eight candidates each.
template <class V, int P, class All, class There, class Product>
struct SideSums {
  const ScanNode& node;
  const ChannelLayout& layout;
  const All& all;
  const There& there;
  const Product& product;
  bool with_x;

  POLYLEAF_METHOD double step(int lane) const { return static_cast<double>(node.linear->step[lane]); }
  POLYLEAF_METHOD int h_lane() const { return layout.curvature_offset; }
  // Curvature of the rows, or their number where it is 1.
  template <class Sums>
  POLYLEAF_METHOD V curvature(const Sums& sums, V count) const {
    return h_lane() < 0 ? count : sums(h_lane()) * step(h_lane());
  }
  POLYLEAF_METHOD double h_step() const { return h_lane() < 0 ? 1.0 : step(h_lane()); }

  // Of all outputs; `slopes` (P + 1, K), where wanted: of x, then of the node's own regressors.
  POLYLEAF_METHOD V score(V count, V count_there, V* weight, V* middle, double* slopes, double* terms) const {
    const LinearScan& linear = *node.linear;
    const int K = layout.n_outputs, first = layout.first_product(), second = layout.second_moments();
    const int gz = layout.gradient_products();
    LinearSide<V, P> side;
    *weight = curvature(all, count);
    side.moments(
        count, *weight,
        [&](int i) __attribute__((always_inline)) { return all(first + i) * step(first + i); },
        [&](int i, int j) __attribute__((always_inline)) {
          const int lane = second + packed(i, j);
          return all(lane) * step(lane);
        },
        node.config->reg_lambda, linear.ridge.data(), linear.noise.data());
    if (with_x)
      side.regressor(
          curvature(there, count_there), product(K) * h_step(), product(K + 1) * h_step(),
          [&](int i) __attribute__((always_inline)) { return there(first + i) * step(first + i); },
          [&](int i) __attribute__((always_inline)) { return product(K + 2 + i) * step(first + i); },
          linear.slope_ridge);
    side.eliminate();
    *middle = side.middle;
    V sum = V{};
    for (int k = 0; k < K; ++k) {
      V y[P + 1];
      const V g = all(k) * step(k);
      side.right_hand_side(
          g, with_x ? product(k) * step(k) : V{}, with_x ? there(k) * step(k) : V{},
          [&](int i) __attribute__((always_inline)) { return all(gz + i * K + k) * step(gz + i * K + k); },
          y);
      const V term = side.score(g, y);
      sum = k == 0 ? term : sum + term;
      if constexpr (sizeof(V) == sizeof(double)) {
        if (terms != nullptr) terms[k] = term;
        if (slopes == nullptr) continue;
        side.solve(y);
        for (int j = 0; j <= P; ++j) slopes[j * K + k] = -y[j];
      }
    }
    return sum;
  }
};

// Running sums over the bins of a feature: rows of kRow numbers, one for each lane, then one for each
// product.
constexpr int kRow = 272;

struct Running {
  int32_t* lanes;
  double* products;
  int n_lanes, n_products;
  int32_t* lane(int j) const { return lanes + j * kRow; }
  double* product(int q) const { return products + q * kRow; }
};

// Lists candidates as `list_candidates` does, with missing values on neither side, and fills `sums`.
template <int P>
int run_over_bins(const ScanNode& node, const ScanFeature& feature, ScanScratch& s, const Running& sums) {
  const ChannelLayout& layout = *node.layout;
  const int K = layout.n_outputs, h_lane = layout.curvature_offset, first = layout.first_product();
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
      for (int i = 0; i < P; ++i)
        sums.product(K + 2 + i)[m] = sums.product(K + 2 + i)[before] + at[first + i] * x;
    }
    m += (c != 0) | (b == 0);
  };
  if (feature.touched == nullptr) {
    for (int b = 0; b < feature.n_bins; ++b) add(b);
  } else {
    for (int word = 0; word < 4; ++word) {
      uint64_t bits = feature.touched[word] | (word == 0 ? 1 : 0);
      for (; bits != 0; bits &= bits - 1) {
        const int b = word * 64 + __builtin_ctzll(bits);
        if (b < feature.n_bins) add(b);
      }
    }
  }
  return m;
}

// Score sums as floats, -inf where a child is too light.
POLYLEAF_INLINE f32x8 narrowed(f64x8 sum, f64x8 weight_left, f64x8 weight_right, double least) {
  const f64x8 none = f64x8{} + static_cast<double>(kNone);
  sum = weight_left >= least ? sum : none;
  sum = weight_right >= least ? sum : none;
  return __builtin_convertvector(sum, f32x8);
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
    const auto product_left = [&](int q)
                                  __attribute__((always_inline)) { return load<f64x8>(sums.product(q) + i); };
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
            .score(to_double(node.count - left), to_double((node.count - n_absent) - there), &weight_right,
                   &middle, nullptr, nullptr);
    store(out + i, narrowed(sum_left + sum_right, weight_left, weight_right, least));
  }
}

// One output and at most one regressor, the half-additive fit: a bin's sums stand next to each other, as in
// the histogram, and are turned around eight candidates at a time.
template <int P, bool UNIT>
struct Narrow {
  static constexpr int kLanes = P == 0 ? 4 : 8;
  // Where g, h, the h that goes with x^2, and hz stand.
  static constexpr int kH = UNIT ? (P == 0 ? 1 : 4) : 1, kHz = UNIT ? 1 : 2;
  static constexpr int kCount = UNIT ? (P == 0 ? 1 : 4) : (P == 0 ? 2 : 5);

  int32_t (*lanes)[8];
  double (*products)[4];  // gx, hx, hxx, hzx

  explicit Narrow(const ScanScratch& s)
      : lanes(reinterpret_cast<int32_t (*)[8]>(s.moments + 4 * kRow)),
        products(reinterpret_cast<double (*)[4]>(s.moments)) {}

  POLYLEAF_METHOD i32x8 bin(const ScanFeature& feature, int b) const {
    if constexpr (P == 0) {
      const i32x4 half = load<i32x4>(feature.sums + b * 4);
      return __builtin_shufflevector(half, half, 0, 1, 2, 3, 0, 1, 2, 3);
    } else {
      return load<i32x8>(feature.sums + b * 8);
    }
  }

  int run_over_bins(const ScanFeature& feature, ScanScratch& s) const {
    i32x8 sum = {};
    f64x4 product = {};
    int m = 0;
    const auto add = [&](int b) __attribute__((always_inline)) {
      const i32x8 v = bin(feature, b);
      sum += v;
      store(lanes[m], sum);
      if (feature.means != nullptr) {
        const double x = feature.means[b];
        const i32x4 factor = __builtin_shufflevector(v, v, 0, kH, kH, kHz);
        product += __builtin_convertvector(factor, f64x4) * f64x4{x, x, x * x, x};
        store(products[m], product);
      }
      s.bins[m] = b;
      s.count[m] = sum[kCount];
      m += (v[kCount] != 0) | (b == 0);
    };
    if (feature.touched == nullptr) {
      for (int b = 0; b < feature.n_bins; ++b) add(b);
    } else {
      for (int word = 0; word < 4; ++word) {
        uint64_t bits = feature.touched[word] | (word == 0 ? 1 : 0);
        for (; bits != 0; bits &= bits - 1) {
          const int b = word * 64 + __builtin_ctzll(bits);
          if (b < feature.n_bins) add(b);
        }
      }
    }
    return m;
  }

  // Rows [i, i + 8) by column.
  POLYLEAF_METHOD void turn_lanes(int i, i32x8* out) const {
    i32x8 r[8], t[8];
    for (int j = 0; j < 8; ++j) r[j] = load<i32x8>(lanes[i + j]);
    interleave(r, t);
    interleave(t, r);
    interleave(r, out);
  }
  POLYLEAF_METHOD static void interleave(const i32x8* in, i32x8* out) {
    for (int j = 0; j < 4; ++j) {
      out[2 * j] = __builtin_shufflevector(in[j], in[j + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      out[2 * j + 1] = __builtin_shufflevector(in[j], in[j + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
  }
  POLYLEAF_METHOD void turn_products(int i, f64x8* out) const {
    f64x8 a[4];
    for (int j = 0; j < 4; ++j)
      a[j] = __builtin_shufflevector(load<f64x4>(products[i + j]), load<f64x4>(products[i + j + 4]), 0, 1, 2,
                                     3, 4, 5, 6, 7);
    for (int half = 0; half < 2; ++half) {
      const f64x8 even = half == 0 ? __builtin_shufflevector(a[0], a[1], 0, 8, 1, 9, 4, 12, 5, 13)
                                   : __builtin_shufflevector(a[0], a[1], 2, 10, 3, 11, 6, 14, 7, 15);
      const f64x8 odd = half == 0 ? __builtin_shufflevector(a[2], a[3], 0, 8, 1, 9, 4, 12, 5, 13)
                                  : __builtin_shufflevector(a[2], a[3], 2, 10, 3, 11, 6, 14, 7, 15);
      out[2 * half] = __builtin_shufflevector(even, odd, 0, 1, 8, 9, 4, 5, 12, 13);
      out[2 * half + 1] = __builtin_shufflevector(even, odd, 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }

  void score(const ScanNode& node, const ScanFeature& feature, bool missing_left, const Candidates& c,
             float* out) const {
    const i32x8 absent = bin(feature, feature.missing);
    const double least = node.config->min_child_weight;
    const bool with_x = feature.means != nullptr;
    for (int i = c.first; i < c.last; i += 8) {
      i32x8 there[8];
      f64x8 product[4] = {};
      turn_lanes(i, there);
      if (with_x) turn_products(i, product);
      const auto there_left = [&](int j) __attribute__((always_inline)) { return to_double(there[j]); };
      const auto there_right = [&](int j) __attribute__((always_inline)) {
        return to_double((node.totals[j] - absent[j]) - there[j]);
      };
      const auto all_left = [&](int j) __attribute__((always_inline)) {
        return to_double(missing_left ? there[j] + absent[j] : there[j]);
      };
      const auto all_right = [&](int j) __attribute__((always_inline)) {
        return to_double(node.totals[j] - (missing_left ? there[j] + absent[j] : there[j]));
      };
      const auto product_left = [&](int q) __attribute__((always_inline)) { return product[q]; };
      const auto product_right = [&](int q) __attribute__((always_inline)) {
        return products[c.n - 1][q] - product[q];
      };
      f64x8 weight_left, weight_right, middle;
      const f64x8 sum_left =
          SideSums<f64x8, P, decltype(all_left), decltype(there_left), decltype(product_left)>{
              node, *node.layout, all_left, there_left, product_left, with_x}
              .score(all_left(kCount), there_left(kCount), &weight_left, &middle, nullptr, nullptr);
      const f64x8 sum_right =
          SideSums<f64x8, P, decltype(all_right), decltype(there_right), decltype(product_right)>{
              node, *node.layout, all_right, there_right, product_right, with_x}
              .score(all_right(kCount), there_right(kCount), &weight_right, &middle, nullptr, nullptr);
      store(out + i, narrowed(sum_left + sum_right, weight_left, weight_right, least));
    }
  }
};

Running running(const ScanNode& node, const ScanScratch& s, bool with_x) {
  const ChannelLayout& layout = *node.layout;
  Running sums;
  sums.n_lanes = layout.n_outputs + layout.n_curvature() + layout.n_products();
  sums.n_products = with_x ? layout.n_outputs + 2 + layout.regressors : 0;
  sums.products = s.moments;
  sums.lanes = reinterpret_cast<int32_t*>(s.moments + (layout.n_outputs + 2 + layout.regressors) * kRow);
  return sums;
}

// Both directions for missing values; score(missing_left, candidates, sums) writes the score sums of
// candidates [first, last) of the m that are listed.
template <class F>
POLYLEAF_INLINE void scan_listed(const ScanNode& node, const ScanFeature& feature, int m, ScanScratch& s,
                                 NumericBest* best, F&& score) {
  *best = {kNone, -1, 0};
  const int32_t n_absent = static_cast<int32_t>(feature.count(*node.layout, feature.missing));
  const int32_t most = node.count - node.config->min_child_samples;
  for (int missing_left = 0; missing_left <= (n_absent != 0 ? 1 : 0); ++missing_left) {
    const int32_t shift = missing_left != 0 ? n_absent : 0;
    Candidates c{m, 0, m};
    while (c.first < m && s.count[c.first] + shift < node.config->min_child_samples) ++c.first;
    while (c.last > c.first && s.count[c.last - 1] + shift > most) --c.last;
    if (c.first >= c.last) continue;
    float* out = s.sums[missing_left];
    score(missing_left != 0, c, out);
    const int i = first_largest(out, c.first, c.last);
    if (i < 0) continue;
    if (out[i] > best->sum || (out[i] == best->sum && s.bins[i] < best->bin))
      *best = {out[i], s.bins[i], missing_left};
  }
}

template <int P>
void scan(const ScanNode& node, const ScanFeature& feature, ScanScratch& s, NumericBest* best) {
  const Running sums = running(node, s, feature.means != nullptr);
  const int m = run_over_bins<P>(node, feature, s, sums);
  scan_listed(node, feature, m, s, best, [&](bool missing_left, const Candidates& c, float* out) {
    score_candidates<P>(node, feature, missing_left, c, s, sums, out);
  });
}

template <int P, bool UNIT>
void scan_narrow(const ScanNode& node, const ScanFeature& feature, ScanScratch& s, NumericBest* best) {
  const Narrow<P, UNIT> narrow(s);
  const int m = narrow.run_over_bins(feature, s);
  scan_listed(node, feature, m, s, best, [&](bool missing_left, const Candidates& c, float* out) {
    narrow.score(node, feature, missing_left, c, out);
  });
}

// One side, from integer sums over all its rows, over those where x is there, and products with x (nullptr: x
// takes no part).
template <int P>
double score_side(const ScanNode& node, const int32_t* lanes, int32_t count, const int32_t* there,
                  int32_t count_there, const double* products, double* weight, double* middle, double* slopes,
                  double* terms) {
  const auto all = [&](int j) { return static_cast<double>(lanes[j]); };
  const auto here = [&](int j) { return static_cast<double>(there[j]); };
  const auto product = [&](int q) { return products[q]; };
  return SideSums<double, P, decltype(all), decltype(here), decltype(product)>{
      node, *node.layout, all, here, product, products != nullptr}
      .score(count, count_there, weight, middle, slopes, terms);
}

// Calls f with the number of the node's regressors as a constant.
template <class F>
auto with_regressors(const ScanNode& node, F f) {
  switch (node.layout->regressors) {
#define POLYLEAF_CASE(P) \
  case P:                \
    return f(std::integral_constant<int, P>());
    POLYLEAF_CASE(1)
    POLYLEAF_CASE(2)
    POLYLEAF_CASE(3)
    POLYLEAF_CASE(4)
    POLYLEAF_CASE(5)
    POLYLEAF_CASE(6)
    POLYLEAF_CASE(7)
    POLYLEAF_CASE(8)
#undef POLYLEAF_CASE
    default:
      return f(std::integral_constant<int, 0>());
  }
}

void scan_numeric(const ScanNode& node, const ScanFeature& feature, ScanScratch& scratch, NumericBest* best) {
  const ChannelLayout& layout = *node.layout;
  if (layout.n_outputs == 1 && layout.regressors <= 1) {
    if (layout.curvature == Curvature::unit)
      return layout.regressors == 0 ? scan_narrow<0, true>(node, feature, scratch, best)
                                    : scan_narrow<1, true>(node, feature, scratch, best);
    return layout.regressors == 0 ? scan_narrow<0, false>(node, feature, scratch, best)
                                  : scan_narrow<1, false>(node, feature, scratch, best);
  }
  with_regressors(node, [&](auto p) { scan<decltype(p)::value>(node, feature, scratch, best); });
}

// A set of categories goes left: no feature joins.
float candidate_sum(const ScanNode& node, const int32_t* left, int32_t left_count) {
  int32_t* right = reinterpret_cast<int32_t*>(node.workspace);
  const ChannelLayout& layout = *node.layout;
  const int n_lanes = layout.n_outputs + layout.n_curvature() + layout.n_products();
  for (int j = 0; j < n_lanes; ++j) right[j] = node.totals[j] - left[j];
  return with_regressors(node, [&](auto p) {
    constexpr int P = decltype(p)::value;
    double weight_left, weight_right, middle;
    const double sum_left =
        score_side<P>(node, left, left_count, nullptr, 0, nullptr, &weight_left, &middle, nullptr, nullptr);
    const double sum_right = score_side<P>(node, right, node.count - left_count, nullptr, 0, nullptr,
                                           &weight_right, &middle, nullptr, nullptr);
    const double least = node.config->min_child_weight;
    return weight_left >= least && weight_right >= least ? static_cast<float>(sum_left + sum_right) : kNone;
  });
}

float node_sum(const ScanNode& node) {
  return with_regressors(node, [&](auto p) {
    double weight, middle;
    return static_cast<float>(score_side<decltype(p)::value>(node, node.totals, node.count, nullptr, 0,
                                                             nullptr, &weight, &middle, nullptr, nullptr));
  });
}

float node_curvature(const ScanNode& node) {
  const int lane = node.layout->curvature_offset;
  return lane < 0 ? static_cast<float>(node.count)
                  : static_cast<float>(node.totals[lane]) * node.linear->step[lane];
}

// Products of the bins up to `last` with their means, and of all bins: what the winner's slopes are solved
// from.
void products(const ScanNode& node, const ScanFeature& feature, int last, double* left, double* whole) {
  const ChannelLayout& layout = *node.layout;
  const int K = layout.n_outputs, p = layout.regressors, h_lane = layout.curvature_offset;
  for (int q = 0; q < K + 2 + p; ++q) whole[q] = 0;
  for (int b = 0; b < feature.n_bins; ++b) {
    const int32_t* at = feature.bin(layout, b);
    const double x = feature.means[b], h = h_lane < 0 ? feature.count(layout, b) : at[h_lane];
    for (int k = 0; k < K; ++k) whole[k] += at[k] * x;
    whole[K] += h * x;
    whole[K + 1] += h * (x * x);
    for (int i = 0; i < p; ++i) whole[K + 2 + i] += at[layout.first_product() + i] * x;
    if (b == last)
      for (int q = 0; q < K + 2 + p; ++q) left[q] = whole[q];
  }
}

void solve(const ScanNode& node, const int32_t* lanes, int32_t count, const int32_t* there,
           int32_t count_there, const double* products_with_x, double* slopes, double* middle,
           double* terms) {
  with_regressors(node, [&](auto p) {
    double weight;
    score_side<decltype(p)::value>(node, lanes, count, there, count_there, products_with_x, &weight, middle,
                                   slopes, terms);
  });
}

}  // namespace

const LinearKernels linear_kernels = {products, solve};
const ScoreKernels linear_scores = {scan_numeric, candidate_sum, node_sum, node_curvature, nullptr};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
