#include "losses/objectives.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/context.h"
#include "base/parallel.h"
#include "losses/likelihoods.h"

namespace polyleaf {

// Chunks of rows for losses: whole rows, independent of the number of threads.

// A chunk fits the L1 cache while gradient, Hessian and weights pass over it.
constexpr int64_t kChunkElements = 1024;
constexpr int64_t kChunksPerTask = 8;

// Tasks of whole chunks of whole rows, independent of the number of threads. Chunks are multiples
// of the 16 rows that softmax processes at a time.
struct RowChunks {
  int64_t n_rows, n_outputs, rows_per_chunk, rows_per_task;
  // `n_outputs`: floats read or written per row.
  RowChunks(int64_t n_rows, int64_t n_outputs) : n_rows(n_rows), n_outputs(n_outputs) {
    constexpr int64_t kGroup = 16;
    rows_per_chunk = std::max<int64_t>(1, kChunkElements / n_outputs / kGroup) * kGroup;
    rows_per_task = rows_per_chunk * kChunksPerTask;
  }
  int64_t elements() const { return rows_per_chunk * n_outputs; }
  int64_t n_tasks() const { return Block::count(n_rows, rows_per_task); }

  // Call f(task, thread, first_row, n_rows of the chunk) for every chunk.
  template <class F>
  void run_chunks(const Context& context, F&& f) const {
    parallel_for(context, n_tasks(), [&](int64_t task, int thread) {
      const Block block(n_rows, rows_per_task, task);
      for (int64_t row = block.begin; row < block.end; row += rows_per_chunk)
        f(task, thread, row, std::min(rows_per_chunk, block.end - row));
    });
  }
};

// Repeat a value per output for the rows of a chunk, so that element-wise kernels run over flat
// arrays.
inline Buffer<float> tile(const float* values, const RowChunks& chunks) {
  Buffer<float> tiled(static_cast<size_t>(chunks.elements()));
  for (int64_t row = 0; row < chunks.rows_per_chunk; ++row)
    std::copy_n(values, chunks.n_outputs, tiled.data() + row * chunks.n_outputs);
  return tiled;
}

inline std::vector<Buffer<float>> make_thread_scratch(const Context& context, int64_t size) {
  std::vector<Buffer<float>> buffers(static_cast<size_t>(context.n_threads));
  for (auto& buffer : buffers) buffer.reserve(static_cast<size_t>(size));
  return buffers;
}

// Return the weights of rows [row, row + n) as (n, columns) from a matrix with `weight_columns` (1
// or `columns`) columns or nullptr (all 1): in place if the matrix has as many columns, else
// repeated in `space`.
inline const float* expand_weights(const float* weight, int64_t weight_columns, int64_t row,
                                   int64_t n, int64_t columns, float* space) {
  if (weight == nullptr) {
    std::fill_n(space, n * columns, 1.0f);
    return space;
  }
  if (weight_columns == columns) return weight + row * columns;
  for (int64_t i = 0; i < n; ++i) std::fill_n(space + i * columns, columns, weight[row + i]);
  return space;
}

namespace {

void check_input(const LossInput& input) {
  if (input.n_outputs < 1) throw std::invalid_argument("A loss needs at least one output.");
  if (input.weight != nullptr && input.weight_columns != 1 &&
      input.weight_columns != input.n_outputs)
    throw std::invalid_argument("weight must have one column, or one per output.");
}

void check_classes(const ClassLoss& loss, const LossInput& input) {
  check_input(input);
  if (input.weight != nullptr && input.weight_columns != 1)
    throw std::invalid_argument("A class loss must have one weight per row.");
  if (input.shares != nullptr) {
    if (!loss.kernels().takes_shares)
      throw std::invalid_argument("This class loss takes class ids, not shares.");
    return;
  }
  for (int64_t i = 0; i < input.n_rows; ++i)
    if (input.label[i] < 0 || input.label[i] >= input.n_outputs)
      throw std::invalid_argument("A class id is outside 0 .. number of classes - 1.");
}

LossChunk make_chunk(const LossInput& input, int64_t row, int64_t n, const Buffer<float>& offset,
                     const Buffer<float>& parameter) {
  const int64_t at = row * input.n_outputs;
  return {n * input.n_outputs, input.raw + at, input.target + at, offset.data(), parameter.data()};
}

const float* expand_weights(const LossInput& input, int64_t row, int64_t n, int64_t columns,
                            float* space) {
  return polyleaf::expand_weights(input.weight, input.weight_columns, row, n, columns, space);
}

ClassChunk make_class_chunk(const LossInput& input, int64_t row, int64_t n, float* scratch) {
  const int64_t at = row * input.n_outputs;
  return {n,
          input.n_outputs,
          input.raw + at,
          input.shares == nullptr ? input.label + row : nullptr,
          input.shares == nullptr ? nullptr : input.shares + at,
          input.offset,
          scratch};
}

// Run `losses(thread, row, n, out)` over all chunks (`columns` losses per row) and return their
// weighted mean.
template <class F>
double mean_over_chunks(const LossInput& input, int64_t columns, const Context& context,
                        F&& losses) {
  const ObjectiveKernels& kernels = POLYLEAF_SELECT(objective_kernels);
  const RowChunks chunks(input.n_rows, input.n_outputs);
  const int64_t size = chunks.rows_per_chunk * columns;
  auto weights = make_thread_scratch(context, size);
  std::vector<std::vector<double>> out(weights.size(),
                                       std::vector<double>(static_cast<size_t>(size)));
  std::vector<std::pair<double, double>> partial(static_cast<size_t>(chunks.n_tasks()));
  chunks.run_chunks(context, [&](int64_t task, int thread, int64_t row, int64_t n) {
    losses(thread, row, n, out[thread].data());
    const float* weight = expand_weights(input, row, n, columns, weights[thread].data());
    double sums[2] = {partial[task].first, partial[task].second};
    kernels.add_weighted(out[thread].data(), weight, n * columns, sums);
    partial[task] = {sums[0], sums[1]};
  });
  double total = 0, weight = 0;
  for (const auto& [t, w] : partial) {
    total += t;
    weight += w;
  }
  return weight > 0 ? total / weight : 0.0;
}

// Call kernel(chunk, g, h) for every chunk of rows and apply the weights. h: (n_rows, h_columns).
template <class F>
void class_derivatives(const ClassLoss& loss, const LossInput& input, float* g, float* h,
                       int64_t h_columns, const Context& context, F&& kernel) {
  check_classes(loss, input);
  const ObjectiveKernels& kernels = POLYLEAF_SELECT(objective_kernels);
  const int64_t k = input.n_outputs;
  const RowChunks chunks(input.n_rows, h_columns);
  auto scratch = make_thread_scratch(context, class_scratch(k));
  auto space = make_thread_scratch(context, chunks.elements());
  const bool has_tree = input.leaf_of_row != nullptr;
  auto shown = make_thread_scratch(context, has_tree ? chunks.rows_per_chunk * k : 0);
  chunks.run_chunks(context, [&](int64_t, int thread, int64_t row, int64_t n) {
    float *gi = g + row * k, *hi = h + row * h_columns;
    ClassChunk chunk = make_class_chunk(input, row, n, scratch[thread].data());
    if (has_tree) {
      float* sums = shown[thread].data();
      kernels.add_leaves(chunk.raw, input.leaves, input.leaf_of_row + row, n, k, sums);
      chunk.raw = sums;
    }
    kernel(chunk, gi, hi);
    if (input.weight == nullptr) return;
    kernels.multiply(gi, expand_weights(input, row, n, k, space[thread].data()), n * k);
    kernels.multiply(hi, expand_weights(input, row, n, h_columns, space[thread].data()),
                     n * h_columns);
  });
}

}  // namespace

LossTable<LossKernels> loss_table() {
  return POLYLEAF_SELECT(objective_kernels).losses;
}
LossTable<ClassLossKernels> class_loss_table() {
  return POLYLEAF_SELECT(objective_kernels).class_losses;
}

void derivatives(const Loss& loss, const LossInput& input, float* g, float* h, int64_t h_columns,
                 const Context& context) {
  check_input(input);
  const LossKernels& loss_kernels = loss.kernels();
  const bool unit = loss_kernels.unit_hessian;
  if (!unit && (h == nullptr || h_columns != input.n_outputs))
    throw std::invalid_argument("This loss needs a Hessian array with one column for each output.");
  if (h != nullptr && h_columns != input.n_outputs && (h_columns != 1 || input.weight_columns > 1))
    throw std::invalid_argument("The Hessian array has too few columns for these weights.");
  const ObjectiveKernels& kernels = POLYLEAF_SELECT(objective_kernels);
  const RowChunks chunks(input.n_rows, input.n_outputs);
  const Buffer<float> offset = tile(input.offset, chunks),
                      parameter = tile(input.parameter, chunks);
  auto space = make_thread_scratch(context, chunks.elements());
  chunks.run_chunks(context, [&](int64_t, int thread, int64_t row, int64_t n) {
    const int64_t k = input.n_outputs, size = n * k;
    float *gi = g + row * k, *hi = h == nullptr ? nullptr : h + row * h_columns;
    loss_kernels.derivatives(loss.params(), make_chunk(input, row, n, offset, parameter), gi,
                             unit ? nullptr : hi);
    if (input.weight != nullptr) {
      const float* weight = expand_weights(input, row, n, k, space[thread].data());
      kernels.multiply(gi, weight, size);
      if (!unit) kernels.multiply(hi, weight, size);
    }
    if (unit && hi != nullptr) {
      const float* weight = expand_weights(input, row, n, h_columns, space[thread].data());
      std::copy_n(weight, n * h_columns, hi);
    }
  });
}

void derivatives(const ClassLoss& loss, const LossInput& input, float* g, float* h,
                 const Context& context) {
  class_derivatives(loss, input, g, h, input.n_outputs, context,
                    [&](const ClassChunk& chunk, float* gi, float* hi) {
                      loss.kernels().derivatives(loss.params(), chunk, gi, hi);
                    });
}

void hessians(const ClassLoss& loss, const LossInput& input, float* g, float* h,
              const Context& context) {
  class_derivatives(loss, input, g, h, packed_size(input.n_outputs), context,
                    loss.kernels().hessians);
}

double mean_loss(const Loss& loss, const LossInput& input, const Context& context) {
  check_input(input);
  const RowChunks chunks(input.n_rows, input.n_outputs);
  const Buffer<float> offset = tile(input.offset, chunks),
                      parameter = tile(input.parameter, chunks);
  return mean_over_chunks(
      input, input.n_outputs, context, [&](int, int64_t row, int64_t n, double* out) {
        loss.kernels().losses(loss.params(), make_chunk(input, row, n, offset, parameter), out);
      });
}

double mean_loss(const ClassLoss& loss, const LossInput& input, const Context& context) {
  check_classes(loss, input);
  auto scratch = make_thread_scratch(context, class_scratch(input.n_outputs));
  return mean_over_chunks(input, 1, context, [&](int thread, int64_t row, int64_t n, double* out) {
    loss.kernels().losses(make_class_chunk(input, row, n, scratch[thread].data()), out);
  });
}

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
