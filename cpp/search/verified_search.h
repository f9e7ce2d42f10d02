// Splits of sparse gradients: a histogram search over a sketch of them proposes splits, and exact
// sums decide.
//
// One pass over a node's entries sums the left children of all its candidates at once, in a line of
// integers per output; the cost depends on the entries only, not on the number of outputs and
// features. Large nodes are represented by a random sample of rows, which is enough to compare six
// splits. In distributed training outputs are assigned to ranks: each rank receives the sums of its
// own, and the largest of each set are gathered.
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
  VerifiedSearch(const Bins& bins, HistogramSearch& histograms, const Context& context);

  // See SparseTargetSearch::use. The histogram search must use quantised gradients of the same
  // sample. row_ids (nullptr: positions) and seed: draw the rows that represent a large node.
  void use(const SparseRows& gradients, const float* weight, const RowSample& sample,
           const LeafConfig& step, int32_t leaf_k, const int64_t* row_ids, uint64_t seed) {
    SparseTargetSearch::use(gradients, weight, sample, step, leaf_k);
    row_ids_ = row_ids;
    seed_ = seed;
  }

  void start(const TreeContext& tree, const SearchNode& root) override;
  void evaluate(const std::vector<SearchNode>& nodes, bool renewed,
                std::vector<SplitInfo>& splits_out) override;
  void split(int32_t parent, const SearchNode& left, const SearchNode& right,
             float* output_gain) override;

 private:
  static constexpr int kCandidates = kSets - 1;  // set 0 is the node itself
  static constexpr int64_t kSampledRows = 4096;  // approximate sample of a large node
  // Of the sets, and of their complements in the node.
  static constexpr int kMagnitudes = 2 * kSets;

  // A node, its candidate splits, and the chosen one.
  struct Verification {
    SearchNode node;
    std::vector<const TileSplit*> splits;  // the best first
    int64_t hessian[kSetLanes] = {};       // per set
    int64_t n_sampled = 0;                 // rows
    const TileSplit* best = nullptr;
    double gain = 0;
    int64_t left_hessian = 0;
    int n_sets() const { return static_cast<int>(splits.size()) + 1; }
  };
  // Memory of one thread; sums are zero between nodes.
  struct Scratch {
    Buffer<int64_t> lines;
    Buffer<int32_t> touched, number;
    SetSums sums{};
    std::vector<uint8_t> bits, sides;
    LargestMagnitudes magnitudes[kMagnitudes];
  };
  // An output's sums, as they are sent.
  struct Line {
    int64_t output;
    int64_t sums[kSets];
  };

  Verification make_verification(const SearchNode& node,
                                 const std::vector<TileSplit>& splits) const;
  void decide(const Verification& c, const TileSplit& split, int64_t first, int64_t last,
              Scratch& s) const;
  bool is_sampled(int64_t row, int64_t count) const {
    if (count <= kSampledRows) return true;
    const uint64_t number = static_cast<uint64_t>(row_ids_ != nullptr ? row_ids_[row] : row);
    return (hash(seed_, number, 0) >> 32) * static_cast<uint64_t>(count) < uint64_t{kSampledRows}
                                                                               << 32;
  }
  void add_rows(Verification& c, Scratch& s) const;
  void find_largest(const Verification& c, Scratch& s) const;
  void choose(Verification& c, Scratch& s) const;
  int64_t left_hessian(const Verification& c, Scratch& s) const;
  std::array<double, kSets> compute_gains(const Verification& c, Scratch& s) const;
  void clear(Scratch& s) const;
  // Distributed training.
  void verify_distributed(std::span<Verification> verifications);
  std::vector<Lists<Line>> sum_lines_by_rank(std::span<Verification> verifications);
  Lists<int64_t> find_largest_by_rank(std::span<Verification> verifications,
                                      const Lists<Line>& lines);
  void allreduce_counts(std::span<Verification> verifications) const;

  HistogramSearch& histograms_;
  const int64_t* row_ids_ = nullptr;
  uint64_t seed_ = 0;
  std::vector<Scratch> scratch_;
  // Sets of a row, by the candidates that send it left.
  int64_t lanes_[1 << kCandidates][kSetLanes];
};

}  // namespace polyleaf
