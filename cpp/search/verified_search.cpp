#include "search/verified_search.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <stdexcept>

#include "base/parallel.h"

namespace polyleaf {
namespace {

constexpr int64_t kRowBlock = 4096;     // rows whose sides are decided at a time
constexpr int64_t kSentRows = 1 << 16;  // rows judged whose sums are sent at once, about

// The line of an output, which counts as met from here on.
int64_t* line_of(SetSums& sums, int32_t output) {
  int32_t& number = sums.number[output];
  if (number == 0) {
    sums.touched[sums.n_touched] = output;
    number = static_cast<int32_t>(++sums.n_touched);
  }
  return sums.lines + (int64_t{number} - 1) * kSetLanes;
}

}  // namespace

VerifiedSearch::VerifiedSearch(const Bins& bins, HistogramSearch& proposals, const Context& context)
    : SparseTargetSearch(bins, context),
      proposals_(proposals),
      scratch_(static_cast<size_t>(context_.n_threads)) {
  for (int sides = 0; sides < (1 << kCandidates); ++sides)
    for (int lane = 0; lane < kSetLanes; ++lane)
      lanes_[sides][lane] =
          lane == 0 || (lane <= kCandidates && ((sides >> (lane - 1)) & 1)) ? -1 : 0;
}

void VerifiedSearch::start(const TreeContext& scope, const SearchNode& root) {
  if (!(proposals_.sample() == sample_))
    throw std::invalid_argument(
        "The sketch has taken another sample since the search was told to use it.");
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

void VerifiedSearch::split(int32_t parent, const SearchNode& left, const SearchNode& right,
                           float*) {
  std::vector<float> unused(static_cast<size_t>(proposals_.n_outputs()));
  proposals_.split(parent, left, right, unused.data());
  note_split(parent, left.id, right.id);
}

void VerifiedSearch::evaluate(const std::vector<SearchNode>& nodes, bool renewed,
                              std::vector<SplitInfo>& choices) {
  choices.assign(nodes.size(), SplitInfo());
  const int32_t first = nodes[0].id;  // ids of a batch follow each other
  const ObjectPool<HistogramSearch::Proposals>& proposals =
      proposals_.propose(nodes, renewed, kCandidates);
  std::vector<Case> cases;
  for (size_t i = 0; i < proposals.size(); ++i) {
    Case c = case_of(nodes[proposals[i].node - first], proposals[i].splits);
    if (c.splits.empty())
      proposals_.take(c.node.id, nullptr);
    else
      cases.push_back(std::move(c));
  }
  if (context_.is_distributed()) {
    judge_with_ranks(cases);
  } else {
    parallel_for(context_, static_cast<int64_t>(cases.size()), [&](int64_t task, int thread) {
      Case& c = cases[task];
      add_rows(c, scratch_[thread]);
      find_largest(c, scratch_[thread]);
      judge(c, scratch_[thread]);
    });
  }
  for (const Case& c : cases) {
    proposals_.take(c.node.id, c.best);
    if (c.best == nullptr) continue;
    choices[c.node.id - first] = to_split_info(*c.best, c.gain);
    note_choice(c.node.id, static_cast<double>(c.left_hessian) * hessian_unit());
  }
}

// Of all rows that stand for the nodes, wherever they lie.
void VerifiedSearch::judge_with_ranks(std::span<Case> cases) {
  for (size_t first = 0, last; first < cases.size(); first = last) {
    int64_t n_rows = 0;
    for (last = first; last < cases.size() && n_rows < kSentRows; ++last)
      n_rows += std::min(cases[last].node.count, kSampledRows);
    const std::span<Case> some = cases.subspan(first, last - first);
    std::vector<Lists<Line>> lines = lines_for_ranks(some);
    Lists<int64_t> largest = largest_of_own(some, alltoall_lists(context_, lines));
    allgather_lists(context_, largest);
    sum_over_ranks(some);
    parallel_for(context_, static_cast<int64_t>(some.size()), [&](int64_t task, int thread) {
      Scratch& s = scratch_[thread];
      for (int i = 0; i < kMagnitudes; ++i) {
        s.magnitudes[i].start(leaf_k_);
        for (const int64_t magnitude : largest[task * kMagnitudes + i])
          s.magnitudes[i].offer(magnitude);
      }
      judge(some[task], s);
    });
  }
  if (counts_rows()) return;
  std::vector<int64_t> hessian;
  for (const Case& c : cases) hessian.push_back(c.left_hessian);
  context_.allreduce_sum(hessian);
  for (size_t i = 0; i < cases.size(); ++i) cases[i].left_hessian = hessian[i];
}

// Sums of this rank's rows: for each rank, and each case, those of the outputs that are the rank's.
std::vector<Lists<VerifiedSearch::Line>> VerifiedSearch::lines_for_ranks(std::span<Case> cases) {
  const int n_ranks = context_.communicator->size();
  std::vector<Lists<Line>> lines(n_ranks, Lists<Line>(cases.size()));
  parallel_for(context_, static_cast<int64_t>(cases.size()), [&](int64_t task, int thread) {
    Scratch& s = scratch_[thread];
    add_rows(cases[task], s);
    for (int64_t i = 0; i < s.sums.n_touched; ++i) {
      Line line{s.sums.touched[i], {}};
      std::copy_n(s.sums.lines + i * kSetLanes, kSets, line.sums);
      lines[line.output % n_ranks][task].push_back(line);
    }
    clear(s);
  });
  return lines;
}

// Of this rank's outputs the largest magnitudes of every case, given the sums of all ranks' rows.
Lists<int64_t> VerifiedSearch::largest_of_own(std::span<Case> cases, const Lists<Line>& lines) {
  Lists<int64_t> largest(cases.size() * kMagnitudes);
  parallel_for(context_, static_cast<int64_t>(cases.size()), [&](int64_t task, int thread) {
    Scratch& s = scratch_[thread];
    for (const Line& line : lines[task]) {
      int64_t* sums = line_of(s.sums, static_cast<int32_t>(line.output));
      for (int set = 0; set < kSets; ++set) sums[set] += line.sums[set];
    }
    find_largest(cases[task], s);
    for (int i = 0; i < 2 * cases[task].n_sets(); ++i)
      largest[task * kMagnitudes + i] = s.magnitudes[i].sorted();
  });
  return largest;
}

// How many rows stand for each node, and their Hessian.
void VerifiedSearch::sum_over_ranks(std::span<Case> cases) const {
  std::vector<int64_t> numbers;
  for (const Case& c : cases) {
    numbers.insert(numbers.end(), c.hessian, c.hessian + kSets);
    numbers.push_back(c.n_judged);
  }
  context_.allreduce_sum(numbers);
  const int64_t* of_case = numbers.data();
  for (Case& c : cases) {
    std::copy_n(of_case, kSets, c.hessian);
    c.n_judged = of_case[kSets];
    of_case += kSets + 1;
  }
}

VerifiedSearch::Case VerifiedSearch::case_of(const SearchNode& node,
                                             const std::vector<TileSplit>& splits) const {
  Case c;
  c.node = node;
  // Of each group of features the best, wherever its features lie.
  const auto feature_group = [&](const TileSplit* split) {
    return scope_->bins().feature_group(split->feature);
  };
  for (const TileSplit* split : sorted_by_gain(splits)) {
    if (c.splits.size() == kCandidates) break;
    const bool is_new = std::none_of(c.splits.begin(), c.splits.end(), [&](const TileSplit* other) {
      return feature_group(other) == feature_group(split);
    });
    if (is_new) c.splits.push_back(split);
  }
  return c;
}

// Which of the rows first .. last - 1 of the node go left, as bits.
void VerifiedSearch::decide(const Case& c, const TileSplit& split, int64_t first, int64_t last,
                            Scratch& s) const {
  HostRowPartitioner::PartitionRequest division;
  division.rows = c.node.rows;
  division.feature = split.feature;
  division.threshold = split.bin;
  division.set = split.set;
  division.missing_left = split.missing_left;
  s.bits.resize(static_cast<size_t>(last - first) / 8 + 1);
  scope_->partition().decide(division, first, last, s.bits.data());
}

// Adds the node's rows, or those that stand for them, to the sets that they are in.
void VerifiedSearch::add_rows(Case& c, Scratch& s) const {
  const SparseTargetKernels& kernels = POLYLEAF_SELECT(sparse_target_kernels);
  const uint32_t* ids = scope_->partition().ids(c.node.rows);
  const int64_t size = c.node.rows.size();
  for (int64_t first = 0; first < size; first += kRowBlock) {
    const int64_t last = std::min(first + kRowBlock, size);
    const size_t n = static_cast<size_t>(last - first);
    s.sides.assign(n, 0);
    for (size_t i = 0; i < c.splits.size(); ++i) {
      decide(c, *c.splits[i], first, last, s);
      for (size_t r = 0; r < n; ++r)
        s.sides[r] |= static_cast<uint8_t>(((s.bits[r / 8] >> (r % 8)) & 1) << i);
    }
    for (int64_t at = first; at < last; ++at) {
      const int64_t id = ids != nullptr ? ids[at] : c.node.rows.begin + at;
      if (!is_judged(id, c.node.count)) continue;
      ++c.n_judged;
      const SparseRow row = gradients_->row(id);
      const int64_t* lanes = lanes_[s.sides[at - first]];
      kernels.add_row(row.outputs, row.values, row.n, sample_.factor(id), fixed_.scale, lanes,
                      &s.sums);
      const int64_t hessian = row_hessian(id);
      for (int lane = 0; lane < kSetLanes; ++lane) c.hessian[lane] += hessian & lanes[lane];
    }
  }
}

void VerifiedSearch::clear(Scratch& s) const {
  for (int64_t i = 0; i < s.sums.n_touched; ++i) s.sums.number[s.sums.touched[i]] = 0;
  std::fill_n(s.sums.lines, s.sums.n_touched * kSetLanes, int64_t{0});
  s.sums.n_touched = 0;
}

// The largest magnitudes of both sides of every set, each with outputs of its own; the sums are
// cleared.
void VerifiedSearch::find_largest(const Case& c, Scratch& s) const {
  for (int i = 0; i < 2 * c.n_sets(); ++i) s.magnitudes[i].start(leaf_k_);
  for (int64_t i = 0; i < s.sums.n_touched; ++i) {
    const int64_t* line = s.sums.lines + i * kSetLanes;
    for (int set = 0; set < c.n_sets(); ++set) {
      s.magnitudes[2 * set].offer(std::abs(line[set]));
      s.magnitudes[2 * set + 1].offer(std::abs(line[0] - line[set]));
    }
  }
  clear(s);
}

// Finds the best of a case's splits by the largest magnitudes.
void VerifiedSearch::judge(Case& c, Scratch& s) const {
  std::array<double, kSets> worth = worths(c, s);
  const double scale =
      static_cast<double>(c.node.count) / static_cast<double>(std::max<int64_t>(1, c.n_judged));
  for (double& of_set : worth) of_set *= scale;
  double best = 0;
  for (int set = 1; set < c.n_sets(); ++set) {
    const TileSplit* split = c.splits[set - 1];
    double gain = 0;
    if (!admits(worth[set], worth[0], gain)) continue;
    const double judged = scope_->config().penalised_gain(split->feature, worth[set], worth[0]);
    if (c.best != nullptr &&
        (judged < best || (judged == best && split->feature > c.best->feature)))
      continue;
    best = judged;
    c.best = split;
    c.gain = gain;
  }
  if (c.best != nullptr) c.left_hessian = left_hessian(c, s);
}

// Of all rows here that the best split sends left; of all ranks where rows count 1.
int64_t VerifiedSearch::left_hessian(const Case& c, Scratch& s) const {
  if (counts_rows()) return c.best->left_count;
  const uint32_t* ids = scope_->partition().ids(c.node.rows);
  const int64_t size = c.node.rows.size();
  int64_t sum = 0;
  for (int64_t first = 0; first < size; first += kRowBlock) {
    const int64_t last = std::min(first + kRowBlock, size);
    decide(c, *c.best, first, last, s);
    for (int64_t at = first; at < last; ++at) {
      const int64_t id = ids != nullptr ? ids[at] : c.node.rows.begin + at;
      const bool left = (s.bits[(at - first) / 8] >> ((at - first) % 8)) & 1;
      sum += left ? row_hessian(id) : 0;
    }
  }
  return sum;
}

// What each set, and the node without it, is worth.
std::array<double, kSets> VerifiedSearch::worths(const Case& c, Scratch& s) const {
  std::array<double, kSets> worth{};
  const double of_node = static_cast<double>(c.hessian[0]) * hessian_unit();
  worth[0] = worth_of_largest(s.magnitudes[0], fixed_.unit, of_node, step_);
  for (int set = 1; set < c.n_sets(); ++set) {
    const double hessian = static_cast<double>(c.hessian[set]) * hessian_unit();
    worth[set] = worth_of_largest(s.magnitudes[2 * set], fixed_.unit, hessian, step_) +
                 worth_of_largest(s.magnitudes[2 * set + 1], fixed_.unit, of_node - hessian, step_);
  }
  return worth;
}

}  // namespace polyleaf
