#include "losses/objectives.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>
#include <vector>

#include "losses/chunking.h"

namespace polyleaf {
namespace {

void check_input(const LossInput& input) {
  if (input.n_outputs < 1) throw std::invalid_argument("A loss needs at least one output.");
  if (input.weight != nullptr && input.weight_columns != 1 &&
      input.weight_columns != input.n_outputs)
    throw std::invalid_argument("Weights must have one column, or one for each output.");
}

void check_labels(const LossInput& input) {
  check_input(input);
  if (input.weight != nullptr && input.weight_columns != 1)
    throw std::invalid_argument("A loss of classes takes one weight for each row.");
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
  return {
      n,      input.n_outputs, input.raw + row * input.n_outputs, input.label + row, input.offset,
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
void class_derivatives(const LossInput& input, float* g, float* h, int64_t h_columns,
                       const Context& context, F&& kernel) {
  check_labels(input);
  const ObjectiveKernels& kernels = POLYLEAF_SELECT(objective_kernels);
  const int64_t k = input.n_outputs;
  const RowChunks chunks(input.n_rows, h_columns);
  auto scratch = make_thread_scratch(context, class_scratch(k));
  auto space = make_thread_scratch(context, chunks.elements());
  chunks.run_chunks(context, [&](int64_t, int thread, int64_t row, int64_t n) {
    float *gi = g + row * k, *hi = h + row * h_columns;
    kernel(make_class_chunk(input, row, n, scratch[thread].data()), gi, hi);
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
  class_derivatives(input, g, h, input.n_outputs, context,
                    [&](const ClassChunk& chunk, float* gi, float* hi) {
                      loss.kernels().derivatives(loss.params(), chunk, gi, hi);
                    });
}

void hessians(const ClassLoss& loss, const LossInput& input, float* g, float* h,
              const Context& context) {
  class_derivatives(input, g, h, packed_size(input.n_outputs), context, loss.kernels().hessians);
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
  check_labels(input);
  auto scratch = make_thread_scratch(context, class_scratch(input.n_outputs));
  return mean_over_chunks(input, 1, context, [&](int thread, int64_t row, int64_t n, double* out) {
    loss.kernels().losses(make_class_chunk(input, row, n, scratch[thread].data()), out);
  });
}

}  // namespace polyleaf
