// Splits of sparse gradients: proposed by a histogram search over a sketch of them, judged by exact
// sums.
//
// One pass over a node's entries sums the left children of all its candidates at once, a line of
// integers for every output that is met; the cost is that of the entries, whatever the number of
// outputs and features. Of a large node some rows, drawn by their numbers, stand for all: they are
// enough to tell six splits apart. Where other ranks have further rows, outputs are shared out:
// each rank is sent the sums of its own, and all are told the largest of each set.
//
// Owns: the choice among proposals. Must not know: how the sketch was made.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/collective.h"
#include "base/context.h"
#include "base/rng.h"
#include "search/histogram_search.h"
#include "search/kernels/sparse_target_kernels.h"
#include "search/sparse_target_search.h"

namespace polyleaf {

class VerifiedSearch final : public SparseTargetSearch {
 public:
  VerifiedSearch(const Bins& bins, HistogramSearch& proposals, const Context& context);

  // As SparseTargetSearch::use. `proposals` must be using channels of the same sample. What draws
  // the rows that stand for a large node: their numbers (nullptr: places) among all, wherever they
  // lie, and a seed.
  void use(const SparseRows& gradients, const float* weight, const RowSample& sample,
           const LeafConfig& step, int32_t leaf_k, const int64_t* numbers, uint64_t seed) {
    SparseTargetSearch::use(gradients, weight, sample, step, leaf_k);
    numbers_ = numbers;
    seed_ = seed;
  }

  void start(const TreeContext& scope, const SearchNode& root) override;
  void evaluate(const std::vector<SearchNode>& nodes, bool renewed,
                std::vector<SplitInfo>& choices) override;
  void split(int32_t parent, const SearchNode& left, const SearchNode& right,
             float* output_gain) override;

 private:
  static constexpr int kCandidates = kSets - 1;  // set 0 is the node itself
  static constexpr int64_t kSampledRows = 4096;  // of a large node, about
  static constexpr int kMagnitudes =
      2 * kSets;  // of the sets, and of what the sets leave of the node

  // A node, the splits that it is judged by, and the answer.
  struct Case {
    SearchNode node;
    std::vector<const TileSplit*> splits;  // the most promising first
    int64_t hessian[kSetLanes] = {};       // of the sets
    int64_t n_judged = 0;                  // rows
    const TileSplit* best = nullptr;
    double gain = 0;
    int64_t left_hessian = 0;
    int n_sets() const { return static_cast<int>(splits.size()) + 1; }
  };
  // One thread's memory; sums are clear between cases.
  struct Scratch {
    Buffer<int64_t> lines;
    Buffer<int32_t> touched, number;
    SetSums sums{};
    std::vector<uint8_t> bits, sides;
    Largest magnitudes[kMagnitudes];
  };
  // An output's sums, as they are sent.
  struct Line {
    int64_t output;
    int64_t sums[kSets];
  };

  Case case_of(const SearchNode& node, const std::vector<TileSplit>& splits) const;
  void decide(const Case& c, const TileSplit& split, int64_t first, int64_t last, Scratch& s) const;
  bool is_judged(int64_t row, int64_t count) const {
    if (count <= kSampledRows) return true;
    const uint64_t number = static_cast<uint64_t>(numbers_ != nullptr ? numbers_[row] : row);
    return (hash(seed_, number, 0) >> 32) * static_cast<uint64_t>(count) < uint64_t{kSampledRows}
                                                                               << 32;
  }
  void add_rows(Case& c, Scratch& s) const;
  void find_largest(const Case& c, Scratch& s) const;
  void judge(Case& c, Scratch& s) const;
  int64_t left_hessian(const Case& c, Scratch& s) const;
  std::array<double, kSets> worths(const Case& c, Scratch& s) const;
  void clear(Scratch& s) const;
  // What ranks do for one another.
  void judge_with_ranks(std::span<Case> cases);
  std::vector<Lists<Line>> lines_for_ranks(std::span<Case> cases);
  Lists<int64_t> largest_of_own(std::span<Case> cases, const Lists<Line>& lines);
  void sum_over_ranks(std::span<Case> cases) const;

  HistogramSearch& proposals_;
  const int64_t* numbers_ = nullptr;
  uint64_t seed_ = 0;
  std::vector<Scratch> scratch_;
  int64_t lanes_[1 << kCandidates]
                [kSetLanes];  // of the sets that a row is in, by the candidates that send it left
};

}  // namespace polyleaf
