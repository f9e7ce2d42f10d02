// Splits of sparse gradients by exact sums of every feature (GBDT-SPARSE, Algorithm 1): rows in order of the
// feature, running sums of the outputs of the left child, and at every so many rows the k largest of both
// children.
//
// Owns: the order of thresholds. Must not know: sketches, histograms. Numeric features only.
#pragma once
#include <cstdint>
#include <vector>

#include "base/workers.h"
#include "search/label_search.h"

namespace polyleaf {

class ExactSearch final : public LabelSearch {
 public:
  ExactSearch(const Bins& bins, const Workers& workers);

  // As LabelSearch::use. threshold_step: a threshold at every such share of a node's rows; 0: at every bin.
  void use(const LabelRows& gradients, const float* weight, const RowSample& sample, const LeafConfig& step,
           int32_t leaf_k, double threshold_step) {
    LabelSearch::use(gradients, weight, sample, step, leaf_k);
    threshold_step_ = threshold_step;
  }

  void start(const SearchScope& scope, const SearchNode&) override;
  void evaluate(const std::vector<SearchNode>& nodes, bool renewed, std::vector<Choice>& choices) override;
  void split(int32_t parent, const SearchNode& left, const SearchNode& right, float* output_gain) override {
    (void)output_gain;
    note_split(parent, left.id, right.id);
  }

 private:
  // The entries of a node's rows, whose outputs are numbered anew: 0, 1, ... in the order of their meeting.
  struct Entries {
    std::vector<int64_t> begin;  // of each row
    std::vector<int32_t> number, value;
    std::vector<int64_t> curvature;  // of each row
    std::vector<int64_t> totals;     // of each output
    int64_t total_curvature = 0;
    double worth = 0;  // of the node as one leaf
  };
  // The best threshold of a feature.
  struct Best {
    double sum = 0;  // of both children's worths
    int32_t feature = -1, bin = -1;
    bool missing_left = false;
    int64_t n_left = 0, left_curvature = 0;
  };
  // One thread's memory.
  struct Scratch {
    std::vector<uint32_t> order;
    std::vector<uint8_t> codes;  // of one feature
    std::vector<int64_t> sums;
    Largest left, right;
  };

  void gather(const SearchNode& node);
  Best scan(const SearchNode& node, int feature, Scratch& s) const;
  double worth(Largest& magnitudes, int64_t curvature) const;

  double threshold_step_ = 0;
  Entries entries_;
  std::vector<int32_t> number_of_;  // every output's number in the node, and 1 more; 0: not met
  std::vector<int32_t> met_;        // the outputs of the node
  Largest largest_;
  std::vector<Scratch> scratch_;
};

}  // namespace polyleaf
