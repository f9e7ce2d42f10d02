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

// The mean of x, and the inverse of its penalised spread, 0 where it hardly varies.
template <class V>
POLYLEAF_INLINE void centre_of(const ScanNode& node, V h_there, V hx, V hxx, V* middle, V* kept) {
  *middle = hx * inverse_of(h_there);
  const V spread = hxx - hx * *middle;
  *kept = select(spread > kLeastSpread * hxx, inverse_of(spread + node.linear->slope_ridge), V{});
}

// What slopes are made of, where they are wanted: one number an output each.
struct SideSolution {
  double *slopes, *middle, *terms;
};

// What one side of every candidate has for all outputs, where they share their Hessian: so many
// numbers of each kind next to each other.
enum Common { kWeight, kShrunk, kMiddle, kKept };

// One side. all(j), there(j): eight integer sums from lane j on, over all its rows and over those
// where x is there. product(q): eight products with x from number q on: g of every output, then h
// x, then h x^2 (of every output, or one for all). DIAGONAL: each output has its own Hessian.
template <bool DIAGONAL, class All, class There, class Product>
struct ManySide {
  const ScanNode& node;
  const All& all;
  const There& there;
  const Product& product;
  int32_t count, count_there;
  bool with_x;
  const double* common =
      nullptr;  // the candidate's weight, where what all outputs share is known already

  struct Hessian {  // of eight outputs, or of all
    f64x8 weight, shrunk, middle, kept;
  };
  template <class V>
  POLYLEAF_INLINE_MEMBER void hessian(V h, V h_there, V hx, V hxx, V* shrunk, V* middle,
                                      V* kept) const {
    *shrunk = inverse_of(h + static_cast<double>(node.config->reg_lambda));
    *middle = *kept = V{};
    if (with_x) centre_of(node, h_there, hx, hxx, middle, kept);
  }
  POLYLEAF_INLINE_MEMBER Hessian for_all() const {  // one Hessian, or none but the number of rows
    if (common != nullptr)
      return {broadcast(common[kWeight * kRow]), broadcast(common[kShrunk * kRow]),
              broadcast(common[kMiddle * kRow]), broadcast(common[kKept * kRow])};
    const int K = node.layout->n_outputs, lane = node.layout->hessian_offset;
    const double step = lane < 0 ? 1.0 : static_cast<double>(node.hessian_step[0]);
    const double h = lane < 0 ? count : all(lane)[0] * step;
    const double h_there = lane < 0 ? count_there : there(lane)[0] * step;
    double shrunk, middle, kept;
    hessian(h, h_there, with_x ? product(K)[0] * step : 0.0,
            with_x ? product(K + 1)[0] * step : 0.0, &shrunk, &middle, &kept);
    return {broadcast(h), broadcast(shrunk), broadcast(middle), broadcast(kept)};
  }
  POLYLEAF_INLINE_MEMBER Hessian of_outputs(int k) const {
    const int K = node.layout->n_outputs;
    const f64x8 step = to_double(node.hessian_step + k);
    Hessian c;
    c.weight = to_double(all(K + k)) * step;
    hessian<f64x8>(c.weight, to_double(there(K + k)) * step,
                   with_x ? product(K + k) * step : f64x8{},
                   with_x ? product(2 * K + k) * step : f64x8{}, &c.shrunk, &c.middle, &c.kept);
    return c;
  }

  // Eight numbers whose sum is twice the loss removed; `weights`: eight whose sum is the Hessian
  // of the side (DIAGONAL), or each of which is.
  POLYLEAF_INLINE_MEMBER f64x8 terms(f64x8* weights, const SideSolution* wanted) const {
    const int K = node.layout->n_outputs;
    f64x8 sum = {};
    Hessian c;
    *weights = f64x8{};
    if (!DIAGONAL) c = for_all();
    for (int k = 0; k < K; k += 8) {
      if (DIAGONAL) {
        c = of_outputs(k);
        *weights += c.weight;
      }
      const f64x8 step = to_double(node.gradient_step + k);
      const f64x8 g = to_double(all(k)) * step;
      f64x8 term = (g * g) * c.shrunk, y = {};
      if (with_x) {
        y = product(k) * step - c.middle * (to_double(there(k)) * step);
        term += (y * y) * c.kept;
      }
      sum += term;
      if (wanted != nullptr) keep(*wanted, k, term, y * c.kept, c.middle);
    }
    if (!DIAGONAL) *weights = c.weight;
    return sum;
  }
  // Their sum; `weight`: the Hessian of the side, mean over outputs.
  POLYLEAF_INLINE_MEMBER double score(double* weight, const SideSolution* wanted) const {
    f64x8 weights;
    const double sum = fold(terms(&weights, wanted));
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

// The scan over one feature: running sums of a bin's lanes and of their products, then both sides.
// GROUPS: how many times eight outputs there are, where that is a constant worth code of its own,
// for one Hessian: sums stay in registers. Lanes behind the outputs then hold anything, and their
// steps are 0.
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
    scan_listed(node, feature, m, scratch, best,
                [&](bool missing_left, const Candidates& c, float* out) {
                  if (n_absent == 0) return one_way<false, false>(c, out);
                  missing_left ? one_way<true, true>(c, out) : one_way<true, false>(c, out);
                });
  }

 private:
  static_assert(!DIAGONAL || GROUPS == 0);
  static constexpr int kGroups = GROUPS > 0 ? GROUPS : 1;

  static int padded(int n) { return (n + 23) / 8 * 8; }

  // Running sums of h, h x and h x^2 over the rows where x is there, kRow candidates each; then
  // what they make of the left and of the right side.
  double* sums_of_h(int which) const { return candidates + which * kRow; }
  double* common(int side) const { return candidates + (3 + 4 * side) * kRow; }

  // Lists candidates as `list_candidates` does, with missing values on neither side, and sums
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

  // What all outputs share, eight candidates at a time.
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
    const f64x8 shrunk = inverse_of(h + static_cast<double>(node.config->reg_lambda));
    f64x8 middle = {}, kept = {};
    if (with_x) centre_of(node, h_there, hx, hxx, &middle, &kept);
    double* to = common(side) + i;
    store(to + kWeight * kRow, h);
    store(to + kShrunk * kRow, shrunk);
    store(to + kMiddle * kRow, middle);
    store(to + kKept * kRow, kept);
  }

  // Score sums of candidates [c.first, c.last).
  template <bool MISSING, bool MISSING_LEFT>
  void one_way(const Candidates& c, float* out) {
    if (!DIAGONAL) share(c.n, MISSING_LEFT);
    if constexpr (GROUPS > 0) {
      if (n_products > 0) return in_registers<MISSING, MISSING_LEFT, true>(c, out);
      return in_registers<MISSING, MISSING_LEFT, false>(c, out);
    }
    for (int j = 0; j < padded(n_lanes); ++j) run[j] = 0;
    for (int q = 0; q < padded(3 * K); ++q) before[q] = 0;
    for (int i = 0; i < c.first; ++i) add_candidate(i);
    f64x8 sums[2][8] = {}, weights[2][8] = {};  // of both sides of eight candidates
    for (int start = c.first; start < c.last; start += 8) {
      for (int i = start; i < start + 8 && i < c.last; ++i) {
        add_candidate(i);
        sides<MISSING, MISSING_LEFT>(i, sums, weights, i - start);
      }
      store_scores(fold_eight(sums[0]) + fold_eight(sums[1]), weight_of(weights[0]),
                   weight_of(weights[1]), node.config->min_child_weight, out + start);
    }
  }

  // The same: what `sides` does, output by output, with all that does not change from candidate to
  // candidate loaded once.
  template <bool MISSING, bool MISSING_LEFT, bool WITH_X>
  void in_registers(const Candidates& c, float* out) const {
    i32x8 sum[kGroups] = {}, all[kGroups], away[kGroups] = {};
    f64x8 product[kGroups] = {}, all_products[kGroups], step[kGroups];
    for (int v = 0; v < kGroups; ++v) {
      all[v] = load<i32x8>(node.totals + 8 * v);
      if (MISSING) away[v] = load<i32x8>(absent + 8 * v);
      all_products[v] = load<f64x8>(whole + 8 * v);
      step[v] = to_double(node.gradient_step + 8 * v);
    }
    const auto add = [&](int i) __attribute__((always_inline)) {
      const int b = scratch.bins[i];
      const int32_t* at = feature.bin(*node.layout, b);
      const double x = WITH_X ? feature.means[b] : 0.0;
      for (int v = 0; v < kGroups; ++v) {
        const i32x8 lanes = load<i32x8>(at + 8 * v);
        sum[v] += lanes;
        if (WITH_X) product[v] += to_double(lanes) * x;
      }
    };
    for (int i = 0; i < c.first; ++i) add(i);
    f64x8 sums[2][8] = {};
    const double *left = common(0), *right = common(1);
    const auto term = [&](const double* of, const i32x8& here, const i32x8& there,
                          const f64x8& with_x, int v) __attribute__((always_inline)) {
      const f64x8 g = to_double(here) * step[v];
      f64x8 found = (g * g) * broadcast(of[kShrunk * kRow]);
      if (!WITH_X) return found;
      const f64x8 g_there = MISSING ? to_double(there) * step[v] : g;
      const f64x8 y = with_x * step[v] - broadcast(of[kMiddle * kRow]) * g_there;
      return found += (y * y) * broadcast(of[kKept * kRow]);
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
  // Hessian of one side of eight candidates.
  POLYLEAF_INLINE_MEMBER f64x8 weight_of(const f64x8* weights) const {
    if (DIAGONAL) return fold_eight(weights) / static_cast<double>(K);
    double each[8];
    for (int j = 0; j < 8; ++j) each[j] = weights[j][0];
    return load<f64x8>(each);
  }

  // Candidate i, at which the running sums stand.
  template <bool MISSING, bool MISSING_LEFT>
  POLYLEAF_INLINE_MEMBER void sides(int i, f64x8 (&sums)[2][8], f64x8 (&weights)[2][8],
                                    int at) const {
    const int32_t* totals = node.totals;
    const auto there_left = [&](int j)
                                __attribute__((always_inline)) { return load<i32x8>(run + j); };
    const auto all_left = [&](int j) __attribute__((always_inline)) {
      const i32x8 v = load<i32x8>(run + j);
      return MISSING_LEFT ? v + load<i32x8>(absent + j) : v;
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
    const int32_t there = scratch.count[i], left = MISSING_LEFT ? there + n_absent : there;
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
  int32_t *run, *absent;   // n_lanes each, likewise
  double* candidates;
  int32_t n_absent;
};

// One side, from sums in memory, readable to the next eight; products nullptr: x takes no part.
template <bool DIAGONAL>
double score_many(const ScanNode& node, const int32_t* lanes, int32_t count, const int32_t* there,
                  int32_t count_there, const double* products, double* weight,
                  const SideSolution* wanted) {
  const auto all = [&](int j) { return load<i32x8>(lanes + j); };
  const auto here = [&](int j) { return load<i32x8>(there + j); };
  const auto product = [&](int q) { return load<f64x8>(products + q); };
  return ManySide<DIAGONAL, decltype(all), decltype(here), decltype(product)>{
      node, all, here, product, count, count_there, products != nullptr}
      .score(weight, wanted);
}

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
