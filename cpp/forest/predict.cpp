// Prediction over all rows: splits them into blocks, lets the kernels find leaf ids and add leaf
// values, and writes the result. Every row adds its leaf values tree after tree in order,
// independent of blocks and threads.
#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>

#include "base/aligned_buffer.h"
#include "base/parallel.h"
#include "forest/forest.h"
#include "forest/ranking.h"
#include "forest/score_block.h"

namespace polyleaf {
namespace {

// Trees whose leaf ids are found before leaf values are added; their leaf values should fit the
// cache.
constexpr int kGroup = 16;
// Up to this many rows, walking each row through the trees is cheaper than running the tops for a
// whole slice.
constexpr int64_t kSmallBlockRows = 12;
// Minimum rows x trees per task.
constexpr int64_t kTaskWork = 1 << 14;

// Rows [row, row + n_rows) of the codes: feature f of row r of the block is data[f * stride + r].
struct BlockCodes {
  const uint8_t* data;
  int64_t stride;
  int64_t row;
  int n_rows;
  bool is_small;  // walk row by row; otherwise rows are readable up to a whole slice
};

// Memory of one thread, allocated for its first block.
struct Worker {
  Buffer<uint8_t> top, codes;
  Buffer<uint32_t> leaves;  // [tree of the group][kBlockRows]
  Buffer<uint32_t> by_row;  // [row][tree]
  ScoreBlock scores;

  uint8_t* top_scratch() {
    if (top.size() == 0) {
      top.reserve(kTopScratch);
      for (int exit = 0; exit < kMaxExits; ++exit)
        std::fill_n(top.data() + exit * 64, 64, static_cast<uint8_t>(exit));
    }
    return top.data();
  }
};

// Copy the codes of a block that trees split on, so that a forest's many reads of them stay in the
// cache.
BlockCodes copy_block(const CodeMatrix& codes, const std::vector<int32_t>& split_features,
                      int64_t row, int n_rows, Worker& worker) {
  worker.codes.reserve(static_cast<size_t>(codes.n_features) * kBlockRows);
  const int n_read = round_up(n_rows, kSliceRows);
  for (int64_t f : split_features) {
    uint8_t* to = worker.codes.data() + f * kBlockRows;
    std::copy_n(codes.data + f * codes.n_rows + row, n_rows, to);
    std::fill(to + n_rows, to + n_read, uint8_t{0});
  }
  return {worker.codes.data(), kBlockRows, row, n_rows, false};
}

// Split rows [begin, end) into blocks. With many features and few trees most codes are not read;
// then blocks are read in place (`in_place`), and rows after the last whole slice are walked.
template <class Visit>
void visit_row_blocks(const CodeMatrix& codes, const std::vector<int32_t>& split_features,
                      int64_t begin, int64_t end, int block_rows, bool in_place, Worker& worker,
                      const Visit& visit) {
  for (int64_t row = begin; row < end;) {
    int n_rows = static_cast<int>(std::min<int64_t>(block_rows, end - row));
    if (in_place && n_rows >= kSliceRows) n_rows = n_rows / kSliceRows * kSliceRows;
    const bool is_small =
        codes.n_features > 0 && (n_rows <= kSmallBlockRows || (in_place && n_rows < kSliceRows));
    if (is_small || in_place)
      visit(BlockCodes{codes.data + row, codes.n_rows, row, n_rows, is_small});
    else
      visit(copy_block(codes, split_features, row, n_rows, worker));
    row += n_rows;
  }
}

// Find leaf ids of the block's rows, and valid ids for its padding, in n_trees <= kGroup trees.
void find_leaves(const ForestArrays& forest, const CompiledTree* trees, int n_trees,
                 const BlockCodes& block, Worker& worker) {
  const PredictKernels& kernels = POLYLEAF_SELECT(predict_kernels);
  worker.leaves.reserve(kGroup * kBlockRows);
  uint32_t* leaves = worker.leaves.data();
  if (block.is_small) {
    const int n_padded = round_up(block.n_rows, kPadRows);
    for (int t = 0; t < n_trees; ++t) std::fill_n(leaves + t * kBlockRows, n_padded, 0u);
    uint32_t row_leaves[kLanes];
    for (int r = 0; r < block.n_rows; ++r) {
      kernels.find_row_leaves(forest, trees, n_trees, block.data + r, block.stride, row_leaves);
      for (int t = 0; t < n_trees; ++t) leaves[t * kBlockRows + r] = row_leaves[t];
    }
    return;
  }
  const int step = block.n_rows == kBlockRows ? kBlockRows : kSliceRows;
  for (int t = 0; t < n_trees; ++t)
    for (int r = 0; r < block.n_rows; r += step)
      kernels.find_leaves(forest, trees[t], block.data + r, block.stride, step,
                          worker.top_scratch(), leaves + t * kBlockRows + r);
}

// Add trees of one layout and one kind of leaves, whose leaf ids have been found, to the worker's
// block.
void add_group(const LeafTarget* trees, int n_trees, int width, const BlockCodes& block,
               const FeatureMatrix& features, Worker& worker) {
  const LeafKind& kind = *trees[0].leaves->kind;
  const uint32_t* leaves = worker.leaves.data();
  const bool columns = trees[0].outputs != nullptr;
  worker.scores.use(columns);
  if (!columns && kind.add_trees != nullptr)
    return kind.add_trees(trees, n_trees, leaves, kBlockRows, round_up(block.n_rows, kPadRows),
                          width, worker.scores.rows());
  const AddLeaves add = kind.adder();
  const RowFeatures block_features = features.from_row(block.row);
  for (int t = 0; t < n_trees; ++t, leaves += kBlockRows)
    if (columns)
      add_listed_outputs(trees[t], leaves, block.n_rows, block_features, worker.scores.column(0), 1,
                         worker.scores.column_step());
    else
      add(*trees[t].leaves, leaves, block.n_rows, block_features, worker.scores.rows(), width);
}

// Add the trees of the range to the worker's block.
void add_trees(const ForestArrays& forest, const CompiledTree* trees, const LeafTarget* targets,
               TreeRange range, int width, const BlockCodes& block, const FeatureMatrix& features,
               Worker& worker) {
  const auto is_same_group = [](const LeafTarget& a, const LeafTarget& b) {
    return (a.outputs != nullptr) == (b.outputs != nullptr) && a.leaves->kind == b.leaves->kind;
  };
  for (int32_t first = range.first; first < range.last;) {
    int32_t last = first + 1;
    while (last < range.last && last - first < kGroup &&
           is_same_group(targets[first], targets[last]))
      ++last;
    find_leaves(forest, trees + first, last - first, block, worker);
    add_group(targets + first, last - first, width, block, features, worker);
    first = last;
  }
}

}  // namespace

void Forest::check(TreeRange range) const {
  if (range.first < 0 || range.first > range.last || range.last > n_trees())
    throw std::invalid_argument(
        "Trees " + std::to_string(range.first) + " to " + std::to_string(range.last) +
        " were asked for, but the forest has " + std::to_string(n_trees()) + " trees.");
}

void Forest::check(const CodeMatrix& codes, TreeRange range) const {
  check(range);
  const int32_t needed = range.last == 0 ? 0 : entries_[range.last - 1].n_features;
  if (codes.n_features < needed)
    throw std::invalid_argument("The codes have " + std::to_string(codes.n_features) +
                                " features, but the trees read " + std::to_string(needed) + ".");
}

void Forest::check(const CodeMatrix& codes, const FeatureMatrix& features, TreeRange range) const {
  check(codes, range);
  if (range.last == 0 || entries_[range.last - 1].n_regressors == 0) return;
  int32_t needed = 0;
  for (int32_t t = range.first; t < range.last; ++t)
    needed = std::max(needed, entries_[t].leaves->n_features());
  check_features(features, needed, codes.n_rows);
}

std::vector<int32_t> Forest::split_features(TreeRange range) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  check(range);
  return find_split_features(range);
}

std::vector<int32_t> Forest::find_split_features(TreeRange range) const {
  std::vector<uint8_t> seen(range.last == 0 ? 0 : entries_[range.last - 1].n_features, 0);
  const size_t begin = range.first == 0 ? 0 : entries_[range.first - 1].nodes_end;
  const size_t end = range.last == 0 ? 0 : entries_[range.last - 1].nodes_end;
  for (size_t i = begin; i < end; ++i)
    if (!is_leaf(i)) seen[nodes_[i].test >> 10] = 1;
  std::vector<int32_t> all;
  for (size_t f = 0; f < seen.size(); ++f)
    if (seen[f]) all.push_back(static_cast<int32_t>(f));
  return all;
}

std::vector<int32_t> Forest::regressors(TreeRange range) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  check(range);
  std::vector<int32_t> all, merged;
  if (range.last == 0 || entries_[range.last - 1].n_regressors == 0) return all;
  for (int32_t t = range.first; t < range.last; ++t) {
    const std::vector<int32_t>& more = entries_[t].leaves->regressors();
    if (more.empty()) continue;
    merged.clear();
    std::set_union(all.begin(), all.end(), more.begin(), more.end(), std::back_inserter(merged));
    all.swap(merged);
  }
  return all;
}

// The trees with feature ids remapped to the rows of a partial code matrix.
struct Forest::RemappedTrees {
  std::vector<WalkNode> nodes;
  std::vector<TopNode> tops;
  ForestArrays arrays;

  RemappedTrees(const Forest& forest, const FeatureIds& coded_features, TreeRange range)
      : arrays(forest.arrays()) {
    std::vector<uint32_t> row(range.last == 0 ? 0 : forest.entries_[range.last - 1].n_features,
                              kNoRow);
    for (size_t i = 0; i < coded_features.size(); ++i)
      if (static_cast<size_t>(coded_features[i]) < row.size())
        row[coded_features[i]] = static_cast<uint32_t>(i);
    for (int32_t f : forest.find_split_features(range))
      if (row[f] == kNoRow)
        throw std::invalid_argument("The trees split on feature " + std::to_string(f) +
                                    ", but there are no codes of it.");
    const Entry& before = range.first == 0 ? kNoEntry : forest.entries_[range.first - 1];
    const Entry& last = range.last == 0 ? kNoEntry : forest.entries_[range.last - 1];
    nodes.assign(forest.nodes_.begin(),
                 forest.nodes_.begin() + static_cast<ptrdiff_t>(last.nodes_end));
    for (size_t i = before.nodes_end; i < nodes.size(); ++i)
      if (!forest.is_leaf(i))
        nodes[i].test = row[nodes[i].test >> 10] << 10 | (nodes[i].test & 1023);
    tops.assign(forest.tops_.begin(), forest.tops_.begin() + static_cast<ptrdiff_t>(last.tops_end));
    for (size_t i = before.tops_end; i < tops.size(); ++i) tops[i].feature = row[tops[i].feature];
    arrays.nodes = nodes.data();
    arrays.tops = tops.data();
  }

 private:
  static constexpr uint32_t kNoRow = ~uint32_t{0};
};

template <class Visit>
void Forest::visit_blocks(const CodeMatrix& codes, const FeatureIds* coded_features,
                          TreeRange range, int block_rows, const Context& context,
                          const Visit& visit) const {
  const int64_t n_trees = range.last - range.first;
  int64_t n_tops = 0;
  for (int32_t t = range.first; t < range.last; ++t) n_tops += compiled_[t].n_top;
  const bool in_place = codes.n_features > n_tops;
  const int64_t task_rows = std::max<int64_t>(
      kBlockRows, kTaskWork / std::max<int64_t>(1, n_trees) / kBlockRows * kBlockRows);
  const Context busy = context.limit_threads(Block::count(codes.n_rows, task_rows) + 1);
  std::vector<Worker> per_thread(busy.n_threads);
  std::vector<int32_t> split_features;
  if (!in_place && codes.n_rows > kSmallBlockRows) {
    split_features = find_split_features(range);
    if (coded_features != nullptr)
      for (int32_t& f : split_features)
        f = static_cast<int32_t>(
            std::lower_bound(coded_features->begin(), coded_features->end(), f) -
            coded_features->begin());
  }
  parallel_for(busy, Block::count(codes.n_rows, task_rows), [&](int64_t task, int thread) {
    const Block rows(codes.n_rows, task_rows, task);
    Worker& worker = per_thread[thread];
    visit_row_blocks(codes, split_features, rows.begin, rows.end, block_rows, in_place, worker,
                     [&](const BlockCodes& block) { visit(block, thread, worker); });
  });
}

void Forest::visit_score_blocks(const CodeMatrix& codes, const FeatureIds* coded_features,
                                const FeatureMatrix& features, const float* start, TreeRange range,
                                const Context& context, const BlockVisit& visit) const {
  std::optional<RemappedTrees> remapped;
  if (coded_features != nullptr) remapped.emplace(*this, *coded_features, range);
  const ForestArrays trees = coded_features != nullptr ? remapped->arrays : arrays();
  const bool columns = range.first < range.last && targets_[range.first].outputs != nullptr;
  // Blocks shrink with the number of outputs so that they fit the cache and do not exhaust
  // memory.
  const int block_rows = n_outputs_ <= 1024    ? kBlockRows
                         : n_outputs_ <= 32768 ? kSliceRows
                                               : kPadRows;
  visit_blocks(codes, coded_features, range, block_rows, context,
               [&](const BlockCodes& block, int thread, Worker& worker) {
                 worker.scores.reset(block.n_rows, n_outputs_, width_, columns);
                 if (start != nullptr) worker.scores.load(start + block.row * n_outputs_);
                 add_trees(trees, compiled_.data(), targets_.data(), range, width_, block, features,
                           worker);
                 visit({block.row, block.n_rows, thread}, worker.scores);
               });
}

void Forest::visit_leaves(const CodeMatrix& codes, TreeRange range, const Context& context,
                          const LeavesVisit& visit) const {
  const int n_trees = range.last - range.first;
  // All leaf ids of a block are held in memory.
  const int block_rows = n_trees <= kBlockRows ? kBlockRows : kSliceRows;
  visit_blocks(codes, nullptr, range, block_rows, context,
               [&](const BlockCodes& block, int thread, Worker& worker) {
                 worker.by_row.reserve(static_cast<size_t>(block.n_rows) * n_trees);
                 for (int32_t first = 0; first < n_trees; first += kGroup) {
                   const int n = std::min(kGroup, n_trees - first);
                   find_leaves(arrays(), compiled_.data() + range.first + first, n, block, worker);
                   for (int r = 0; r < block.n_rows; ++r)
                     for (int t = 0; t < n; ++t)
                       worker.by_row[static_cast<size_t>(r) * n_trees + first + t] =
                           worker.leaves[t * kBlockRows + r];
                 }
                 visit({block.row, block.n_rows, thread}, worker.by_row.data());
               });
}

void Forest::predict(const CodeMatrix& codes, const FeatureMatrix& features, float* raw,
                     TreeRange range, const Context& context) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  check(codes, features, range);
  if (range.first == range.last) return;
  visit_score_blocks(codes, nullptr, features, raw, range, context,
                     [&](const BlockRows& rows, ScoreBlock& sums) {
                       sums.save(raw + rows.first * n_outputs_, [](int, float sum) { return sum; });
                     });
}

void Forest::scores(const CodeMatrix& codes, const FeatureIds* coded_features,
                    const FeatureMatrix& features, const ScoreTransform& transform, double* scores,
                    TreeRange range, const Context& context) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  if (coded_features == nullptr)
    check(codes, features, range);
  else
    check({codes.data, kMaxFeatures, codes.n_rows}, features,
          range);  // RemappedTrees checks the features
  visit_score_blocks(
      codes, coded_features, features, nullptr, range, context,
      [&](const BlockRows& rows, ScoreBlock& sums) {
        double* to = scores + rows.first * n_outputs_;
        if (transform.scale != nullptr)  // tested once, not for every sum
          sums.save(to, [&](int k, float sum) {
            return (transform.base[k] + double{sum}) * transform.scale[k] + transform.offset[k];
          });
        else
          sums.save(to, [&](int k, float sum) { return transform.base[k] + double{sum}; });
      });
}

// Trees of a range after which rows are checked: the best output of many is decided before the last
// tree. Bounds of the remaining trees are sums of the extreme values of their leaves.
struct Forest::Checkpoints {
  static constexpr int kMost = 5;
  std::vector<int32_t> trees;  // ascending; the last is the end of the range
  std::vector<float> lower, upper;
  int32_t n_outputs, width;
  float slack;

  Checkpoints(const Forest& forest, const double* base, TreeRange range)
      : n_outputs(forest.n_outputs_), width(forest.width_) {
    const int32_t n_trees = range.last - range.first;
    for (int i = 0; i < kMost; ++i) {  // whole groups, from a quarter of the trees on
      const int32_t tree = range.first + n_trees * (2 + i) / (3 + kMost) / kGroup * kGroup;
      if (tree > (trees.empty() ? range.first : trees.back())) trees.push_back(tree);
    }
    trees.push_back(range.last);
    lower.resize(trees.size() * n_outputs);
    upper.resize(lower.size());
    std::vector<double> least(base, base + n_outputs), most = least, magnitude(n_outputs);
    for (int32_t k = 0; k < n_outputs; ++k) magnitude[k] = std::abs(base[k]);
    int32_t t = range.last;
    for (size_t i = trees.size(); i-- > 0;) {
      for (; t > trees[i]; --t) forest.add_extremes(t - 1, least, most, magnitude);
      for (int32_t k = 0; k < n_outputs; ++k) {
        lower[i * n_outputs + k] = static_cast<float>(least[k]);
        upper[i * n_outputs + k] = static_cast<float>(most[k]);
      }
    }
    for (; t > range.first; --t) forest.add_extremes(t - 1, least, most, magnitude);
    // Sums of n floats are off by at most n 2^-24 of their magnitudes; two are compared.
    slack = static_cast<float>(0x1p-22 * (n_trees + 8) *
                               *std::max_element(magnitude.begin(), magnitude.end()));
  }

  ScoreBounds bounds(size_t i) const {
    return {&lower[i * n_outputs], &upper[i * n_outputs], slack, n_outputs, width};
  }
};

void Forest::add_extremes(int32_t t, std::vector<double>& least, std::vector<double>& most,
                          std::vector<double>& magnitude) const {
  const LeafView& leaves = entries_[t].leaves->view();
  std::vector<float> low(leaves.values, leaves.values + n_outputs_), high = low;
  for (int32_t leaf = 1; leaf < entries_[t].leaves->n_leaves(); ++leaf) {
    const float* __restrict values = leaves.values + leaf * leaves.stride;
    for (int32_t k = 0; k < n_outputs_; ++k) {
      low[k] = std::min(low[k], values[k]);
      high[k] = std::max(high[k], values[k]);
    }
  }
  for (int32_t k = 0; k < n_outputs_; ++k) {
    least[k] += low[k];
    most[k] += high[k];
    magnitude[k] += std::max(std::abs(low[k]), std::abs(high[k]));
  }
}

bool Forest::can_exit_early(const CodeMatrix& codes, const ScoreTransform& transform,
                            TreeRange range) const {
  constexpr int64_t kRowsPerLeaf = 16;  // bounds cost as much as a few rows per leaf
  const int64_t n_trees = range.last - range.first;
  if (transform.base == nullptr || transform.scale != nullptr || n_outputs_ < 2 ||
      n_trees < 3 * kGroup)
    return false;
  int64_t n_leaves = 0;
  for (int32_t t = range.first; t < range.last; ++t) {
    if (targets_[t].outputs != nullptr || !targets_[t].leaves->kind->is_vector()) return false;
    n_leaves += entries_[t].leaves->n_leaves();
  }
  return codes.n_rows * n_trees >= kRowsPerLeaf * n_leaves;
}

void Forest::best_outputs(const CodeMatrix& codes, const FeatureMatrix& features,
                          const ScoreTransform& transform, int32_t* best, TreeRange range,
                          const Context& context) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  check(codes, features, range);
  std::vector<Ranking> rankings(context.n_threads, Ranking(1));
  const auto rank = [&](const float* sums, int thread, int32_t* output) {
    double score;
    rankings[thread].offer(sums, nullptr, n_outputs_, transform, false);
    rankings[thread].take(output, &score);
  };
  if (!can_exit_early(codes, transform, range))
    return visit_score_blocks(codes, nullptr, features, nullptr, range, context,
                              [&](const BlockRows& rows, ScoreBlock& sums) {
                                sums.use(false);
                                for (int r = 0; r < rows.n_rows; ++r)
                                  rank(sums.row(r), rows.thread, best + rows.first + r);
                              });
  const Checkpoints checkpoints(*this, transform.base, range);
  const RankingKernels& kernels = POLYLEAF_SELECT(ranking_kernels);
  const std::vector<int32_t> split_features = find_split_features(range);
  // Nanoseconds of a row in a tree, and of moving a row; a checkpoint that does not pay for the
  // first blocks is left out from then on. Both change the time only.
  const double tree_time = 0.5 + 0.03 * width_;
  const double move_time = 0.5 * static_cast<double>(split_features.size()) + 0.1 * width_;
  struct Count {
    int checked = 0, paid = 0;
    bool pays() const { return checked < 4 || paid * 2 >= checked; }
  };
  std::vector<std::array<Count, Checkpoints::kMost + 1>> counts(context.n_threads);
  std::vector<Buffer<float>> scratch(context.n_threads);
  for (auto& buffer : scratch) buffer.reserve(round_up(width_, 16) * 16);
  visit_blocks(
      codes, nullptr, range, kBlockRows, context,
      [&](const BlockCodes& given, int thread, Worker& worker) {
        BlockCodes block = given;
        if (block.data != worker.codes.data())  // rows are moved, so they have to be a copy
          block = copy_block(codes, split_features, given.row, given.n_rows, worker);
        worker.scores.reset(block.n_rows, n_outputs_, width_, false);
        int32_t rows[kBlockRows], kept[kBlockRows], found[16];
        std::iota(rows, rows + block.n_rows, 0);
        int32_t first = range.first;
        for (size_t i = 0; i < checkpoints.trees.size(); ++i) {
          Count& count = counts[thread][i];
          const int32_t last = checkpoints.trees[i], n_left = range.last - last;
          if (n_left > 0 && (!count.pays() || block.n_rows <= kSliceRows)) continue;
          add_trees(arrays(), compiled_.data(), targets_.data(), {first, last}, width_, block,
                    features, worker);
          first = last;
          const ScoreBounds bounds = checkpoints.bounds(i);
          int n_kept = 0, r = 0;
          for (; r + 16 <= block.n_rows; r += 16) {
            kernels.decided(worker.scores.row(r), bounds, scratch[thread].data(), found);
            for (int j = 0; j < 16; ++j) {
              best[block.row + rows[r + j]] = found[j];
              kept[n_kept] = r + j;
              n_kept += found[j] < 0;
            }
          }
          for (; r < block.n_rows; ++r) kept[n_kept++] = r;
          if (n_left == 0) {
            for (int k = 0; k < n_kept; ++k)
              rank(worker.scores.row(kept[k]), thread, best + block.row + rows[kept[k]]);
            return;
          }
          const int saved = round_up(block.n_rows, kSliceRows) - round_up(n_kept, kSliceRows);
          ++count.checked;
          if (saved * n_left * tree_time <= n_kept * move_time) continue;
          ++count.paid;
          if (n_kept == 0) return;
          worker.scores.keep(kept, n_kept);
          for (int32_t f : split_features) {
            uint8_t* row_codes = worker.codes.data() + f * kBlockRows;
            for (int k = 0; k < n_kept; ++k) row_codes[k] = row_codes[kept[k]];
          }
          for (int k = 0; k < n_kept; ++k) rows[k] = rows[kept[k]];
          block.n_rows = n_kept;
        }
      });
}

void Forest::apply(const CodeMatrix& codes, int32_t* leaves, TreeRange range,
                   const Context& context) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  check(codes, range);
  const int64_t n_trees = range.last - range.first;
  visit_leaves(codes, range, context, [&](const BlockRows& rows, const uint32_t* found) {
    std::copy_n(found, rows.n_rows * n_trees, leaves + rows.first * n_trees);
  });
}

}  // namespace polyleaf
