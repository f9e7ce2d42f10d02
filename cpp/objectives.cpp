#include "objectives.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>
#include <vector>

#include "buffer.h"
#include "parallel.h"

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
  void for_each_chunk(int n_threads, F&& f) const {
    parallel_for(n_threads, n_tasks(), [&](int64_t task, int thread) {
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

std::vector<Buffer<float>> scratch_of_threads(int n_threads, int64_t size) {
  std::vector<Buffer<float>> buffers(static_cast<size_t>(std::max(1, n_threads)));
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
double mean_over_chunks(const LossInput& input, int64_t columns, int n_threads, F&& losses) {
  const ObjectiveKernels& kernels = POLYLEAF_SELECT(objective_kernels);
  const Cut cut(input);
  const int64_t size = cut.rows_per_chunk * columns;
  auto weights = scratch_of_threads(n_threads, size);
  std::vector<std::vector<double>> out(weights.size(), std::vector<double>(static_cast<size_t>(size)));
  std::vector<std::pair<double, double>> partial(static_cast<size_t>(cut.n_tasks()));
  cut.for_each_chunk(n_threads, [&](int64_t task, int thread, int64_t row, int64_t n) {
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

}  // namespace

bool has_unit_curvature(LossFamily family) {
  return family != LossFamily::log_link && family != LossFamily::logistic;
}

void derivatives(const LossConfig& config, const LossInput& input, float* g, float* h, int64_t h_columns,
                 int n_threads) {
  check_input(input);
  const bool unit = has_unit_curvature(config.family);
  if (!unit && (h == nullptr || h_columns != input.n_outputs))
    throw std::invalid_argument("This loss needs a curvature array with one column for each output.");
  if (h != nullptr && h_columns != input.n_outputs && (h_columns != 1 || input.weight_columns > 1))
    throw std::invalid_argument("The curvature array has too few columns for these weights.");
  const ObjectiveKernels& kernels = POLYLEAF_SELECT(objective_kernels);
  const Cut cut(input);
  const Buffer<float> offset = tile(input.offset, cut), parameter = tile(input.parameter, cut);
  auto space = scratch_of_threads(n_threads, cut.elements());
  cut.for_each_chunk(n_threads, [&](int64_t, int thread, int64_t row, int64_t n) {
    const int64_t k = input.n_outputs, size = n * k;
    float *gi = g + row * k, *hi = h == nullptr ? nullptr : h + row * h_columns;
    kernels.derivatives(config, chunk_of(input, row, n, offset, parameter), gi, unit ? nullptr : hi);
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

namespace {

// Calls kernel(chunk, g, h) for every chunk of rows, and applies the weights. h: (n_rows, h_columns).
template <class F>
void class_derivatives(const LossInput& input, float* g, float* h, int64_t h_columns, int n_threads,
                       F&& kernel) {
  check_labels(input);
  const ObjectiveKernels& kernels = POLYLEAF_SELECT(objective_kernels);
  const int64_t k = input.n_outputs;
  const Cut cut(input.n_rows, h_columns);
  auto scratch = scratch_of_threads(n_threads, class_scratch(k));
  auto space = scratch_of_threads(n_threads, cut.elements());
  cut.for_each_chunk(n_threads, [&](int64_t, int thread, int64_t row, int64_t n) {
    float *gi = g + row * k, *hi = h + row * h_columns;
    kernel(class_chunk_of(input, row, n, scratch[thread].data()), gi, hi);
    if (input.weight == nullptr) return;
    kernels.multiply(gi, weights_of(input, row, n, k, space[thread].data()), n * k);
    kernels.multiply(hi, weights_of(input, row, n, h_columns, space[thread].data()), n * h_columns);
  });
}

}  // namespace

void softmax_derivatives(SoftmaxCurvature curvature, float factor, const LossInput& input, float* g, float* h,
                         int n_threads) {
  const auto kernel = POLYLEAF_SELECT(objective_kernels).softmax_derivatives;
  class_derivatives(
      input, g, h, input.n_outputs, n_threads,
      [&](const ClassChunk& chunk, float* gi, float* hi) { kernel(curvature, factor, chunk, gi, hi); });
}

void exponential_derivatives(ClassLoss loss, const LossInput& input, float* g, float* h, int n_threads) {
  if (loss == ClassLoss::softmax)
    throw std::invalid_argument("The exponential losses are exponential and margin.");
  const auto kernel = POLYLEAF_SELECT(objective_kernels).exponential_derivatives;
  class_derivatives(input, g, h, input.n_outputs, n_threads,
                    [&](const ClassChunk& chunk, float* gi, float* hi) { kernel(loss, chunk, gi, hi); });
}

void class_hessians(ClassLoss loss, const LossInput& input, float* g, float* h, int n_threads) {
  const auto kernel = POLYLEAF_SELECT(objective_kernels).class_hessians;
  class_derivatives(input, g, h, packed_size(input.n_outputs), n_threads,
                    [&](const ClassChunk& chunk, float* gi, float* hi) { kernel(loss, chunk, gi, hi); });
}

double mean_loss(const LossConfig& config, const LossInput& input, int n_threads) {
  check_input(input);
  const ObjectiveKernels& kernels = POLYLEAF_SELECT(objective_kernels);
  const Cut cut(input);
  const Buffer<float> offset = tile(input.offset, cut), parameter = tile(input.parameter, cut);
  return mean_over_chunks(input, input.n_outputs, n_threads, [&](int, int64_t row, int64_t n, double* out) {
    kernels.losses(config, chunk_of(input, row, n, offset, parameter), out);
  });
}

double class_mean_loss(ClassLoss loss, const LossInput& input, int n_threads) {
  check_labels(input);
  const ObjectiveKernels& kernels = POLYLEAF_SELECT(objective_kernels);
  auto scratch = scratch_of_threads(n_threads, class_scratch(input.n_outputs));
  return mean_over_chunks(input, 1, n_threads, [&](int thread, int64_t row, int64_t n, double* out) {
    kernels.class_losses(loss, class_chunk_of(input, row, n, scratch[thread].data()), out);
  });
}

template <class T>
void weighted_totals(const T* values, int64_t n_rows, int64_t n_columns, const float* weight,
                     int64_t weight_columns, double* totals, int n_threads) {
  constexpr int64_t kRows = 4096;
  const int64_t n_blocks = Block::count(n_rows, kRows);
  std::vector<double> partial(static_cast<size_t>(n_blocks * 2 * n_columns), 0.0);
  parallel_for(n_threads, n_blocks, [&](int64_t task, int) {
    double* sums = partial.data() + task * 2 * n_columns;
    const Block block(n_rows, kRows, task);
    for (int64_t i = block.begin; i < block.end; ++i)
      for (int64_t k = 0; k < n_columns; ++k) {
        const double w = weight == nullptr ? 1.0 : weight[weight_columns == 1 ? i : i * n_columns + k];
        sums[k] += w * static_cast<double>(values[i * n_columns + k]);
        sums[n_columns + k] += w;
      }
  });
  std::fill_n(totals, 2 * n_columns, 0.0);
  for (int64_t task = 0; task < n_blocks; ++task)
    for (int64_t j = 0; j < 2 * n_columns; ++j) totals[j] += partial[task * 2 * n_columns + j];
}

namespace {

// A level times a total is a float just above the integer meant (0.07 * 100 > 7): this much is forgiven.
constexpr double kLevelSlack = 1.0 - 1e-12;

template <class T>
T quantile(std::vector<T>& values, double level) {
  const double wanted = std::ceil(level * kLevelSlack * static_cast<double>(values.size()));
  const auto rank =
      std::clamp<int64_t>(static_cast<int64_t>(wanted) - 1, 0, static_cast<int64_t>(values.size()) - 1);
  std::nth_element(values.begin(), values.begin() + rank, values.end());
  return values[static_cast<size_t>(rank)];
}

// Weights are added in order of value, equal values in order of row: the sum does not depend on the sort.
template <class T>
T weighted_quantile(std::vector<std::pair<T, float>>& items, double level) {
  std::stable_sort(items.begin(), items.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  double total = 0;
  for (const auto& item : items) total += item.second;
  const double wanted = level * kLevelSlack * total;
  double sum = 0;
  for (const auto& item : items)
    if ((sum += item.second) >= wanted) return item.first;
  return items.back().first;
}

// Rows sorted by leaf, within a leaf in the order given; start[l] .. start[l + 1] are those of leaf l.
struct RowLists {
  std::vector<int64_t> start, rows;
  RowLists(const RowsOfLeaves& leaves, int64_t n_rows) : start(static_cast<size_t>(leaves.n_leaves) + 1, 0) {
    auto row_at = [&](int64_t i) {
      return leaves.rows == nullptr ? i : static_cast<int64_t>(leaves.rows[i]);
    };
    auto leaf_at = [&](int64_t row) { return leaves.leaf_of_row == nullptr ? 0 : leaves.leaf_of_row[row]; };
    for (int64_t i = 0; i < leaves.n_used; ++i) {
      const int64_t row = row_at(i);
      if (row < 0 || row >= n_rows) throw std::invalid_argument("A row id is outside the data.");
      const int32_t leaf = leaf_at(row);
      if (leaf >= leaves.n_leaves)
        throw std::invalid_argument("A leaf id is outside 0 .. number of leaves - 1.");
      if (leaf >= 0) ++start[static_cast<size_t>(leaf) + 1];
    }
    for (size_t l = 1; l < start.size(); ++l) start[l] += start[l - 1];
    rows.resize(static_cast<size_t>(start.back()));
    std::vector<int64_t> next(start.begin(), start.end() - 1);
    for (int64_t i = 0; i < leaves.n_used; ++i) {
      const int64_t row = row_at(i);
      if (const int32_t leaf = leaf_at(row); leaf >= 0) rows[static_cast<size_t>(next[leaf]++)] = row;
    }
  }
};

}  // namespace

template <class T>
void leaf_quantiles(const T* values, int64_t n_rows, int64_t n_columns, const float* weight,
                    int64_t weight_columns, const RowsOfLeaves& leaves, const double* level, T* out,
                    int n_threads) {
  const RowLists lists(leaves, n_rows);
  const size_t n_slots = static_cast<size_t>(std::max(1, n_threads));
  std::vector<std::vector<T>> plain(n_slots);
  std::vector<std::vector<std::pair<T, float>>> weighted(n_slots);
  parallel_for(n_threads, leaves.n_leaves * n_columns, [&](int64_t task, int thread) {
    const int64_t leaf = task / n_columns, k = task % n_columns;
    auto& v = plain[thread];
    auto& items = weighted[thread];
    v.clear();
    items.clear();
    for (int64_t j = lists.start[leaf]; j < lists.start[leaf + 1]; ++j) {
      const int64_t row = lists.rows[j];
      const T value = values[row * n_columns + k];
      if (std::isnan(value))
        throw std::invalid_argument("A quantile was asked for over values that contain NaN.");
      if (weight == nullptr)
        v.push_back(value);
      else if (const float w = weight[weight_columns == 1 ? row : row * n_columns + k]; w > 0)
        items.emplace_back(value, w);
    }
    T result = 0;
    if (!v.empty()) result = quantile(v, level[k]);
    if (!items.empty()) result = weighted_quantile(items, level[k]);
    out[task] = result;
  });
}

template void weighted_totals(const float*, int64_t, int64_t, const float*, int64_t, double*, int);
template void weighted_totals(const double*, int64_t, int64_t, const float*, int64_t, double*, int);
template void leaf_quantiles(const float*, int64_t, int64_t, const float*, int64_t, const RowsOfLeaves&,
                             const double*, float*, int);
template void leaf_quantiles(const double*, int64_t, int64_t, const float*, int64_t, const RowsOfLeaves&,
                             const double*, double*, int);

}  // namespace polyleaf
