// Top-k outputs and sparse raw scores: work grows with the entries of a row's leaves, not with the
// number of outputs, unless leaves are dense.
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>

#include "base/check.h"
#include "base/parallel.h"
#include "forest/forest.h"
#include "forest/ranking.h"
#include "forest/score_block.h"
#include "leaves/sparse_accumulator.h"

namespace polyleaf {
namespace {

// Find runs of consecutive trees with leaves of one kind, counted from the first tree.
std::vector<TreeRange> find_runs(const LeafTarget* trees, int32_t n_trees) {
  std::vector<TreeRange> runs;
  for (int32_t t = 0; t < n_trees; ++t)
    if (t > 0 && trees[t].leaves->kind == trees[t - 1].leaves->kind)
      ++runs.back().last;
    else
      runs.push_back({t, t + 1});
  return runs;
}

// The best outputs that no leaf of a row contains; their score is that of the sum 0. `n` of them
// suffice for rows with n - k outputs.
struct AbsentOutputs {
  std::vector<int32_t> outputs;  // ordered by rank
  std::vector<double> scores;

  AbsentOutputs(const ScoreTransform& transform, int32_t n_outputs, int64_t n) {
    if (transform.base == nullptr) return;
    std::vector<double> all(n_outputs);
    for (int32_t k = 0; k < n_outputs; ++k) all[k] = transform(k, 0.0f);
    n = std::min<int64_t>(n, n_outputs);
    std::vector<int32_t> order(n_outputs);
    std::iota(order.begin(), order.end(), 0);
    const auto better = [&](int32_t a, int32_t b) {
      return all[a] > all[b] || (all[a] == all[b] && a < b);
    };
    if (!std::is_sorted(order.begin(), order.end(), better)) {
      if (n < n_outputs) std::nth_element(order.begin(), order.begin() + n, order.end(), better);
      std::sort(order.begin(), order.begin() + n, better);
    }
    outputs.assign(order.begin(), order.begin() + n);
    for (int32_t output : outputs) scores.push_back(all[output]);
  }

  void offer(const SparseAccumulator& sums, Ranking& ranking) const {
    for (size_t i = 0; i < outputs.size(); ++i)
      if (!sums.contains(outputs[i]) && !ranking.offer(outputs[i], scores[i])) return;
  }
};

}  // namespace

bool Forest::has_sparse_sums(TreeRange range) const {
  bool any_named = false, any_for_all = false;
  for (int32_t t = range.first; t < range.last; ++t) {
    const bool named = targets_[t].leaves->kind->lists_outputs;
    any_named |= named;
    any_for_all |= !named && targets_[t].outputs == nullptr;
  }
  return any_named && !any_for_all;
}

int64_t Forest::max_entries(TreeRange range) const {
  int64_t most = 0;
  for (int32_t t = range.first; t < range.last; ++t) {
    const LeafBlock& leaves = *entries_[t].leaves;
    most += leaves.kind().lists_outputs ? std::max(1, leaves.max_entries()) : leaves.n_columns();
  }
  return most;
}

// Return the outputs of the trees, ascending; without sparse leaves every row has all of them.
std::vector<int32_t> Forest::find_tree_outputs(TreeRange range) const {
  std::vector<uint8_t> held(n_outputs_, 0);
  for (int32_t t = range.first; t < range.last; ++t)
    if (const int32_t* outputs = targets_[t].outputs; outputs != nullptr)
      for (int32_t j = 0; j < targets_[t].leaves->n_columns; ++j) held[outputs[j]] = 1;
    else
      std::fill(held.begin(), held.end(), uint8_t{1});
  std::vector<int32_t> outputs;
  for (int32_t k = 0; k < n_outputs_; ++k)
    if (held[k] != 0) outputs.push_back(k);
  return outputs;
}

void Forest::visit_sums(const CodeMatrix& codes, const FeatureMatrix& features, TreeRange range,
                        const Context& context, const SumsVisit& visit) const {
  POLYLEAF_DCHECK(has_sparse_sums(range));
  const int64_t most = max_entries(range);
  double entries = 0;
  for (int32_t t = range.first; t < range.last; ++t)
    entries +=
        static_cast<double>(entries_[t].leaves->n_entries()) / entries_[t].leaves->n_leaves();
  const SparseAccumulator::Strategy strategy = SparseAccumulator::choose(
      n_outputs_, static_cast<int64_t>(entries), most, codes.n_rows / context.n_threads);
  std::vector<std::unique_ptr<SparseAccumulator>> per_thread(context.n_threads);
  const int32_t n_trees = range.last - range.first;
  const LeafTarget* trees = targets_.data() + range.first;
  const std::vector<TreeRange> runs = find_runs(trees, n_trees);
  visit_leaves(codes, range, context, [&](const BlockRows& rows, const uint32_t* leaves) {
    auto& sums = per_thread[rows.thread];
    if (sums == nullptr) sums = std::make_unique<SparseAccumulator>(strategy, n_outputs_, most);
    for (int r = 0; r < rows.n_rows; ++r) {
      const uint32_t* row_leaves = leaves + static_cast<int64_t>(r) * n_trees;
      for (const TreeRange& run : runs)
        trees[run.first].leaves->kind->accumulate(trees + run.first, run.last - run.first,
                                                  row_leaves + run.first,
                                                  features.from_row(rows.first + r), *sums);
      visit(rows.first + r, rows.thread, *sums);
      sums->clear();
    }
  });
}

void Forest::topk(const CodeMatrix& codes, const FeatureMatrix& features,
                  const ScoreTransform& transform, int32_t k, int32_t* outputs, double* scores,
                  TreeRange range, const Context& context) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  check(codes, features, range);
  if (k < 1) throw std::invalid_argument("k must be at least 1, but is " + std::to_string(k) + ".");
  std::vector<Ranking> rankings(context.n_threads, Ranking(k));
  const auto take = [&](int64_t row, Ranking& ranking) {
    ranking.take(outputs + row * k, scores + row * k);
  };
  const bool includes_absent = transform.base != nullptr;
  if (has_sparse_sums(range)) {
    const AbsentOutputs absent(transform, n_outputs_, k + max_entries(range));
    visit_sums(codes, features, range, context,
               [&](int64_t row, int thread, SparseAccumulator& sums) {
                 Ranking& ranking = rankings[thread];
                 sums.visit_all([&](const float* values, const int32_t* held, int32_t n) {
                   ranking.offer(values, held, n, transform, held == nullptr && !includes_absent);
                   if (held != nullptr) absent.offer(sums, ranking);
                 });
                 take(row, ranking);
               });
    return;
  }
  const std::vector<int32_t> held =
      includes_absent ? std::vector<int32_t>() : find_tree_outputs(range);
  const bool all = includes_absent || held.size() == static_cast<size_t>(n_outputs_);
  const auto n_held = static_cast<int32_t>(held.size());
  std::vector<std::vector<float>> held_sums(rankings.size(), std::vector<float>(all ? 0 : n_held));
  visit_score_blocks(codes, nullptr, features, nullptr, range, context,
                     [&](const BlockRows& rows, ScoreBlock& block) {
                       block.use(false);
                       Ranking& ranking = rankings[rows.thread];
                       for (int r = 0; r < rows.n_rows; ++r) {
                         const float* sums = block.row(r);
                         if (all) {
                           ranking.offer(sums, nullptr, n_outputs_, transform, false);
                         } else {
                           float* few = held_sums[rows.thread].data();
                           for (int32_t i = 0; i < n_held; ++i) few[i] = sums[held[i]];
                           ranking.offer(few, held.data(), n_held, transform, false);
                         }
                         take(rows.first + r, ranking);
                       }
                     });
}

SparseScores Forest::sparse_scores(const CodeMatrix& codes, const FeatureMatrix& features,
                                   TreeRange range, const Context& context) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  check(codes, features, range);
  SparseScores result;
  result.begin.assign(codes.n_rows + 1, 0);
  if (range.first == range.last) return result;
  if (!has_sparse_sums(range))
    throw std::invalid_argument(
        "Scores can be sparse only where leaves are: these trees have leaves that hold all "
        "outputs, or none "
        "has sparse leaves. Use the dense scores.");
  // Each thread appends the entries of its rows until all sizes are known.
  struct Part {
    std::vector<int32_t> outputs;
    std::vector<float> values;
    std::vector<int64_t> rows;
  };
  std::vector<Part> parts(context.n_threads);
  visit_sums(codes, features, range, context,
             [&](int64_t row, int thread, SparseAccumulator& sums) {
               Part& part = parts[thread];
               const auto before = static_cast<int64_t>(part.outputs.size());
               sums.visit_ascending([&](int32_t output, float sum) {
                 part.outputs.push_back(output);
                 part.values.push_back(sum);
               });
               part.rows.push_back(row);
               result.begin[row + 1] = static_cast<int64_t>(part.outputs.size()) - before;
             });
  std::partial_sum(result.begin.begin(), result.begin.end(), result.begin.begin());
  result.outputs.resize(result.begin.back());
  result.values.resize(result.begin.back());
  parallel_for(context, static_cast<int64_t>(parts.size()), [&](int64_t task, int) {
    int64_t from = 0;
    for (int64_t row : parts[task].rows) {
      const int64_t to = result.begin[row], n = result.begin[row + 1] - to;
      std::copy_n(parts[task].outputs.data() + from, n, result.outputs.data() + to);
      std::copy_n(parts[task].values.data() + from, n, result.values.data() + to);
      from += n;
    }
  });
  return result;
}

}  // namespace polyleaf
