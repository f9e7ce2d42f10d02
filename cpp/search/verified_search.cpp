#include "search/verified_search.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <stdexcept>

#include "base/parallel.h"

namespace polyleaf {
namespace {

constexpr int64_t kRowBlock = 4096;    // rows whose sides are decided at a time
constexpr int64_t kJudgedRows = 4096;  // of a node, at most

}  // namespace

VerifiedSearch::VerifiedSearch(const Bins& bins, HistogramSearch& proposals, const Workers& workers)
    : LabelSearch(bins, workers), proposals_(proposals), scratch_(static_cast<size_t>(workers_.n_threads)) {
  for (int sides = 0; sides < (1 << kCandidates); ++sides)
    for (int lane = 0; lane < kSetLanes; ++lane)
      lanes_[sides][lane] = lane == 0 || (lane <= kCandidates && ((sides >> (lane - 1)) & 1)) ? -1 : 0;
}

void VerifiedSearch::start(const SearchScope& scope, const SearchNode& root) {
  if (!(proposals_.sample() == sample_))
    throw std::invalid_argument("The sketch has taken another sample since the search was told to use it.");
  begin(scope);
  proposals_.start(scope, root);
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
  const Pool<HistogramSearch::Proposals>& proposals = proposals_.propose(nodes, renewed, /*by_group=*/true);
  std::vector<Case> cases;
  for (size_t i = 0; i < proposals.size(); ++i) {
    Case c = case_of(nodes[proposals[i].node - first], proposals[i].splits);
    if (c.splits.empty())
      proposals_.take(c.node.id, nullptr);
    else
      cases.push_back(std::move(c));
  }
  parallel_for(workers_, static_cast<int64_t>(cases.size()), [&](int64_t task, int thread) {
    Case& c = cases[task];
    add_rows(c, scratch_[thread]);
    judge(c, scratch_[thread]);
    if (c.best != nullptr) c.left_curvature = left_curvature(c, scratch_[thread]);
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
  // Of each group of features the best, wherever its features lie.
  const auto group_of = [&](const TileSplit* split) { return scope_->bins().group_of(split->feature); };
  std::vector<const TileSplit*> best;
  for (const TileSplit* split : c.splits) {
    if (best.size() == kCandidates) break;
    const bool is_new = std::none_of(
        best.begin(), best.end(), [&](const TileSplit* other) { return group_of(other) == group_of(split); });
    if (is_new) best.push_back(split);
  }
  c.splits = std::move(best);
  return c;
}

// Which of the rows first .. last - 1 of the node go left, as bits.
void VerifiedSearch::decide(const Case& c, const TileSplit& split, int64_t first, int64_t last,
                            Scratch& s) const {
  Partition::Division division;
  division.rows = c.node.rows;
  division.feature = split.feature;
  division.threshold = split.bin;
  division.set = split.set;
  division.missing_left = split.missing_left;
  s.bits.resize(static_cast<size_t>(last - first) / 8 + 1);
  scope_->partition().decide(division, first, last, s.bits.data());
}

// Adds the node's rows, or those that stand for them, to the sets that they are in.
void VerifiedSearch::add_rows(const Case& c, Scratch& s) const {
  const LabelSumKernels& kernels = POLYLEAF_SELECT(label_sum_kernels);
  const uint32_t* ids = scope_->partition().ids(c.node.rows);
  const int64_t size = c.node.rows.size(), n_judged = std::min(size, kJudgedRows);
  int64_t next = 0;  // of the rows that are judged
  for (int64_t first = 0; first < size; first += kRowBlock) {
    const int64_t last = std::min(first + kRowBlock, size);
    const size_t n = static_cast<size_t>(last - first);
    s.sides.assign(n, 0);
    for (size_t i = 0; i < c.splits.size(); ++i) {
      decide(c, *c.splits[i], first, last, s);
      for (size_t r = 0; r < n; ++r)
        s.sides[r] |= static_cast<uint8_t>(((s.bits[r / 8] >> (r % 8)) & 1) << i);
    }
    for (; next < n_judged && next * size / n_judged < last; ++next) {
      const int64_t at = next * size / n_judged;
      const int64_t id = ids != nullptr ? ids[at] : c.node.rows.begin + at;
      const LabelRow row = gradients_->row(id);
      const int64_t* lanes = lanes_[s.sides[at - first]];
      kernels.add_row(row.outputs, row.values, row.n, sample_.factor(id), fixed_.scale, lanes, &s.sums);
      const int64_t curvature = row_curvature(id);
      for (int lane = 0; lane < kSetLanes; ++lane) s.curvature[lane] += curvature & lanes[lane];
    }
  }
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
  Worths w = worths(n_sets, s);
  clear(s);
  const int64_t size = c.node.rows.size();
  const double scale = static_cast<double>(size) / static_cast<double>(std::min(size, kJudgedRows));
  for (int set = 0; set < n_sets; ++set) w.sum[set] *= scale;
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
  }
}

// Of all rows that the best split sends left.
double VerifiedSearch::left_curvature(const Case& c, Scratch& s) const {
  const uint32_t* ids = scope_->partition().ids(c.node.rows);
  const int64_t size = c.node.rows.size();
  int64_t sum = 0;
  for (int64_t first = 0; first < size; first += kRowBlock) {
    const int64_t last = std::min(first + kRowBlock, size);
    decide(c, *c.best, first, last, s);
    for (int64_t at = first; at < last; ++at) {
      const int64_t id = ids != nullptr ? ids[at] : c.node.rows.begin + at;
      const bool left = (s.bits[(at - first) / 8] >> ((at - first) % 8)) & 1;
      sum += left ? row_curvature(id) : 0;
    }
  }
  return static_cast<double>(sum) * curvature_unit();
}

// Both sides of every set, each with outputs of its own.
VerifiedSearch::Worths VerifiedSearch::worths(int n_sets, Scratch& s) const {
  for (int i = 0; i < 2 * n_sets; ++i) s.magnitudes[i].start(leaf_k_);
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
    w.sum[set] = worth_of_largest(s.magnitudes[2 * set], fixed_.unit, w.curvature[set], step_);
    if (set > 0)
      w.sum[set] +=
          worth_of_largest(s.magnitudes[2 * set + 1], fixed_.unit, w.curvature[0] - w.curvature[set], step_);
  }
  return w;
}

}  // namespace polyleaf
