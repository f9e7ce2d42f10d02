// Newton leaves: w = -(H + lambda)^-1 G per leaf (GBDT-MO eq. 15, C-GB eq. 13, TFBT eq. 6), from
// exact fixed-point sums of the unquantised derivatives.
//
// Owns: the leaf problem of dense leaves. Must not know: how the structure was found.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/context.h"
#include "base/isa.h"
#include "base/settings.h"
#include "quantised_gradients/quantised_gradients.h"
#include "split_gain/step.h"

namespace polyleaf {

// Of systems of a leaf (packed.h). Scores, whose sums are float32, have 13: a direction with a
// Hessian in between counts for a leaf's step, not for the gain of the split that made it.
constexpr int kLeafPivotBits = 20;

struct LeafKernels {
  // sums[leaf][j] += trunc(values_ij * multiplier_i * scale_j) over rows [begin, end) of the sample
  void (*sum)(const float* values, int n_columns, const RowSample& sample, int64_t begin,
              int64_t end, const int32_t* leaf_of_row, int32_t n_leaves, const float* scale,
              int64_t* sums);
};
POLYLEAF_DECLARE_KERNELS(LeafKernels, leaf_kernels)

// How a column of floats is made of integers, and its sums of theirs: exact multiples of 2^-30 of a
// power of two above its largest magnitude.
struct FixedColumns {
  std::vector<float> scale;   // zeros behind those of the columns, as `largest` has
  std::vector<int> exponent;  // of the sums of each column
  FixedColumns(const std::vector<float>& largest, int n_columns);
  std::vector<double> sums(const std::vector<int64_t>& integers) const;  // (n_leaves, n_columns)
};

// Sums of (n_all, n_columns) values per leaf, float64 (n_leaves, n_columns): exact multiples of
// 2^-30 of a power of two above the column's largest magnitude, which `largest` is told.
std::vector<double> sum_by_leaf(const float* values, int n_columns, const RowSample& sample,
                                const int32_t* leaf_of_row, int32_t n_leaves,
                                const Workers& workers, std::vector<float>* largest = nullptr);

// Summed Hessian per leaf, float64 (n_leaves, h_columns): of h, or, where that is nullptr, one
// column of the rows of each leaf (the sum of their multipliers), the largest being 1 where there
// are no multipliers.
std::vector<double> sum_leaf_hessians(const float* h, int h_columns, const RowSample& sample,
                                      const int32_t* leaf_of_row, int32_t n_leaves,
                                      const Workers& workers,
                                      std::vector<float>* largest = nullptr);

// The step of one output from its summed derivatives, before the learning rate, and how much it
// lowers twice the loss.
struct NewtonStep {
  double w, gain;
  NewtonStep(double gradient, double hessian, const LeafConfig& config) {
    const double c = hessian + config.reg_lambda;
    const Step<double, double> step(gradient, c, config.reg_alpha, config.max_delta_step);
    w = c > 0 ? -std::copysign(step.size, gradient) : 0.0;
    gain = (2.0 * step.kept - c * step.size) * step.size;
  }
};

// out: (n_leaves, n_outputs) float32, the steps from summed derivatives times the learning rate. H:
// 1 or n_outputs columns, or those of a packed lower triangle (TFBT eq. 6).
void solve_newton_leaves(const std::vector<double>& G, const std::vector<double>& H, int n_outputs,
                         int h_columns, const LeafConfig& config, float* out);

// out: (n_leaves, n_outputs) float32. h: (n_all, h_columns) with h_columns 1, n_outputs or that of
// a packed lower triangle (TFBT eq. 6), or nullptr: Hessian 1.
void fit_newton_leaves(const float* g, const float* h, int n_outputs, int h_columns,
                       const RowSample& sample, const int32_t* leaf_of_row, int32_t n_leaves,
                       const LeafConfig& config, const Workers& workers, float* out);

}  // namespace polyleaf
