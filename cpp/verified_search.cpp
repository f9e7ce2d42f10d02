#include "verified_search.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "parallel.h"

namespace polyleaf {
namespace {

constexpr int64_t kRowBlock = 4096;  // rows whose sides are decided at a time

}  // namespace

VerifiedSearch::VerifiedSearch(const Bins& bins, HistogramSearch& proposals, int n_threads)
    : SparseSearch(bins, n_threads), proposals_(proposals), scratch_(static_cast<size_t>(n_threads_)) {
  for (int sides = 0; sides < (1 << kCandidates); ++sides)
    for (int lane = 0; lane < kSetLanes; ++lane)
      lanes_[sides][lane] = lane == 0 || (lane <= kCandidates && ((sides >> (lane - 1)) & 1)) ? -1 : 0;
}

void VerifiedSearch::start(const SearchScope& scope) {
  begin(scope);
  proposals_.start(scope);
  const size_t n = static_cast<size_t>(gradients_->n_outputs());
  for (Scratch& s : scratch_) {
    if (s.touched.size() > n) continue;
    s.lines.reserve(n * kSetLanes);
    std::fill_n(s.lines.data(), n * kSetLanes, int64_t{0});
    s.touched.reserve(n + 1);
    s.number.reserve(n);
    std::fill_n(s.number.data(), n, 0);
    s.sums = {s.lines.data(), s.touched.data(), s.number.data(), 0};
  }
}

void VerifiedSearch::split(int32_t parent, const SearchNode& left, const SearchNode& right, float*) {
  std::vector<float> unused(static_cast<size_t>(proposals_.n_outputs()));
  proposals_.split(parent, left, right, unused.data());
  note_split(parent, left.id, right.id);
}

void VerifiedSearch::evaluate(const std::vector<SearchNode>& nodes, bool renewed,
                              std::vector<Choice>& choices) {
  choices.assign(nodes.size(), Choice());
  const int32_t first = nodes[0].id;  // ids of a batch follow each other
  const std::vector<HistogramSearch::Proposals> proposals = proposals_.propose(nodes, renewed);
  std::vector<Case> cases;
  int64_t n_rows = 0;
  for (const auto& p : proposals) {
    cases.push_back(case_of(nodes[p.node - first], p.splits));
    n_rows += cases.back().node.rows.size();
  }
  // A node with most of the rows is summed by all threads, some of its rows each; other nodes by one thread
  // each.
  std::vector<Case*> small;
  for (Case& c : cases) {
    if (c.splits.empty()) continue;
    const int64_t size = c.node.rows.size();
    if (size * n_threads_ < n_rows || n_threads_ == 1) {
      small.push_back(&c);
      continue;
    }
    parallel_for(n_threads_, Block::count(size, kRowBlock), [&](int64_t task, int thread) {
      const Block block(size, kRowBlock, task);
      add_rows(c, block.begin, block.end, scratch_[thread]);
    });
    for (size_t t = 1; t < scratch_.size(); ++t) move_sums(scratch_[t], scratch_[0]);
    judge(c, scratch_[0]);
  }
  parallel_for(n_threads_, static_cast<int64_t>(small.size()), [&](int64_t task, int thread) {
    Case& c = *small[task];
    for (int64_t row = 0; row < c.node.rows.size(); row += kRowBlock)
      add_rows(c, row, std::min(row + kRowBlock, c.node.rows.size()), scratch_[thread]);
    judge(c, scratch_[thread]);
  });
  for (const Case& c : cases) {
    proposals_.take(c.node.id, c.best);
    if (c.best == nullptr) continue;
    choices[c.node.id - first] = choice_of(*c.best, c.gain);
    note_choice(c.node.id, c.left_curvature);
  }
}

VerifiedSearch::Case VerifiedSearch::case_of(const SearchNode& node,
                                             const std::vector<TileSplit>& splits) const {
  Case c;
  c.node = node;
  for (const TileSplit& split : splits)
    if (split.feature >= 0 && std::isfinite(split.sum)) c.splits.push_back(&split);
  std::sort(c.splits.begin(), c.splits.end(), [](const TileSplit* a, const TileSplit* b) {
    return a->sum > b->sum || (a->sum == b->sum && a->feature < b->feature);
  });
  if (c.splits.size() > kCandidates) c.splits.resize(kCandidates);
  return c;
}

// Adds rows first .. last - 1 of the node to the sets that they are in.
void VerifiedSearch::add_rows(const Case& c, int64_t first, int64_t last, Scratch& s) const {
  const SparseSumKernels& kernels = POLYLEAF_SELECT(sparse_sum_kernels);
  const Partition& partition = scope_->partition();
  const size_t n = static_cast<size_t>(last - first);
  s.sides.assign(n, 0);
  s.bits.resize(n / 8 + 1);
  for (size_t i = 0; i < c.splits.size(); ++i) {
    const TileSplit& split = *c.splits[i];
    Partition::Division division;
    division.rows = c.node.rows;
    division.feature = split.feature;
    division.threshold = split.bin;
    division.set = split.set;
    division.missing_left = split.missing_left;
    partition.decide(division, first, last, s.bits.data());
    for (size_t r = 0; r < n; ++r) s.sides[r] |= static_cast<uint8_t>(((s.bits[r / 8] >> (r % 8)) & 1) << i);
  }
  const uint32_t* ids = partition.ids(c.node.rows);
  for (size_t r = 0; r < n; ++r) {
    const int64_t at = first + static_cast<int64_t>(r);
    const int64_t id = ids != nullptr ? ids[at] : c.node.rows.begin + at;
    const SparseRow row = gradients_->row(id);
    const int64_t* lanes = lanes_[s.sides[r]];
    kernels.add_row(row.outputs, row.values, row.n, multiplier(id), fixed_.scale, lanes, &s.sums);
    const int64_t curvature = row_curvature(id);
    for (int lane = 0; lane < kSetLanes; ++lane) s.curvature[lane] += curvature & lanes[lane];
  }
}

// Adds all sums of `from` to `to` and clears them.
void VerifiedSearch::move_sums(Scratch& from, Scratch& to) const {
  for (int64_t i = 0; i < from.sums.n_touched; ++i) {
    const int32_t output = from.sums.touched[i];
    int32_t& number = to.sums.number[output];
    if (number == 0) {
      to.sums.touched[to.sums.n_touched++] = output;
      number = static_cast<int32_t>(to.sums.n_touched);
    }
    int64_t* to_line = to.sums.lines + (int64_t{number} - 1) * kSetLanes;
    const int64_t* line = from.sums.lines + i * kSetLanes;
    for (int lane = 0; lane < kSetLanes; ++lane) to_line[lane] += line[lane];
  }
  for (int lane = 0; lane < kSetLanes; ++lane) to.curvature[lane] += from.curvature[lane];
  clear(from);
}

void VerifiedSearch::clear(Scratch& s) const {
  for (int64_t i = 0; i < s.sums.n_touched; ++i) s.sums.number[s.sums.touched[i]] = 0;
  std::fill_n(s.sums.lines, s.sums.n_touched * kSetLanes, int64_t{0});
  s.sums.n_touched = 0;
  std::fill_n(s.curvature, kSetLanes, int64_t{0});
}

// Finds the best of a case's splits by the sums of its rows, which are cleared.
void VerifiedSearch::judge(Case& c, Scratch& s) const {
  const int n_sets = static_cast<int>(c.splits.size()) + 1;
  const Worths w = worths(n_sets, s);
  clear(s);
  double best = 0;
  for (int set = 1; set < n_sets; ++set) {
    const TileSplit* split = c.splits[set - 1];
    double gain = 0;
    if (!admits(w.sum[set], w.sum[0], gain)) continue;
    if (c.best != nullptr && (w.sum[set] < best || (w.sum[set] == best && split->feature > c.best->feature)))
      continue;
    best = w.sum[set];
    c.best = split;
    c.gain = gain;
    c.left_curvature = w.curvature[set];
  }
}

// Both sides of every set, each with outputs of its own.
VerifiedSearch::Worths VerifiedSearch::worths(int n_sets, Scratch& s) const {
  for (int i = 0; i < 2 * n_sets; ++i) s.magnitudes[i].start(config_.leaf_k);
  for (int64_t i = 0; i < s.sums.n_touched; ++i) {
    const int64_t* line = s.sums.lines + i * kSetLanes;
    for (int set = 0; set < n_sets; ++set) {
      s.magnitudes[2 * set].offer(std::abs(line[set]));
      s.magnitudes[2 * set + 1].offer(std::abs(line[0] - line[set]));
    }
  }
  Worths w;
  for (int set = 0; set < n_sets; ++set) {
    w.curvature[set] = static_cast<double>(s.curvature[set]) * curvature_unit();
    w.sum[set] = worth_of_largest(s.magnitudes[2 * set], fixed_.unit, w.curvature[set], config_.step);
    if (set > 0)
      w.sum[set] += worth_of_largest(s.magnitudes[2 * set + 1], fixed_.unit,
                                     w.curvature[0] - w.curvature[set], config_.step);
  }
  return w;
}

}  // namespace polyleaf
