// Derivatives of likelihoods with two scores per target: the location and the logarithm of the
// scale. T targets have 2 T scores per row, those of the first target first.
//
// The Hessian is Fisher's information, which is diagonal for these pairs of parameters (Cox and
// Reid, "Parameter orthogonality and approximate conditional inference", JRSS B, 1987): a leaf's
// step is the natural gradient of its rows. It is increased where a single row would ask for a long
// step. Python computes the losses themselves in float64.
#pragma once
#include <cstdint>

#include "base/context.h"
#include "base/isa.h"
#include "losses/loss_registry.h"

namespace polyleaf {

// Input of a likelihood: rows, weights (nullptr: all 1) and scores. `weight_columns`: 1 or
// n_targets.
struct LikelihoodInput {
  int64_t n_rows = 0;
  int64_t n_targets = 0;
  const float* raw = nullptr;     // (n_rows, 2 n_targets)
  const float* target = nullptr;  // (n_rows, n_targets)
  const float* weight = nullptr;
  int64_t weight_columns = 0;
  const float* offset = nullptr;  // 2 n_targets values added to raw
};

// Kernel input, compiled once per instruction set: n targets with two scores and two offsets each.
struct LikelihoodChunk {
  int64_t n = 0;
  const float* raw = nullptr;
  const float* target = nullptr;
  const float* offset = nullptr;
  const float* weight = nullptr;
};

struct LikelihoodKernels {
  const char* name;
  const char* parameters[kMaxLossParams];
  void (*derivatives)(const LossParams& params, const LikelihoodChunk& chunk, float* g, float* h);
};
struct LikelihoodTable {
  LossTable<LikelihoodKernels> likelihoods;
  // For tests: digamma(x) - ln x, and x (x trigamma(x) - 1).
  void (*digamma_excess)(const float* x, float* out, int64_t n);
  void (*trigamma_excess)(const float* x, float* out, int64_t n);
};
POLYLEAF_DECLARE_KERNELS(LikelihoodTable, likelihood_kernels)

LossTable<LikelihoodKernels> likelihood_table();
using Likelihood = NamedLoss<LikelihoodKernels, likelihood_table>;

// Compute g and h, (n_rows, 2 n_targets); the same bits for any number of threads and any
// instruction set.
void derivatives(const Likelihood& likelihood, const LikelihoodInput& input, float* g, float* h,
                 const Context& context);

}  // namespace polyleaf
