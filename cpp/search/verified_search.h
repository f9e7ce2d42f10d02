// Splits of sparse gradients: proposed by a histogram search over a sketch of them, judged by exact sums.
//
// One pass over a node's entries sums the left children of all its candidates at once, a line of integers for
// every output that is met; the cost is that of the entries, whatever the number of outputs and features. Of
// a large node some rows at equal distances stand for all: they are enough to tell six splits apart.
//
// Owns: the choice among proposals. Must not know: how the sketch was made.
#pragma once
#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "base/workers.h"
#include "search/histogram_search.h"
#include "search/kernels/label_sums.h"
#include "search/label_search.h"

namespace polyleaf {

class VerifiedSearch final : public LabelSearch {
 public:
  VerifiedSearch(const Bins& bins, HistogramSearch& proposals, const Workers& workers);

  // As LabelSearch::use. `proposals` must be using channels of the same sample.
  using LabelSearch::use;

  void start(const SearchScope& scope, const SearchNode& root) override;
  void evaluate(const std::vector<SearchNode>& nodes, bool renewed, std::vector<Choice>& choices) override;
  void split(int32_t parent, const SearchNode& left, const SearchNode& right, float* output_gain) override;

 private:
  static constexpr int kCandidates = kSets - 1;  // set 0 is the node itself

  // A node, the splits that it is judged by, and the answer.
  struct Case {
    SearchNode node;
    std::vector<const TileSplit*> splits;  // the most promising first
    const TileSplit* best = nullptr;
    double gain = 0, left_curvature = 0;
  };
  // One thread's memory; clear between cases.
  struct Scratch {
    Buffer<int64_t> lines;
    Buffer<int32_t> touched, number;
    SetSums sums{};
    int64_t curvature[kSetLanes] = {};  // of the sets
    std::vector<uint8_t> bits, sides;
    Largest magnitudes[2 * kSets];  // of the sets, and of what the sets leave of the node
  };
  // What each set, and the node without it, is worth.
  struct Worths {
    double curvature[kSets], sum[kSets];
  };

  Case case_of(const SearchNode& node, const std::vector<TileSplit>& splits) const;
  void decide(const Case& c, const TileSplit& split, int64_t first, int64_t last, Scratch& s) const;
  void add_rows(const Case& c, Scratch& s) const;
  void judge(Case& c, Scratch& s) const;
  double left_curvature(const Case& c, Scratch& s) const;
  Worths worths(int n_sets, Scratch& s) const;
  void clear(Scratch& s) const;

  HistogramSearch& proposals_;
  std::vector<Scratch> scratch_;
  int64_t lanes_[1 << kCandidates]
                [kSetLanes];  // of the sets that a row is in, by the candidates that send it left
};

}  // namespace polyleaf
