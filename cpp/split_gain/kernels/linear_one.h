// The scan over one feature where leaves are linear and there is one output.
//
// Included by linear.cpp only, inside the namespace of an instruction set.
#pragma once
#include "split_gain/kernels/linear_side.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

// One output and at most one regressor, the half-additive fit: a bin's sums stand next to each
// other, as in the histogram, and are turned around eight candidates at a time.
template <int P, bool UNIT>
struct One {
  static constexpr int kLanes = P == 0 ? 4 : 8;
  // Where g, h, the h that goes with x^2, and hz stand.
  static constexpr int kH = UNIT ? (P == 0 ? 1 : 4) : 1, kHz = UNIT ? 1 : 2;
  static constexpr int kCount = UNIT ? (P == 0 ? 1 : 4) : (P == 0 ? 2 : 5);

  int32_t (*lanes)[8];
  double (*products)[4];  // gx, hx, hxx, hzx

  // moments: those of ScanScratch; not read where nothing is scanned.
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

  // gx, hx, hxx, hzx of one bin.
  POLYLEAF_INLINE_MEMBER static f64x4 products_of(const i32x8& sums, double x) {
    const i32x4 factor = __builtin_shufflevector(sums, sums, 0, kH, kH, kHz);
    return __builtin_convertvector(factor, f64x4) * f64x4{x, x, x * x, x};
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
        product += products_of(v, feature.means[b]);
        store(products[m], product);
      }
      s.bins[m] = b;
      s.count[m] = sum[kCount];
      m += (v[kCount] != 0) | (b == 0);
    };
    visit_bins(feature, add);
    return m;
  }

  // Of the bins up to `last`, and of all; four numbers each, room for which there is.
  void sum_products(const ScanFeature& feature, int last, double* left, double* whole) const {
    f64x4 product = {}, before = {};
    visit_bins(feature, [&](int b) __attribute__((always_inline)) {
      product += products_of(bin(feature, b), feature.means[b]);
      before = b <= last ? product : before;
    });
    store(left, before);
    store(whole, product);
  }

  // Rows [i, i + 8) by column.
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

  // A side of eight candidates. all(j), there(j): sums of lane j over all its rows and over those
  // where the feature is there; product(q): gx, hx, hxx, hzx, which are 0 where the feature does
  // not join.
  template <class All, class There, class Product>
  POLYLEAF_INLINE_MEMBER static f64x8 side(const ScanNode& node, const All& all, const There& there,
                                    const Product& product, f64x8* weight) {
    const LinearScan& linear = *node.linear;
    const auto step = [&](int lane) __attribute__((always_inline)) {
      return static_cast<double>(linear.step[lane]);
    };
    const double h_step = UNIT ? 1.0 : step(kH), g_step = step(0);
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
      sums.hz = all(kHz) * step(kHz);
      sums.hzz = all(kHz + 1) * step(kHz + 1);
      sums.gz = all(kHz + 2) * step(kHz + 2);
      sums.hz_there = there(kHz) * step(kHz);
      sums.hzx = product(3) * step(kHz);
    }
    *weight = sums.h;
    return sums.score(node.config->reg_lambda, linear.slope_ridge, P == 1 ? linear.ridge[0] : 0.0,
                      P == 1 ? linear.noise[0] : 0.0);
  }

  template <bool MISSING>
  void score(const ScanNode& node, const ScanFeature& feature, bool missing_left,
             const Candidates& c, float* out) const {
    const i32x8 absent = bin(feature, feature.missing);
    const double least = node.config->min_child_weight;
    const bool with_x = feature.means != nullptr;
    for (int i = c.first; i < c.last; i += 8) {
      i32x8 sums[8];
      f64x8 product[4] = {}, rest[4] = {};
      turn_lanes(i, sums);
      if (with_x) {
        turn_products(i, product);
        for (int q = 0; q < 4; ++q) rest[q] = products[c.n - 1][q] - product[q];
      }
      const auto all_left = [&](int j) __attribute__((always_inline)) {
        return to_double(MISSING && missing_left ? sums[j] + absent[j] : sums[j]);
      };
      const auto all_right = [&](int j) __attribute__((always_inline)) {
        return to_double(node.totals[j] -
                         (MISSING && missing_left ? sums[j] + absent[j] : sums[j]));
      };
      const auto there_left = [&](int j)
                                  __attribute__((always_inline)) { return to_double(sums[j]); };
      const auto there_right = [&](int j) __attribute__((always_inline)) {
        return to_double(MISSING ? (node.totals[j] - absent[j]) - sums[j]
                                 : node.totals[j] - sums[j]);
      };
      const auto left = [&](int q) __attribute__((always_inline)) { return product[q]; };
      const auto right = [&](int q) __attribute__((always_inline)) { return rest[q]; };
      f64x8 weight_left, weight_right;
      const f64x8 sum_left = side(node, all_left, there_left, left, &weight_left);
      const f64x8 sum_right = side(node, all_right, there_right, right, &weight_right);
      store_scores(sum_left + sum_right, weight_left, weight_right, least, out + i);
    }
  }
};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
