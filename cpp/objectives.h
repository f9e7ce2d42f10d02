// Losses: gradient, curvature and mean loss of raw scores against targets; the sums and quantiles behind base
// scores and renewed leaves.
//
// Two shapes of loss exist here. Element-wise ones (`LossConfig`) see one raw score and one target at a time,
// so any number of outputs is one flat array to them. Those of one of several classes (`ClassLoss`) see a row
// at a time. A new element-wise loss is one struct in kernels/objectives.cpp, one name in LossFamily, and one
// class in src/polyleaf/objectives/.
//
// Matrices are row-major (n_rows, n_outputs). `offset` (n_outputs) is added to the raw scores before the loss
// sees them (the base score, where the loss could not take it off the target). Results are the same bits for
// any number of threads and any instruction set.
//
// Owns: the mathematics of losses. Must not know: trees, boosting, how channels are quantised.
#pragma once
#include <cstdint>

#include "isa.h"

namespace polyleaf {

enum class LossFamily : int32_t {
  squared_error,
  absolute_error,
  quantile,  // parameter: the level of each output
  huber,
  log_link,  // Poisson, Gamma and Tweedie: all are one formula in the power of the variance
  logistic,  // parameter: the weight of positives of each output
  squared_hinge,
};

struct LossConfig {
  LossFamily family = LossFamily::squared_error;
  float huber_delta = 1.0f;
  // log_link: variance = mean^variance_power, in [1, 2]; curvature = model_curvature * (model's part of the
  // gradient)
  // + data_curvature * (the data's part).
  float variance_power = 1.0f;
  float model_curvature = 0.5f;
  float data_curvature = 0.5f;
};

// Losses of one of several classes. See src/polyleaf/objectives/softmax.py and exponential.py.
enum class ClassLoss : int32_t { softmax, exponential, margin };

// How the diagonal curvature of softmax is written down.
enum class SoftmaxCurvature : int32_t { scaled, residual };  // factor * p * (1 - p) | |p - y|

// Entries of a Hessian of n outputs, packed: the lower triangle row by row, (i, j), j <= i, at i (i + 1) / 2
// + j.
inline int64_t packed_size(int64_t n_outputs) {
  return n_outputs * (n_outputs + 1) / 2;
}

// Rows, their weights (nullptr: all 1) and scores. `weight_columns`: 1 or n_outputs.
struct LossInput {
  int64_t n_rows = 0;
  int64_t n_outputs = 0;
  const float* raw = nullptr;
  const float* target = nullptr;   // element-wise losses
  const int32_t* label = nullptr;  // class losses: class ids in [0, n_outputs)
  const float* weight = nullptr;
  int64_t weight_columns = 0;
  const float* offset = nullptr;     // n_outputs
  const float* parameter = nullptr;  // n_outputs; element-wise losses
};

// True where the curvature of an unweighted row is 1 for every output: `h` then holds weights, or is not
// needed.
bool has_unit_curvature(LossFamily family);

// Writes g (n_rows, n_outputs) and, unless it is nullptr, h (n_rows, h_columns). h_columns is n_outputs, or 1
// where the curvature is unit and weights are per row.
void derivatives(const LossConfig& config, const LossInput& input, float* g, float* h, int64_t h_columns,
                 int n_threads);
void softmax_derivatives(SoftmaxCurvature curvature, float factor, const LossInput& input, float* g, float* h,
                         int n_threads);
// Of ClassLoss::exponential and ClassLoss::margin; h (n_rows, n_outputs) is the diagonal.
void exponential_derivatives(ClassLoss loss, const LossInput& input, float* g, float* h, int n_threads);
// g as above, and h (n_rows, packed_size(n_outputs)): all second derivatives.
void class_hessians(ClassLoss loss, const LossInput& input, float* g, float* h, int n_threads);

// Weighted mean of the loss over rows and outputs (class losses: over rows); 0 where no row has weight.
double mean_loss(const LossConfig& config, const LossInput& input, int n_threads);
double class_mean_loss(ClassLoss loss, const LossInput& input, int n_threads);

// totals (2, n_columns): sums of weight * value, and of weight. Fixed blocks, added in order.
template <class T>
void weighted_totals(const T* values, int64_t n_rows, int64_t n_columns, const float* weight,
                     int64_t weight_columns, double* totals, int n_threads);

// For each leaf and column the smallest value v such that the rows of the leaf with value <= v hold at least
// `level` of its weight; 0 where a leaf has no weight. `leaf_of_row` nullptr: one leaf; negative: in no leaf.
// `rows` nullptr: all rows. out: (n_leaves, n_columns).
struct RowsOfLeaves {
  const int32_t* leaf_of_row = nullptr;
  int32_t n_leaves = 1;
  const int32_t* rows = nullptr;
  int64_t n_used = 0;  // length of `rows`, or n_rows
};
template <class T>
void leaf_quantiles(const T* values, int64_t n_rows, int64_t n_columns, const float* weight,
                    int64_t weight_columns, const RowsOfLeaves& leaves, const double* level, T* out,
                    int n_threads);

// What is compiled once per instruction set.
struct LossChunk {
  int64_t n = 0;  // elements
  const float* raw = nullptr;
  const float* target = nullptr;
  const float* offset = nullptr;
  const float* parameter = nullptr;
};
struct ClassChunk {
  int64_t n_rows = 0;
  int64_t n_outputs = 0;
  const float* raw = nullptr;
  const int32_t* label = nullptr;
  const float* offset = nullptr;
  float* scratch = nullptr;  // class_scratch(n_outputs)
};
// Floats that a chunk needs: two groups of 16 rows, a row and a packed Hessian, each to the next 16.
inline int64_t class_scratch(int64_t n_outputs) {
  return 2 * 16 * n_outputs + n_outputs + packed_size(n_outputs) + 3 * 16;
}
struct ObjectiveKernels {
  void (*derivatives)(const LossConfig&, const LossChunk&, float* g,
                      float* h);  // h may be nullptr: unit curvature
  void (*losses)(const LossConfig&, const LossChunk&, double* loss);
  void (*softmax_derivatives)(SoftmaxCurvature, float factor, const ClassChunk&, float* g, float* h);
  void (*exponential_derivatives)(ClassLoss, const ClassChunk&, float* g, float* h);
  void (*class_hessians)(ClassLoss, const ClassChunk&, float* g, float* h);
  void (*class_losses)(ClassLoss, const ClassChunk&, double* loss);
  void (*multiply)(float* x, const float* weight, int64_t n);
  // sums[0] += sum of loss * weight, sums[1] += sum of weight, in 16 lanes folded in a fixed order.
  void (*add_weighted)(const double* loss, const float* weight, int64_t n, double* sums);
  void (*exp)(const float* x, float* out, int64_t n);  // for tests
  void (*log)(const float* x, float* out, int64_t n);  // for tests
};
POLYLEAF_DECLARE_KERNELS(ObjectiveKernels, objective_kernels)

}  // namespace polyleaf
