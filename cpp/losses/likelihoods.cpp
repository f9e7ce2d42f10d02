#include "losses/likelihoods.h"

#include <stdexcept>

#include "losses/chunking.h"

namespace polyleaf {

LossTable<LikelihoodKernels> likelihood_table() {
  return POLYLEAF_SELECT(likelihood_kernels).likelihoods;
}

void derivatives(const Likelihood& likelihood, const LikelihoodInput& input, float* g, float* h,
                 const Context& context) {
  const int64_t n_targets = input.n_targets, n_scores = 2 * n_targets;
  if (n_targets < 1) throw std::invalid_argument("A likelihood needs at least one target.");
  if (input.weight != nullptr && input.weight_columns != 1 && input.weight_columns != n_targets)
    throw std::invalid_argument("Weights must have one column, or one for each target.");
  const RowChunks chunks(input.n_rows, n_scores);
  const Buffer<float> offset = tile(input.offset, chunks);
  auto space = make_thread_scratch(context, chunks.rows_per_chunk * n_targets);
  chunks.run_chunks(context, [&](int64_t, int thread, int64_t row, int64_t n) {
    const int64_t at = row * n_scores;
    const float* weight =
        expand_weights(input.weight, input.weight_columns, row, n, n_targets, space[thread].data());
    const LikelihoodChunk chunk{n * n_targets, input.raw + at, input.target + row * n_targets,
                                offset.data(), weight};
    likelihood.kernels().derivatives(likelihood.params(), chunk, g + at, h + at);
  });
}

}  // namespace polyleaf
