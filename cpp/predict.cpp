// Prediction over all rows: cuts them into blocks, lets the kernels find leaf ids and add leaf vectors, and
// writes what was asked for. Every row adds its leaf vectors tree after tree in order, whatever the blocks
// and threads.
#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <string>

#include "buffer.h"
#include "forest.h"
#include "parallel.h"

namespace polyleaf {
namespace {

// Trees whose leaf ids are found before any leaf vector is added: their leaf vectors should stay in the
// cache.
constexpr int kGroup = 16;
// Up to this many rows, walking each through the trees costs less than running the tops for a whole slice.
constexpr int64_t kFewRows = 12;
// A thread takes at least so many rows x trees at a time.
constexpr int64_t kTaskWork = 1 << 14;

// The last rows of a block are padded to a multiple of this, so that kernels need no tails.
constexpr int kPadRows = 8;

int round_up(int n, int multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Rows [row, row + n_rows) of the codes: feature f of row r of the block is data[f * stride + r].
struct BlockCodes {
  const uint8_t* data;
  int64_t stride;
  int64_t row;
  int n_rows;
  bool few;  // walk row by row; otherwise rows can be read up to a whole slice
};

// Raw scores of one block. Vector trees need a row's outputs side by side, trees of one output need an
// output's rows side by side; a forest rarely has both, so the layout changes only where the kind of tree
// does.
class Tile {
 public:
  // Zeros, laid out for trees of one output (columns) or of all.
  void reset(int n_rows, int n_outputs, int width, bool columns) {
    n_rows_ = n_rows;
    n_padded_ = round_up(n_rows, kPadRows);
    n_outputs_ = n_outputs;
    width_ = width;
    columns_ = columns;
    clear(data_);
  }
  void use(bool columns) {
    if (columns == columns_) return;
    clear(other_);
    for (int r = 0; r < n_rows_; ++r)
      for (int k = 0; k < n_outputs_; ++k) other_[index(r, k, columns)] = data_[index(r, k, columns_)];
    data_.swap(other_);
    columns_ = columns;
  }
  // To and from dense rows of n_outputs values; `put(value, output)` makes what is stored.
  void load(const float* rows) {
    for (int r = 0; r < n_rows_; ++r, rows += n_outputs_)
      if (columns_)
        for (int k = 0; k < n_outputs_; ++k) data_[index(r, k, true)] = rows[k];
      else
        std::copy_n(rows, n_outputs_, data_.data() + index(r, 0, false));
  }
  template <class T, class Put>
  void save(T* rows, const Put& put) const {
    const size_t step = columns_ ? static_cast<size_t>(n_padded_) : 1;
    for (int r = 0; r < n_rows_; ++r, rows += n_outputs_) {
      const float* from = data_.data() + index(r, 0, columns_);
      if (step == 1)
        for (int k = 0; k < n_outputs_; ++k) rows[k] = put(from[k], k);
      else
        for (int k = 0; k < n_outputs_; ++k) rows[k] = put(from[k * step], k);
    }
  }
  float* rows() { return data_.data(); }
  float* column(int output) { return data_.data() + index(0, output, true); }

 private:
  size_t index(int row, int output, bool columns) const {
    return columns ? static_cast<size_t>(output) * n_padded_ + row
                   : static_cast<size_t>(row) * width_ + output;
  }
  void clear(Buffer<float>& data) {
    const size_t size =
        static_cast<size_t>(n_padded_) * width_;  // n_outputs <= width: enough for both layouts
    data.reserve(size);
    std::fill_n(data.data(), size, 0.0f);
  }

  int n_rows_ = 0, n_padded_ = 0, n_outputs_ = 0, width_ = 0;
  bool columns_ = false;
  Buffer<float> data_, other_;
};

// What one thread needs; allocated when the thread has its first block.
struct Worker {
  Buffer<uint8_t> top, codes;
  Buffer<uint32_t> leaves;  // [tree of the group][kBlockRows]
  Tile tile;

  uint8_t* top_scratch() {
    if (top.size() == 0) {
      top.reserve(kTopScratch);
      for (int exit = 0; exit < kMaxExits; ++exit)
        std::fill_n(top.data() + exit * 64, 64, static_cast<uint8_t>(exit));
    }
    return top.data();
  }
};

// A block of codes copied together, so that a forest's many reads of it stay in the cache.
BlockCodes copy_block(const CodeMatrix& codes, int64_t row, int n_rows, Worker& worker) {
  worker.codes.reserve(static_cast<size_t>(codes.n_features) * kBlockRows);
  const int n_read = round_up(n_rows, kSliceRows);
  for (int64_t f = 0; f < codes.n_features; ++f) {
    uint8_t* to = worker.codes.data() + f * kBlockRows;
    std::copy_n(codes.data + f * codes.n_rows + row, n_rows, to);
    std::fill(to + n_rows, to + n_read, uint8_t{0});
  }
  return {worker.codes.data(), kBlockRows, row, n_rows, false};
}

// Cuts rows [begin, end) into blocks. With many features and few trees most codes are not read at all: then
// blocks are read where they lie (`in_place`), and the rows after the last whole slice are walked.
template <class Visit>
void for_each_block(const CodeMatrix& codes, int64_t begin, int64_t end, int block_rows, bool in_place,
                    Worker& worker, const Visit& visit) {
  for (int64_t row = begin; row < end;) {
    int n_rows = static_cast<int>(std::min<int64_t>(block_rows, end - row));
    if (in_place && n_rows >= kSliceRows) n_rows = n_rows / kSliceRows * kSliceRows;
    const bool few = codes.n_features > 0 && (n_rows <= kFewRows || (in_place && n_rows < kSliceRows));
    if (few || in_place)
      visit(BlockCodes{codes.data + row, codes.n_rows, row, n_rows, few});
    else
      visit(copy_block(codes, row, n_rows, worker));
    row += n_rows;
  }
}

// Leaf ids of the block's rows, and valid ids for its padding, in n_trees <= kGroup trees.
void find_leaves(const ForestArrays& forest, const CompiledTree* trees, int n_trees, const BlockCodes& block,
                 Worker& worker) {
  const PredictKernels& kernels = POLYLEAF_SELECT(predict_kernels);
  worker.leaves.reserve(kGroup * kBlockRows);
  uint32_t* leaves = worker.leaves.data();
  if (block.few) {
    const int n_padded = round_up(block.n_rows, kPadRows);
    for (int t = 0; t < n_trees; ++t) std::fill_n(leaves + t * kBlockRows, n_padded, 0u);
    uint32_t of_row[kLanes];
    for (int r = 0; r < block.n_rows; ++r) {
      kernels.leaves_of_row(forest, trees, n_trees, block.data + r, block.stride, of_row);
      for (int t = 0; t < n_trees; ++t) leaves[t * kBlockRows + r] = of_row[t];
    }
    return;
  }
  const int step = block.n_rows == kBlockRows ? kBlockRows : kSliceRows;
  for (int t = 0; t < n_trees; ++t)
    for (int r = 0; r < block.n_rows; r += step)
      kernels.leaves_of_block(forest, trees[t], block.data + r, block.stride, step, worker.top_scratch(),
                              leaves + t * kBlockRows + r);
}

// Adds the trees of the range to the worker's tile.
void add_trees(const ForestArrays& forest, const CompiledTree* trees, TreeRange range, int width,
               const BlockCodes& block, Worker& worker) {
  const PredictKernels& kernels = POLYLEAF_SELECT(predict_kernels);
  const int n_padded = round_up(block.n_rows, kPadRows);
  for (int32_t first = range.first; first < range.last;) {
    const bool columns = trees[first].output >= 0;
    int32_t last = first + 1;
    while (last < range.last && last - first < kGroup && (trees[last].output >= 0) == columns) ++last;
    find_leaves(forest, trees + first, last - first, block, worker);
    worker.tile.use(columns);
    if (columns)
      for (int32_t t = first; t < last; ++t)
        kernels.add_scalars(trees[t].values, worker.leaves.data() + (t - first) * kBlockRows, n_padded,
                            worker.tile.column(trees[t].output));
    else
      kernels.add_vectors(trees + first, last - first, worker.leaves.data(), n_padded, width,
                          worker.tile.rows());
    first = last;
  }
}

}  // namespace

void Forest::check(const CodeMatrix& codes, TreeRange range) const {
  if (range.first < 0 || range.first > range.last || range.last > n_trees())
    throw std::invalid_argument("Trees " + std::to_string(range.first) + " to " + std::to_string(range.last) +
                                " were asked for, but the forest has " + std::to_string(n_trees()) +
                                " trees.");
  const int32_t needed = range.last == 0 ? 0 : entries_[range.last - 1].n_features;
  if (codes.n_features < needed)
    throw std::invalid_argument("The codes have " + std::to_string(codes.n_features) +
                                " features, but the trees read " + std::to_string(needed) + ".");
}

template <class Visit>
void Forest::for_blocks(const CodeMatrix& codes, TreeRange range, int n_threads, const Visit& visit) const {
  const int64_t n_trees = range.last - range.first;
  int64_t n_tops = 0;
  for (int32_t t = range.first; t < range.last; ++t) n_tops += compiled_[t].n_top;
  const bool in_place = codes.n_features > n_tops;
  // A tile of very many outputs would leave the cache.
  const int block_rows = n_outputs_ <= 1024 ? kBlockRows : kSliceRows;
  const int64_t task_rows =
      std::max<int64_t>(kBlockRows, kTaskWork / std::max<int64_t>(1, n_trees) / kBlockRows * kBlockRows);
  n_threads = static_cast<int>(std::clamp<int64_t>(n_threads, 1, Block::count(codes.n_rows, task_rows) + 1));
  std::vector<Worker> workers(n_threads);
  parallel_for(n_threads, Block::count(codes.n_rows, task_rows), [&](int64_t task, int thread) {
    const Block rows(codes.n_rows, task_rows, task);
    Worker& worker = workers[thread];
    for_each_block(codes, rows.begin, rows.end, block_rows, in_place, worker,
                   [&](const BlockCodes& block) { visit(block, worker); });
  });
}

void Forest::predict(const CodeMatrix& codes, float* raw, TreeRange range, int n_threads) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  check(codes, range);
  if (range.first == range.last) return;
  const bool columns = compiled_[range.first].output >= 0;
  for_blocks(codes, range, n_threads, [&](const BlockCodes& block, Worker& worker) {
    float* rows = raw + block.row * n_outputs_;
    worker.tile.reset(block.n_rows, n_outputs_, width_, columns);
    worker.tile.load(rows);
    add_trees(arrays(), compiled_.data(), range, width_, block, worker);
    worker.tile.save(rows, [](float value, int) { return value; });
  });
}

void Forest::scores(const CodeMatrix& codes, const double* base, const double* scale, const double* offset,
                    double* scores, TreeRange range, int n_threads) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  check(codes, range);
  const bool columns = range.first < range.last && compiled_[range.first].output >= 0;
  for_blocks(codes, range, n_threads, [&](const BlockCodes& block, Worker& worker) {
    worker.tile.reset(block.n_rows, n_outputs_, width_, columns);
    add_trees(arrays(), compiled_.data(), range, width_, block, worker);
    double* rows = scores + block.row * n_outputs_;
    if (scale != nullptr)
      worker.tile.save(rows,
                       [&](float sum, int k) { return (base[k] + double{sum}) * scale[k] + offset[k]; });
    else
      worker.tile.save(rows, [&](float sum, int k) { return base[k] + double{sum}; });
  });
}

void Forest::apply(const CodeMatrix& codes, int32_t* leaves, TreeRange range, int n_threads) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  check(codes, range);
  const int64_t n_columns = range.last - range.first;
  for_blocks(codes, range, n_threads, [&](const BlockCodes& block, Worker& worker) {
    for (int32_t first = range.first; first < range.last; first += kGroup) {
      const int n_trees = std::min(kGroup, range.last - first);
      find_leaves(arrays(), compiled_.data() + first, n_trees, block, worker);
      for (int r = 0; r < block.n_rows; ++r)
        for (int t = 0; t < n_trees; ++t)
          leaves[(block.row + r) * n_columns + (first - range.first) + t] =
              static_cast<int32_t>(worker.leaves[t * kBlockRows + r]);
    }
  });
}

}  // namespace polyleaf
