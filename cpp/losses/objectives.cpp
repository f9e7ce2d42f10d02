#include "losses/objectives.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/parallel.h"

namespace polyleaf {
namespace {

// A chunk stays in the first-level cache while gradient, curvature and weights pass over it.
constexpr int64_t kChunkElements = 1024;
constexpr int64_t kChunksPerTask = 8;
constexpr int64_t kLanes = 16;

// How the rows are cut: tasks of whole chunks of whole rows, whatever the number of threads. Chunks are
// multiples of the 16 rows softmax works on.
struct Cut {
  int64_t n_rows, n_outputs, rows_per_chunk, rows_per_task;
  explicit Cut(const LossInput& input) : Cut(input.n_rows, input.n_outputs) {}
  // `n_outputs`: floats that are written for a row.
  Cut(int64_t n_rows, int64_t n_outputs) : n_rows(n_rows), n_outputs(n_outputs) {
    rows_per_chunk = std::max<int64_t>(1, kChunkElements / n_outputs / kLanes) * kLanes;
    rows_per_task = rows_per_chunk * kChunksPerTask;
  }
  int64_t elements() const { return rows_per_chunk * n_outputs; }
  int64_t n_tasks() const { return Block::count(n_rows, rows_per_task); }

  // Calls f(task, thread, first_row, n_rows of the chunk) for every chunk.
  template <class F>
  void for_each_chunk(const Workers& workers, F&& f) const {
    parallel_for(workers, n_tasks(), [&](int64_t task, int thread) {
      const Block block(n_rows, rows_per_task, task);
      for (int64_t row = block.begin; row < block.end; row += rows_per_chunk)
        f(task, thread, row, std::min(rows_per_chunk, block.end - row));
    });
  }
};

// A value per output, repeated for the rows of a chunk: element-wise kernels then run over flat arrays.
Buffer<float> tile(const float* values, const Cut& cut) {
  Buffer<float> tiled(static_cast<size_t>(cut.elements()));
  for (int64_t row = 0; row < cut.rows_per_chunk; ++row)
    std::copy_n(values, cut.n_outputs, tiled.data() + row * cut.n_outputs);
  return tiled;
}

std::vector<Buffer<float>> scratch_of_threads(const Workers& workers, int64_t size) {
  std::vector<Buffer<float>> buffers(static_cast<size_t>(workers.n_threads));
  for (auto& buffer : buffers) buffer.reserve(static_cast<size_t>(size));
  return buffers;
}

// Weights of rows [row, row + n) as (n, columns): in place where the matrix has as many columns, else
// repeated.
const float* weights_of(const LossInput& input, int64_t row, int64_t n, int64_t columns, float* space) {
  if (input.weight == nullptr) {
    std::fill_n(space, n * columns, 1.0f);
    return space;
  }
  if (input.weight_columns == columns) return input.weight + row * columns;
  for (int64_t i = 0; i < n; ++i) std::fill_n(space + i * columns, columns, input.weight[row + i]);
  return space;
}

void check_input(const LossInput& input) {
  if (input.n_outputs < 1) throw std::invalid_argument("A loss needs at least one output.");
  if (input.weight != nullptr && input.weight_columns != 1 && input.weight_columns != input.n_outputs)
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

LossChunk chunk_of(const LossInput& input, int64_t row, int64_t n, const Buffer<float>& offset,
                   const Buffer<float>& parameter) {
  const int64_t at = row * input.n_outputs;
  return {n * input.n_outputs, input.raw + at, input.target + at, offset.data(), parameter.data()};
}

ClassChunk class_chunk_of(const LossInput& input, int64_t row, int64_t n, float* scratch) {
  return {n, input.n_outputs, input.raw + row * input.n_outputs, input.label + row, input.offset, scratch};
}

// Runs `losses(thread, row, n, out)` over all chunks (`columns` losses a row) and returns their weighted
// mean.
template <class F>
double mean_over_chunks(const LossInput& input, int64_t columns, const Workers& workers, F&& losses) {
  const ObjectiveKernels& kernels = POLYLEAF_SELECT(objective_kernels);
  const Cut cut(input);
  const int64_t size = cut.rows_per_chunk * columns;
  auto weights = scratch_of_threads(workers, size);
  std::vector<std::vector<double>> out(weights.size(), std::vector<double>(static_cast<size_t>(size)));
  std::vector<std::pair<double, double>> partial(static_cast<size_t>(cut.n_tasks()));
  cut.for_each_chunk(workers, [&](int64_t task, int thread, int64_t row, int64_t n) {
    losses(thread, row, n, out[thread].data());
    const float* weight = weights_of(input, row, n, columns, weights[thread].data());
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

// Calls kernel(chunk, g, h) for every chunk of rows, and applies the weights. h: (n_rows, h_columns).
template <class F>
void class_derivatives(const LossInput& input, float* g, float* h, int64_t h_columns, const Workers& workers,
                       F&& kernel) {
  check_labels(input);
  const ObjectiveKernels& kernels = POLYLEAF_SELECT(objective_kernels);
  const int64_t k = input.n_outputs;
  const Cut cut(input.n_rows, h_columns);
  auto scratch = scratch_of_threads(workers, class_scratch(k));
  auto space = scratch_of_threads(workers, cut.elements());
  cut.for_each_chunk(workers, [&](int64_t, int thread, int64_t row, int64_t n) {
    float *gi = g + row * k, *hi = h + row * h_columns;
    kernel(class_chunk_of(input, row, n, scratch[thread].data()), gi, hi);
    if (input.weight == nullptr) return;
    kernels.multiply(gi, weights_of(input, row, n, k, space[thread].data()), n * k);
    kernels.multiply(hi, weights_of(input, row, n, h_columns, space[thread].data()), n * h_columns);
  });
}

// Names of a loss's parameters, in order.
std::vector<std::string> names(const char* const* parameters) {
  std::vector<std::string> found;
  for (int i = 0; i < kMostParameters && parameters[i] != nullptr; ++i) found.emplace_back(parameters[i]);
  return found;
}

}  // namespace

template <class Kernels, LossTable<Kernels> ObjectiveKernels::* kTable>
LossOf<Kernels, kTable>::LossOf(const std::string& name, const Parameters& parameters) {
  for (index_ = 0; index_ < table().n && name != kernels().name;) ++index_;
  if (index_ == table().n) throw std::invalid_argument("The core has no loss \"" + name + "\".");
  const std::vector<std::string> wanted = names(kernels().parameters);
  for (const auto& [parameter, value] : parameters)
    if (std::find(wanted.begin(), wanted.end(), parameter) == wanted.end())
      throw std::invalid_argument("Loss \"" + name + "\" has no parameter \"" + parameter + "\".");
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto given = parameters.find(wanted[i]);
    if (given == parameters.end())
      throw std::invalid_argument("Loss \"" + name + "\" needs the parameter \"" + wanted[i] + "\".");
    numbers_[i] = given->second;
  }
}

template <class Kernels, LossTable<Kernels> ObjectiveKernels::* kTable>
std::map<std::string, std::vector<std::string>> LossOf<Kernels, kTable>::known() {
  std::map<std::string, std::vector<std::string>> found;
  for (int i = 0; i < table().n; ++i) found[table().first[i].name] = names(table().first[i].parameters);
  return found;
}

template class LossOf<LossKernels, &ObjectiveKernels::losses>;
template class LossOf<ClassLossKernels, &ObjectiveKernels::class_losses>;

void derivatives(const Loss& loss, const LossInput& input, float* g, float* h, int64_t h_columns,
                 const Workers& workers) {
  check_input(input);
  const LossKernels& of_loss = loss.kernels();
  const bool unit = of_loss.unit_curvature;
  if (!unit && (h == nullptr || h_columns != input.n_outputs))
    throw std::invalid_argument("This loss needs a curvature array with one column for each output.");
  if (h != nullptr && h_columns != input.n_outputs && (h_columns != 1 || input.weight_columns > 1))
    throw std::invalid_argument("The curvature array has too few columns for these weights.");
  const ObjectiveKernels& kernels = POLYLEAF_SELECT(objective_kernels);
  const Cut cut(input);
  const Buffer<float> offset = tile(input.offset, cut), parameter = tile(input.parameter, cut);
  auto space = scratch_of_threads(workers, cut.elements());
  cut.for_each_chunk(workers, [&](int64_t, int thread, int64_t row, int64_t n) {
    const int64_t k = input.n_outputs, size = n * k;
    float *gi = g + row * k, *hi = h == nullptr ? nullptr : h + row * h_columns;
    of_loss.derivatives(loss.numbers(), chunk_of(input, row, n, offset, parameter), gi, unit ? nullptr : hi);
    if (input.weight != nullptr) {
      const float* weight = weights_of(input, row, n, k, space[thread].data());
      kernels.multiply(gi, weight, size);
      if (!unit) kernels.multiply(hi, weight, size);
    }
    if (unit && hi != nullptr) {
      const float* weight = weights_of(input, row, n, h_columns, space[thread].data());
      std::copy_n(weight, n * h_columns, hi);
    }
  });
}

void derivatives(const ClassLoss& loss, const LossInput& input, float* g, float* h, const Workers& workers) {
  class_derivatives(input, g, h, input.n_outputs, workers,
                    [&](const ClassChunk& chunk, float* gi, float* hi) {
                      loss.kernels().derivatives(loss.numbers(), chunk, gi, hi);
                    });
}

void hessians(const ClassLoss& loss, const LossInput& input, float* g, float* h, const Workers& workers) {
  class_derivatives(input, g, h, packed_size(input.n_outputs), workers, loss.kernels().hessians);
}

double mean_loss(const Loss& loss, const LossInput& input, const Workers& workers) {
  check_input(input);
  const Cut cut(input);
  const Buffer<float> offset = tile(input.offset, cut), parameter = tile(input.parameter, cut);
  return mean_over_chunks(input, input.n_outputs, workers, [&](int, int64_t row, int64_t n, double* out) {
    loss.kernels().losses(loss.numbers(), chunk_of(input, row, n, offset, parameter), out);
  });
}

double mean_loss(const ClassLoss& loss, const LossInput& input, const Workers& workers) {
  check_labels(input);
  auto scratch = scratch_of_threads(workers, class_scratch(input.n_outputs));
  return mean_over_chunks(input, 1, workers, [&](int thread, int64_t row, int64_t n, double* out) {
    loss.kernels().losses(class_chunk_of(input, row, n, scratch[thread].data()), out);
  });
}

}  // namespace polyleaf
