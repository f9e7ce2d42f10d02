#include "search/verified_search.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <stdexcept>

#include "base/parallel.h"

namespace polyleaf {
namespace {

constexpr int64_t kRowBlock = 4096;  // rows that are routed at a time
// Approximate number of sampled rows whose sums are sent at once.
constexpr int64_t kBatchRows = 1 << 16;

// Return the line of an output, which is added if it is new.
int64_t* get_line(SetSums& sums, int32_t output) {
  int32_t& number = sums.number[output];
  if (number == 0) {
    sums.touched[sums.n_touched] = output;
    number = static_cast<int32_t>(++sums.n_touched);
  }
  return sums.lines + (int64_t{number} - 1) * kSetLanes;
}

}  // namespace

VerifiedSearch::VerifiedSearch(const Bins& bins, HistogramSearch& histograms,
                               const Context& context)
    : SparseTargetSearch(bins, context),
      histograms_(histograms),
      scratch_(static_cast<size_t>(context_.n_threads)) {
  for (int sides = 0; sides < (1 << kCandidates); ++sides)
    for (int lane = 0; lane < kSetLanes; ++lane)
      lanes_[sides][lane] =
          lane == 0 || (lane <= kCandidates && ((sides >> (lane - 1)) & 1)) ? -1 : 0;
}

void VerifiedSearch::start(const TreeContext& tree, const SearchNode& root) {
  if (!(histograms_.sample() == sample_))
    throw std::invalid_argument("The sketch and the search must use the same row sample.");
  begin(tree);
  histograms_.start(tree, root);
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
  std::vector<float> unused(static_cast<size_t>(histograms_.n_outputs()));
  histograms_.split(parent, left, right, unused.data());
  record_split(parent, left.id, right.id);
}

void VerifiedSearch::evaluate(const std::vector<SearchNode>& nodes, bool renewed,
                              std::vector<SplitInfo>& splits_out) {
  splits_out.assign(nodes.size(), SplitInfo());
  const int32_t first = nodes[0].id;  // the ids of a batch are consecutive
  const ObjectPool<CandidateSplits>& proposals = histograms_.propose(nodes, renewed, kCandidates);
  std::vector<Verification> verifications;
  for (size_t i = 0; i < proposals.size(); ++i) {
    Verification c = make_verification(nodes[proposals[i].node - first], proposals[i].splits);
    if (c.splits.empty())
      histograms_.select(c.node.id, nullptr);
    else
      verifications.push_back(std::move(c));
  }
  if (context_.is_distributed()) {
    verify_distributed(verifications);
  } else {
    parallel_for(context_, static_cast<int64_t>(verifications.size()),
                 [&](int64_t task, int thread) {
                   Verification& c = verifications[task];
                   add_rows(c, scratch_[thread]);
                   find_largest(c, scratch_[thread]);
                   choose(c, scratch_[thread]);
                 });
  }
  for (const Verification& c : verifications) {
    histograms_.select(c.node.id, c.best);
    if (c.best == nullptr) continue;
    splits_out[c.node.id - first] = to_split_info(*c.best, c.gain);
    record_choice(c.node.id, static_cast<double>(c.left_hessian) * hessian_unit());
  }
}

// Verify with the sampled rows of all ranks.
void VerifiedSearch::verify_distributed(std::span<Verification> verifications) {
  for (size_t first = 0, last; first < verifications.size(); first = last) {
    int64_t n_rows = 0;
    for (last = first; last < verifications.size() && n_rows < kBatchRows; ++last)
      n_rows += std::min(verifications[last].node.count, kSampledRows);
    const std::span<Verification> some = verifications.subspan(first, last - first);
    std::vector<Lists<Line>> lines = sum_lines_by_rank(some);
    Lists<int64_t> largest = find_largest_by_rank(some, alltoall_lists(context_, lines));
    allgather_lists(context_, largest);
    allreduce_counts(some);
    parallel_for(context_, static_cast<int64_t>(some.size()), [&](int64_t task, int thread) {
      Scratch& s = scratch_[thread];
      for (int i = 0; i < kMagnitudes; ++i) {
        s.magnitudes[i].start(leaf_k_);
        for (const int64_t magnitude : largest[task * kMagnitudes + i])
          s.magnitudes[i].offer(magnitude);
      }
      choose(some[task], s);
    });
  }
  if (counts_rows()) return;
  std::vector<int64_t> hessian;
  for (const Verification& c : verifications) hessian.push_back(c.left_hessian);
  context_.allreduce_sum(hessian);
  for (size_t i = 0; i < verifications.size(); ++i) verifications[i].left_hessian = hessian[i];
}

// Return sums of this rank's rows: for each rank and node, the outputs that are assigned to that
// rank.
std::vector<Lists<VerifiedSearch::Line>> VerifiedSearch::sum_lines_by_rank(
    std::span<Verification> verifications) {
  const int n_ranks = context_.communicator->size();
  std::vector<Lists<Line>> lines(n_ranks, Lists<Line>(verifications.size()));
  parallel_for(context_, static_cast<int64_t>(verifications.size()), [&](int64_t task, int thread) {
    Scratch& s = scratch_[thread];
    add_rows(verifications[task], s);
    for (int64_t i = 0; i < s.sums.n_touched; ++i) {
      Line line{s.sums.touched[i], {}};
      std::copy_n(s.sums.lines + i * kSetLanes, kSets, line.sums);
      lines[line.output % n_ranks][task].push_back(line);
    }
    clear(s);
  });
  return lines;
}

// Return the largest magnitudes of this rank's outputs for every node, from the sums of all ranks'
// rows.
Lists<int64_t> VerifiedSearch::find_largest_by_rank(std::span<Verification> verifications,
                                                    const Lists<Line>& lines) {
  Lists<int64_t> largest(verifications.size() * kMagnitudes);
  parallel_for(context_, static_cast<int64_t>(verifications.size()), [&](int64_t task, int thread) {
    Scratch& s = scratch_[thread];
    for (const Line& line : lines[task]) {
      int64_t* sums = get_line(s.sums, static_cast<int32_t>(line.output));
      for (int set = 0; set < kSets; ++set) sums[set] += line.sums[set];
    }
    find_largest(verifications[task], s);
    for (int i = 0; i < 2 * verifications[task].n_sets(); ++i)
      largest[task * kMagnitudes + i] = s.magnitudes[i].sorted();
  });
  return largest;
}

// Sum the numbers of sampled rows and their Hessians over all ranks.
void VerifiedSearch::allreduce_counts(std::span<Verification> verifications) const {
  std::vector<int64_t> counts;
  for (const Verification& c : verifications) {
    counts.insert(counts.end(), c.hessian, c.hessian + kSets);
    counts.push_back(c.n_sampled);
  }
  context_.allreduce_sum(counts);
  const int64_t* next = counts.data();
  for (Verification& c : verifications) {
    std::copy_n(next, kSets, c.hessian);
    c.n_sampled = next[kSets];
    next += kSets + 1;
  }
}

VerifiedSearch::Verification VerifiedSearch::make_verification(
    const SearchNode& node, const std::vector<TileSplit>& splits) const {
  Verification c;
  c.node = node;
  c.splits = find_best_of_groups(splits, tree_->bins(), kCandidates);
  return c;
}

// Set the bits of the rows first .. last - 1 of the node that go left.
void VerifiedSearch::decide(const Verification& c, const TileSplit& split, int64_t first,
                            int64_t last, Scratch& s) const {
  HostRowPartitioner::PartitionRequest division;
  division.rows = c.node.rows;
  division.feature = split.feature;
  division.threshold = split.bin;
  division.set = split.set;
  division.missing_left = split.missing_left;
  s.bits.resize(static_cast<size_t>(last - first) / 8 + 1);
  tree_->partition().decide(division, first, last, s.bits.data());
}

// Add the node's rows, or its sample, to the sets that they belong to.
void VerifiedSearch::add_rows(Verification& c, Scratch& s) const {
  const SparseTargetKernels& kernels = POLYLEAF_SELECT(sparse_target_kernels);
  const uint32_t* ids = tree_->partition().ids(c.node.rows);
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
      if (!is_sampled(id, c.node.count)) continue;
      ++c.n_sampled;
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

// Find the largest magnitudes of both sides of every set; clear the sums.
void VerifiedSearch::find_largest(const Verification& c, Scratch& s) const {
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

// Choose the best split by the largest magnitudes.
void VerifiedSearch::choose(Verification& c, Scratch& s) const {
  std::array<double, kSets> gains = compute_gains(c, s);
  const double scale =
      static_cast<double>(c.node.count) / static_cast<double>(std::max<int64_t>(1, c.n_sampled));
  for (double& gain : gains) gain *= scale;
  double best = 0;
  for (int set = 1; set < c.n_sets(); ++set) {
    const TileSplit* split = c.splits[set - 1];
    double gain = 0;
    if (!is_admissible(gains[set], gains[0], gain)) continue;
    const double gain_with_penalty =
        tree_->config().penalised_gain(split->feature, gains[set], gains[0]);
    if (c.best != nullptr && (gain_with_penalty < best ||
                              (gain_with_penalty == best && split->feature > c.best->feature)))
      continue;
    best = gain_with_penalty;
    c.best = split;
    c.gain = gain;
  }
  if (c.best != nullptr) c.left_hessian = left_hessian(c, s);
}

// Return the Hessian of this rank's rows that the best split sends left; of all ranks' rows if
// there are no weights.
int64_t VerifiedSearch::left_hessian(const Verification& c, Scratch& s) const {
  if (counts_rows()) return c.best->left_count;
  const uint32_t* ids = tree_->partition().ids(c.node.rows);
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

// Return the gain of each set; set 0 is the node itself.
std::array<double, kSets> VerifiedSearch::compute_gains(const Verification& c, Scratch& s) const {
  std::array<double, kSets> gains{};
  const double node_hessian = static_cast<double>(c.hessian[0]) * hessian_unit();
  gains[0] = sum_largest_gains(s.magnitudes[0], fixed_.unit, node_hessian, step_);
  for (int set = 1; set < c.n_sets(); ++set) {
    const double hessian = static_cast<double>(c.hessian[set]) * hessian_unit();
    gains[set] =
        sum_largest_gains(s.magnitudes[2 * set], fixed_.unit, hessian, step_) +
        sum_largest_gains(s.magnitudes[2 * set + 1], fixed_.unit, node_hessian - hessian, step_);
  }
  return gains;
}

}  // namespace polyleaf
