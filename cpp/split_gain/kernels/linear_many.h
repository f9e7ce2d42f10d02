// Many outputs and no regressors of the node's own, where leaves are linear: eight outputs at a
// time. What the node's ancestors have fitted is in its gradients (linear_gradients.h), so a side
// has an intercept and the slope of the candidate's feature x for each output; both centred, so
// they are independent.
//
// Included by linear_kernels.cpp only, inside the namespace of an instruction set.
#pragma once
#include "split_gain/kernels/linear_side.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

// Compute the mean of x, and the inverse of its penalised spread, 0 if x is almost constant.
template <class V>
POLYLEAF_INLINE void compute_centre(const ScanNode& node, V h_there, V hx, V hxx, V* middle,
                                    V* kept) {
  *middle = hx * invert_positive(h_there);
  const V spread = hxx - hx * *middle;
  *kept =
      select(spread > kMinSpread * hxx, invert_positive(spread + node.linear->slope_ridge), V{});
}

// Outputs of a solved side, one number per output each.
struct SideSolution {
  double *slopes, *middle, *terms;
};

// Numbers that all outputs of a side share with a shared Hessian, stored in blocks by kind.
enum Common { kWeight, kInversePenalised, kMiddle, kKept };

// One side. all(j), there(j): eight integer sums from lane j on, over all its rows and over those
// where x is present. product(q): eight products with x from number q on: g of every output, then h
// x, then h x^2 (of every output, or one for all). DIAGONAL: each output has its own Hessian.
template <bool DIAGONAL, class All, class There, class Product>
struct ManySide {
  const ScanNode& node;
  const All& all;
  const There& there;
  const Product& product;
  int32_t count, count_there;
  bool with_x;
  const double* common = nullptr;  // shared numbers of the candidate, if they are known already

  struct HessianTerms {  // of eight outputs, or of all
    f64x8 weight, inverse_penalised, middle, kept;
  };
  template <class V>
  POLYLEAF_INLINE_MEMBER void hessian(V h, V h_there, V hx, V hxx, V* inverse_penalised, V* middle,
                                      V* kept) const {
    *inverse_penalised = invert_positive(h + static_cast<double>(node.config->reg_lambda));
    *middle = *kept = V{};
    if (with_x) compute_centre(node, h_there, hx, hxx, middle, kept);
  }
  POLYLEAF_INLINE_MEMBER HessianTerms
  load_shared() const {  // a shared Hessian, or the number of rows
    if (common != nullptr)
      return {broadcast(common[kWeight * kRow]), broadcast(common[kInversePenalised * kRow]),
              broadcast(common[kMiddle * kRow]), broadcast(common[kKept * kRow])};
    const int K = node.layout->n_outputs, lane = node.layout->hessian_offset;
    const double step = lane < 0 ? 1.0 : static_cast<double>(node.hessian_step[0]);
    const double h = lane < 0 ? count : all(lane)[0] * step;
    const double h_there = lane < 0 ? count_there : there(lane)[0] * step;
    double inverse_penalised, middle, kept;
    hessian(h, h_there, with_x ? product(K)[0] * step : 0.0,
            with_x ? product(K + 1)[0] * step : 0.0, &inverse_penalised, &middle, &kept);
    return {broadcast(h), broadcast(inverse_penalised), broadcast(middle), broadcast(kept)};
  }
  POLYLEAF_INLINE_MEMBER HessianTerms load_outputs(int k) const {
    const int K = node.layout->n_outputs;
    const f64x8 step = to_double(node.hessian_step + k);
    HessianTerms c;
    c.weight = to_double(all(K + k)) * step;
    hessian<f64x8>(
        c.weight, to_double(there(K + k)) * step, with_x ? product(K + k) * step : f64x8{},
        with_x ? product(2 * K + k) * step : f64x8{}, &c.inverse_penalised, &c.middle, &c.kept);
    return c;
  }

  // Return eight numbers whose sum is twice the loss removed; `weights`: eight numbers whose sum is
  // the Hessian of the side (DIAGONAL), or eight copies of it.
  POLYLEAF_INLINE_MEMBER f64x8 terms(f64x8* weights, const SideSolution* solution) const {
    const int K = node.layout->n_outputs;
    f64x8 sum = {};
    HessianTerms c;
    *weights = f64x8{};
    if (!DIAGONAL) c = load_shared();
    for (int k = 0; k < K; k += 8) {
      if (DIAGONAL) {
        c = load_outputs(k);
        *weights += c.weight;
      }
      const f64x8 step = to_double(node.gradient_step + k);
      const f64x8 g = to_double(all(k)) * step;
      f64x8 term = (g * g) * c.inverse_penalised, y = {};
      if (with_x) {
        y = product(k) * step - c.middle * (to_double(there(k)) * step);
        term += (y * y) * c.kept;
      }
      sum += term;
      if (solution != nullptr) keep(*solution, k, term, y * c.kept, c.middle);
    }
    if (!DIAGONAL) *weights = c.weight;
    return sum;
  }
  // Return their sum; `weight`: the Hessian of the side, mean over outputs.
  POLYLEAF_INLINE_MEMBER double score(double* weight, const SideSolution* solution) const {
    f64x8 weights;
    const double sum = fold(terms(&weights, solution));
    *weight = DIAGONAL ? fold(weights) / node.layout->n_outputs : weights[0];
    return sum;
  }
  POLYLEAF_INLINE_MEMBER void keep(const SideSolution& out, int k, f64x8 term, f64x8 minus_slope,
                                   f64x8 middle) const {
    const int n = node.layout->n_outputs - k < 8 ? node.layout->n_outputs - k : 8;
    for (int j = 0; j < n; ++j) {
      out.terms[k + j] = term[j];
      out.middle[k + j] = middle[j];
      if (out.slopes != nullptr) out.slopes[k + j] = -minus_slope[j];
    }
  }
};

// The scan of one feature: running sums of a bin's lanes and of their products, then both sides.
// GROUPS: number of blocks of eight outputs, if specialised for a shared Hessian: sums stay in
// registers. Lanes after the outputs are undefined then, and their steps are 0.
template <bool DIAGONAL, int GROUPS = 0>
class Many {
 public:
  Many(const ScanNode& scan_node, const ScanFeature& scan_feature, ScanScratch& s)
      : node(scan_node),
        feature(scan_feature),
        K(node.layout->n_outputs),
        lane_h(node.layout->hessian_offset),
        n_lanes(K + node.layout->n_hessian()),
        n_products(scan_feature.means != nullptr ? (DIAGONAL ? 3 * K : K + 2) : 0),
        scratch(s) {
    double* free = s.moments;
    before = free;
    whole = before + padded(3 * K);
    run = reinterpret_cast<int32_t*>(whole + padded(3 * K));
    absent = run + padded(n_lanes);
    candidates = reinterpret_cast<double*>(absent + padded(n_lanes));
    n_absent = static_cast<int32_t>(feature.count(*node.layout, feature.missing));
    const int32_t* at = feature.bin(*node.layout, feature.missing);
    for (int j = 0; j < padded(n_lanes); ++j) absent[j] = j < n_lanes ? at[j] : 0;
    for (int q = 0; q < padded(3 * K); ++q) whole[q] = 0;
  }

  void scan(NumericBest* best) {
    const int m = list();
    scan_listed(
        node, feature, m, scratch, best, [&](bool missing_left, const Candidates& c, float* out) {
          if (!DIAGONAL) share(c.n, missing_left);
          n_absent == 0 ? score<false>(c, missing_left, out) : score<true>(c, missing_left, out);
        });
  }

 private:
  static_assert(!DIAGONAL || GROUPS == 0);
  static constexpr int kGroups = GROUPS > 0 ? GROUPS : 1;

  static int padded(int n) { return (n + 23) / 8 * 8; }

  // Running sums of h, h x and h x^2 over the rows where x is present, kRow candidates each; then
  // the shared numbers of the left and of the right side.
  double* sums_of_h(int which) const { return candidates + which * kRow; }
  double* common(int side) const { return candidates + (3 + 4 * side) * kRow; }

  // List candidates as `list_candidates` does, with missing values on neither side, and sum
  // products.
  int list() {
    int m = 0;
    int32_t there = 0;
    f64x8 product[kGroups] = {};
    double hx = 0, hxx = 0;
    const auto add = [&](int b) __attribute__((always_inline)) {
      const int32_t count = static_cast<int32_t>(feature.count(*node.layout, b));
      if (count == 0 && b != 0) return;
      if (n_products > 0 && GROUPS == 0) add_products(b, count, whole);
      if (n_products > 0 && GROUPS > 0) {
        const int32_t* at = feature.bin(*node.layout, b);
        const double x = feature.means[b], h = lane_h < 0 ? count : at[lane_h];
        for (int v = 0; v < kGroups; ++v) product[v] += to_double(load<i32x8>(at + 8 * v)) * x;
        hx += h * x;
        hxx += h * (x * x);
      }
      scratch.bins[m] = b;
      scratch.count[m] = there += count;
      if (!DIAGONAL) {
        const double h = lane_h < 0 ? count : feature.bin(*node.layout, b)[lane_h];
        sums_of_h(0)[m] = (m > 0 ? sums_of_h(0)[m - 1] : 0.0) + h;
        sums_of_h(1)[m] = GROUPS > 0 ? hx : whole[K];
        sums_of_h(2)[m] = GROUPS > 0 ? hxx : whole[K + 1];
      }
      ++m;
    };
    visit_bins(feature, add);
    if (GROUPS == 0) return m;
    for (int v = 0; v < kGroups; ++v) store(whole + 8 * v, product[v]);
    whole[K] = hx;
    whole[K + 1] = hxx;
    return m;
  }

  // to += a bin's lanes times its mean.
  POLYLEAF_INLINE_MEMBER void add_products(int b, int32_t count, double* to) const {
    const int32_t* at = feature.bin(*node.layout, b);
    const double x = feature.means[b], xx = x * x;
    add_times(at, x, to);
    if (DIAGONAL) {
      add_times(at + K, x, to + K);
      add_times(at + K, xx, to + 2 * K);
    } else {
      const double h = lane_h < 0 ? count : at[lane_h];
      to[K] += h * x;
      to[K + 1] += h * xx;
    }
  }

  POLYLEAF_INLINE_MEMBER void add_times(const int32_t* at, double x, double* to) const {
    int k = 0;
    for (; k + 8 <= K; k += 8)
      store(to + k, load<f64x8>(to + k) + to_double(load<i32x8>(at + k)) * x);
    for (; k < K; ++k) to[k] += at[k] * x;
  }

  // Compute what all outputs share, eight candidates at a time.
  void share(int m, bool missing_left) const {
    const double step = lane_h < 0 ? 1.0 : static_cast<double>(node.hessian_step[0]);
    const double h_all = lane_h < 0 ? node.count : node.totals[lane_h];
    const double h_absent = lane_h < 0 ? n_absent : absent[lane_h];
    const bool with_x = n_products > 0;
    for (int i = 0; i < m; i += 8) {
      const f64x8 there = load<f64x8>(sums_of_h(0) + i);
      const f64x8 left = missing_left ? there + h_absent : there;
      const f64x8 hx = load<f64x8>(sums_of_h(1) + i), hxx = load<f64x8>(sums_of_h(2) + i);
      share_side(0, i, left * step, there * step, hx * step, hxx * step, with_x);
      share_side(1, i, (h_all - left) * step, ((h_all - h_absent) - there) * step,
                 (whole[K] - hx) * step, (whole[K + 1] - hxx) * step, with_x);
    }
  }
  POLYLEAF_INLINE_MEMBER void share_side(int side, int i, f64x8 h, f64x8 h_there, f64x8 hx,
                                         f64x8 hxx, bool with_x) const {
    const f64x8 inverse_penalised =
        invert_positive(h + static_cast<double>(node.config->reg_lambda));
    f64x8 middle = {}, kept = {};
    if (with_x) compute_centre(node, h_there, hx, hxx, &middle, &kept);
    double* to = common(side) + i;
    store(to + kWeight * kRow, h);
    store(to + kInversePenalised * kRow, inverse_penalised);
    store(to + kMiddle * kRow, middle);
    store(to + kKept * kRow, kept);
  }

  // Write the score sums of candidates [c.first, c.last).
  template <bool MISSING>
  void score(const Candidates& c, bool missing_left, float* out) {
    if constexpr (GROUPS > 0)
      return MISSING && missing_left ? score_in_registers<MISSING, MISSING>(c, out)
                                     : score_in_registers<MISSING, false>(c, out);
    for (int j = 0; j < padded(n_lanes); ++j) run[j] = 0;
    for (int q = 0; q < padded(3 * K); ++q) before[q] = 0;
    for (int i = 0; i < c.first; ++i) add_candidate(i);
    f64x8 sums[2][8] = {}, weights[2][8] = {};  // of both sides of eight candidates
    for (int start = c.first; start < c.last; start += 8) {
      for (int i = start; i < start + 8 && i < c.last; ++i) {
        add_candidate(i);
        sides<MISSING>(i, missing_left, sums, weights, i - start);
      }
      store_scores(fold_eight(sums[0]) + fold_eight(sums[1]), collect_weights(weights[0]),
                   collect_weights(weights[1]), node.config->min_child_weight, out + start);
    }
  }

  // Score candidates in registers: loads that do not depend on the candidate are done once.
  // Without means of x, its products are 0, and so is what they add.
  template <bool MISSING, bool MISSING_LEFT>
  void score_in_registers(const Candidates& c, float* out) const {
    i32x8 sum[kGroups] = {}, all[kGroups], away[kGroups] = {};
    f64x8 product[kGroups] = {}, all_products[kGroups], step[kGroups];
    for (int v = 0; v < kGroups; ++v) {
      all[v] = load<i32x8>(node.totals + 8 * v);
      if (MISSING) away[v] = load<i32x8>(absent + 8 * v);
      all_products[v] = load<f64x8>(whole + 8 * v);
      step[v] = to_double(node.gradient_step + 8 * v);
    }
    const bool with_means = n_products > 0;
    const auto add = [&](int i) __attribute__((always_inline)) {
      const int b = scratch.bins[i];
      const int32_t* at = feature.bin(*node.layout, b);
      const double x = with_means ? feature.means[b] : 0.0;
      for (int v = 0; v < kGroups; ++v) {
        const i32x8 lanes = load<i32x8>(at + 8 * v);
        sum[v] += lanes;
        product[v] += to_double(lanes) * x;
      }
    };
    for (int i = 0; i < c.first; ++i) add(i);
    f64x8 sums[2][8] = {};
    const double *left = common(0), *right = common(1);
    const auto term = [&](const double* of, const i32x8& here, const i32x8& there,
                          const f64x8& with_x, int v) __attribute__((always_inline)) {
      const f64x8 g = to_double(here) * step[v];
      const f64x8 constant = (g * g) * broadcast(of[kInversePenalised * kRow]);
      const f64x8 g_there = MISSING ? to_double(there) * step[v] : g;
      const f64x8 y = with_x * step[v] - broadcast(of[kMiddle * kRow]) * g_there;
      return constant + (y * y) * broadcast(of[kKept * kRow]);
    };
    for (int start = c.first; start < c.last; start += 8) {
      for (int i = start; i < start + 8 && i < c.last; ++i) {
        add(i);
        f64x8 found[2] = {};
        for (int v = 0; v < kGroups; ++v) {
          const i32x8 here = MISSING_LEFT ? sum[v] + away[v] : sum[v];
          const i32x8 there = MISSING ? all[v] - away[v] : all[v];
          found[0] += term(left + i, here, sum[v], product[v], v);
          found[1] +=
              term(right + i, all[v] - here, there - sum[v], all_products[v] - product[v], v);
        }
        sums[0][i - start] = found[0];
        sums[1][i - start] = found[1];
      }
      store_scores(fold_eight(sums[0]) + fold_eight(sums[1]), load<f64x8>(left + start),
                   load<f64x8>(right + start), node.config->min_child_weight, out + start);
    }
  }

  POLYLEAF_INLINE_MEMBER void add_candidate(int i) const {
    const int32_t* at = feature.bin(*node.layout, scratch.bins[i]);
    for (int j = 0; j < n_lanes; j += 8) store(run + j, load<i32x8>(run + j) + load<i32x8>(at + j));
    const int32_t count = i == 0 ? scratch.count[0] : scratch.count[i] - scratch.count[i - 1];
    if (n_products > 0) add_products(scratch.bins[i], count, before);
  }
  // Return the Hessian of one side of eight candidates.
  POLYLEAF_INLINE_MEMBER f64x8 collect_weights(const f64x8* weights) const {
    if (DIAGONAL) return fold_eight(weights) / static_cast<double>(K);
    double each[8];
    for (int j = 0; j < 8; ++j) each[j] = weights[j][0];
    return load<f64x8>(each);
  }

  // Score both sides of candidate i, at which the running sums stand.
  template <bool MISSING>
  POLYLEAF_INLINE_MEMBER void sides(int i, bool missing_left, f64x8 (&sums)[2][8],
                                    f64x8 (&weights)[2][8], int at) const {
    const int32_t* totals = node.totals;
    const int32_t goes_left = missing_left ? -1 : 0;  // a mask
    const auto there_left = [&](int j)
                                __attribute__((always_inline)) { return load<i32x8>(run + j); };
    const auto all_left = [&](int j) __attribute__((always_inline)) {
      const i32x8 v = load<i32x8>(run + j);
      return MISSING ? v + (load<i32x8>(absent + j) & goes_left) : v;
    };
    const auto there_right = [&](int j) __attribute__((always_inline)) {
      const i32x8 all = load<i32x8>(totals + j);
      return (MISSING ? all - load<i32x8>(absent + j) : all) - load<i32x8>(run + j);
    };
    const auto all_right = [&](int j) __attribute__((always_inline)) {
      return load<i32x8>(totals + j) - all_left(j);
    };
    const auto product_left = [&](int q) __attribute__((always_inline)) {
      return load<f64x8>(before + q);
    };
    const auto product_right = [&](int q) __attribute__((always_inline)) {
      return load<f64x8>(whole + q) - load<f64x8>(before + q);
    };
    const bool with_x = n_products > 0;
    const int32_t there = scratch.count[i], left = missing_left ? there + n_absent : there;
    sums[0][at] =
        ManySide<DIAGONAL, decltype(all_left), decltype(there_left), decltype(product_left)>{
            node, all_left, there_left, product_left, left, there, with_x, common(0) + i}
            .terms(&weights[0][at], nullptr);
    sums[1][at] =
        ManySide<DIAGONAL, decltype(all_right), decltype(there_right), decltype(product_right)>{
            node,          all_right,         there_right,
            product_right, node.count - left, node.count - n_absent - there,
            with_x,        common(1) + i}
            .terms(&weights[1][at], nullptr);
  }

  const ScanNode& node;
  const ScanFeature& feature;
  const int K, lane_h, n_lanes, n_products;
  ScanScratch& scratch;
  double *before, *whole;  // n_products each, readable to the next eight
  int32_t *run, *absent;   // n_lanes each, likewise readable
  double* candidates;
  int32_t n_absent;
};

// Score one side, from sums in memory, readable to the next eight; products nullptr: x is not used.
template <bool DIAGONAL>
double score_many(const ScanNode& node, const int32_t* lanes, int32_t count, const int32_t* there,
                  int32_t count_there, const double* products, double* weight,
                  const SideSolution* solution) {
  const auto all = [&](int j) { return load<i32x8>(lanes + j); };
  const auto here = [&](int j) { return load<i32x8>(there + j); };
  const auto product = [&](int q) { return load<f64x8>(products + q); };
  return ManySide<DIAGONAL, decltype(all), decltype(here), decltype(product)>{
      node, all, here, product, count, count_there, products != nullptr}
      .score(weight, solution);
}

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
