// Newton leaf values: w = -(H + lambda)^-1 G per leaf (GBDT-MO eq. 15, C-GB eq. 13, TFBT eq. 6),
// from exact fixed-point sums of unquantised derivatives.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/context.h"
#include "base/isa.h"
#include "base/matrix_view.h"
#include "base/settings.h"
#include "quantised_gradients/quantised_gradients.h"
#include "split_gain/step.h"

namespace polyleaf {

// Pivot tolerance of leaf systems (packed.h). Scores use float32 sums and 13 bits: a direction with
// a Hessian in between contributes to a leaf's step but not to the gain of the split.
constexpr int kLeafPivotBits = 20;

struct LeafKernels {
  // sums[leaf][j] += trunc(values_ij * multiplier_i * scale_j) over rows [begin, end) of the sample
  void (*sum)(const float* values, int n_columns, const RowSample& sample, int64_t begin,
              int64_t end, const int32_t* leaf_of_row, int32_t n_leaves, const float* scale,
              int64_t* sums);
};
POLYLEAF_DECLARE_KERNELS(LeafKernels, leaf_kernels)

// Fixed-point representation of columns of floats: exact multiples of 2^-30 of a power of two above
// the column's largest magnitude.
struct FixedColumns {
  std::vector<float> scale;   // padded with zeros like `largest`
  std::vector<int> exponent;  // exponent of each column's sums
  FixedColumns(const std::vector<float>& largest, int n_columns);
  std::vector<double> sums(const std::vector<int64_t>& integers) const;  // (n_leaves, n_columns)
};

// Sum values of all rows per leaf, float64 (n_leaves, n_columns): exact multiples of 2^-30 of a
// power of two above the column's largest magnitude, which is returned in `largest`.
std::vector<double> sum_by_leaf(MatrixView<const float> values, const RowSample& sample,
                                const int32_t* leaf_of_row, int32_t n_leaves,
                                const Context& context, std::vector<float>* largest = nullptr);

// Sum Hessians per leaf, float64 (n_leaves, columns of h). Without h, the result is one column: the
// number of rows of each leaf (or the sum of their multipliers).
std::vector<double> sum_leaf_hessians(MatrixView<const float> h, const RowSample& sample,
                                      const int32_t* leaf_of_row, int32_t n_leaves,
                                      const Context& context,
                                      std::vector<float>* largest = nullptr);

// Newton step `w` of one output from its summed derivatives, before the learning rate, and the
// reduction `gain` of twice the loss.
struct NewtonStep {
  double w, gain;
  NewtonStep(double gradient, double hessian, const LeafConfig& config) {
    const double c = hessian + config.reg_lambda;
    const Step<double, double> step(gradient, c, config.reg_alpha, config.max_delta_step);
    w = c > 0 ? -std::copysign(step.size, gradient) : 0.0;
    gain = (2.0 * step.kept - c * step.size) * step.size;
  }
};

// Compute leaf values (n_leaves, n_outputs) from summed derivatives, times the learning rate. H: 1
// or n_outputs columns, or a packed lower triangle (TFBT eq. 6).
void solve_newton_leaves(MatrixView<const double> G, MatrixView<const double> H,
                         const LeafConfig& config, MatrixView<float> out);

// Fit leaf values (n_leaves, n_outputs) to derivatives of all rows. h: 1 column, n_outputs, or the
// size of a packed lower triangle (TFBT eq. 6); none: Hessian 1.
void fit_newton_leaves(MatrixView<const float> g, MatrixView<const float> h,
                       const RowSample& sample, const int32_t* leaf_of_row,
                       const LeafConfig& config, const Context& context, MatrixView<float> out);

}  // namespace polyleaf
