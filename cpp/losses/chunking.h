// Chunks of rows for losses: whole rows, independent of the number of threads.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/context.h"
#include "base/parallel.h"

namespace polyleaf {

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

}  // namespace polyleaf
