// Losses: gradient, Hessian and mean loss of raw scores against targets.
//
// Element-wise losses (`Loss`) see one raw score and one target at a time, so any number of outputs
// is one flat array. Class losses (`ClassLoss`) see a row at a time; a row with shares of the
// classes counts as one row per class whose weights are the shares. (likelihoods.h has a third
// kind, with two scores per target.) How to add one: CONTRIBUTING.md, "Add an objective".
//
// Matrices are row-major (n_rows, n_outputs). `offset` (n_outputs) is added to the raw scores
// before the loss is evaluated: the base score, if it could not be subtracted from the target.
// Results are the same bits for any number of threads and any instruction set.
#pragma once
#include <cstdint>

#include "base/context.h"
#include "base/isa.h"
#include "base/packed.h"
#include "losses/loss_registry.h"

namespace polyleaf {

// Input of a loss: rows, weights (nullptr: all 1) and scores. `weight_columns`: 1 or n_outputs.
struct LossInput {
  int64_t n_rows = 0;
  int64_t n_outputs = 0;
  const float* raw = nullptr;
  const float* target = nullptr;   // element-wise losses
  const int32_t* label = nullptr;  // class losses: class ids in [0, n_outputs)
  const float* shares = nullptr;   // or shares of the classes (n_rows, n_outputs) in their place
  const float* weight = nullptr;
  int64_t weight_columns = 0;
  const float* offset = nullptr;     // n_outputs
  const float* parameter = nullptr;  // n_outputs; element-wise losses
  // Class losses: scores of a tree (n_leaves, n_outputs) that are added to `raw`; nullptr: none.
  const float* leaves = nullptr;
  const int32_t* leaf_of_row = nullptr;
};

// Kernels, compiled once per instruction set.
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
  const float* shares = nullptr;  // in place of labels; only if the loss takes_shares
  const float* offset = nullptr;
  float* scratch = nullptr;  // class_scratch(n_outputs)
};
// Scratch floats of a chunk: two groups of 16 rows, read in squares; a row and a packed Hessian,
// each padded to a multiple of 16.
inline int64_t class_scratch(int64_t n_outputs) {
  return 2 * 16 * (n_outputs < 16 ? 16 : n_outputs) + n_outputs + packed_size(n_outputs) + 3 * 16;
}

struct LossKernels {
  const char* name;
  const char* parameters[kMaxLossParams];  // names; nullptr after the last
  // the Hessian is 1 for every unweighted row and output; h then contains weights, or is not
  // needed
  bool unit_hessian;
  void (*derivatives)(const LossParams& params, const LossChunk& chunk, float* g,
                      float* h);  // h nullptr: g only
  void (*losses)(const LossParams& params, const LossChunk& chunk, double* out);
};
struct ClassLossKernels {
  const char* name;
  const char* parameters[kMaxLossParams];
  bool takes_shares;
  void (*derivatives)(const LossParams& params, const ClassChunk& chunk, float* g,
                      float* h);  // h: diagonal
  void (*hessians)(const ClassChunk& chunk, float* g, float* h);
  void (*losses)(const ClassChunk& chunk, double* out);
};
struct ObjectiveKernels {
  LossTable<LossKernels> losses;
  LossTable<ClassLossKernels> class_losses;
  void (*multiply)(float* x, const float* weight, int64_t n);
  // out (n, k) = raw + leaves[leaf_of_row]
  void (*add_leaves)(const float* raw, const float* leaves, const int32_t* leaf_of_row, int64_t n,
                     int64_t k, float* out);
  // sums[0] += sum of loss * weight, sums[1] += sum of weight, in 16 lanes added in a fixed
  // order.
  void (*add_weighted)(const double* loss, const float* weight, int64_t n, double* sums);
  void (*exp)(const float* x, float* out, int64_t n);  // for tests
  void (*log)(const float* x, float* out, int64_t n);  // for tests
};
POLYLEAF_DECLARE_KERNELS(ObjectiveKernels, objective_kernels)

// Tables of the instruction set in use.
LossTable<LossKernels> loss_table();
LossTable<ClassLossKernels> class_loss_table();
using Loss = NamedLoss<LossKernels, loss_table>;
using ClassLoss = NamedLoss<ClassLossKernels, class_loss_table>;

// Compute g (n_rows, n_outputs) and, unless it is nullptr, h (n_rows, h_columns). h_columns is
// n_outputs, or 1 if the Hessian is 1 and weights are per row.
void derivatives(const Loss& loss, const LossInput& input, float* g, float* h, int64_t h_columns,
                 const Context& context);
// Same for class losses; h (n_rows, n_outputs) is the Hessian diagonal.
void derivatives(const ClassLoss& loss, const LossInput& input, float* g, float* h,
                 const Context& context);
// Compute g and the full Hessians h (n_rows, packed_size(n_outputs)).
void hessians(const ClassLoss& loss, const LossInput& input, float* g, float* h,
              const Context& context);

// Return the weighted mean of the loss over rows and outputs (class losses: over rows); 0 if no row
// has weight.
double mean_loss(const Loss& loss, const LossInput& input, const Context& context);
double mean_loss(const ClassLoss& loss, const LossInput& input, const Context& context);

}  // namespace polyleaf
