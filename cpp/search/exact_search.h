// Splits of sparse gradients by exact sums of every feature (GBDT-SPARSE, Algorithm 1): rows in
// order of the feature, running sums of the outputs of the left child, and at every so many rows
// the k largest of both children. Where other ranks have further rows, all are sent what the
// gradients of a node are; features are shared out.
//
// Owns: the order of thresholds. Must not know: sketches, histograms. Numeric features only.
#pragma once
#include <cstdint>
#include <vector>

#include "base/collective.h"
#include "base/context.h"
#include "search/sparse_target_search.h"

namespace polyleaf {

class ExactSearch final : public SparseTargetSearch {
 public:
  ExactSearch(const Bins& bins, const Context& context);

  // As SparseTargetSearch::use. threshold_step: a threshold at every such share of a node's rows;
  // 0: at every bin.
  void use(const SparseRows& gradients, const float* weight, const RowSample& sample,
           const LeafConfig& step, int32_t leaf_k, double threshold_step) {
    SparseTargetSearch::use(gradients, weight, sample, step, leaf_k);
    threshold_step_ = threshold_step;
  }

  void start(const TreeContext& scope, const SearchNode&) override;
  void evaluate(const std::vector<SearchNode>& nodes, bool renewed,
                std::vector<SplitInfo>& choices) override;
  void split(int32_t parent, const SearchNode& left, const SearchNode& right,
             float* output_gain) override {
    (void)output_gain;
    note_split(parent, left.id, right.id);
  }

 private:
  // The entries of a node's rows, wherever they lie. Outputs are numbered anew: 0, 1, ... in the
  // order of their meeting.
  struct Entries {
    std::vector<int64_t> begin;  // of each row
    std::vector<int32_t> number, value;
    std::vector<int64_t> hessian;  // of each row
    std::vector<int64_t> totals;   // of each output
    int64_t total_hessian = 0;
    double worth = 0;  // of the node as one leaf
  };
  // The best threshold of a feature.
  struct Best {
    double sum = 0;  // of both children's worths
    int32_t feature = -1, bin = -1;
    bool missing_left = false;
    int64_t n_left = 0, left_hessian = 0;
    double penalised_gain = 0;  // what features compete by
    bool is_better(const Best& other) const {
      if (feature < 0 || other.feature < 0) return feature >= 0;
      return penalised_gain > other.penalised_gain ||
             (penalised_gain == other.penalised_gain && feature < other.feature);
    }
  };
  // One thread's memory.
  struct Scratch {
    std::vector<uint32_t> order;
    std::vector<uint8_t> codes;  // of one feature
    std::vector<int64_t> sums;
    Largest left, right;
  };

  void gather(const SearchNode& node, const std::vector<uint8_t>& allowed);
  void clear_entries();
  void add_entry(int32_t output, int32_t value) {
    int32_t& number = number_of_[output];
    if (number == 0) {
      met_.push_back(output);
      entries_.totals.push_back(0);
      number = static_cast<int32_t>(met_.size());
    }
    entries_.number.push_back(number - 1);
    entries_.value.push_back(value);
    entries_.totals[number - 1] += value;
  }
  void end_row(int64_t hessian) {
    entries_.begin.push_back(static_cast<int64_t>(entries_.number.size()));
    entries_.hessian.push_back(hessian);
    entries_.total_hessian += hessian;
  }
  // What ranks do for one another.
  bool is_own(int feature) const {
    return !context_.is_distributed() ||
           feature % context_.communicator->size() == context_.communicator->rank();
  }
  void hear_ranks(const SearchNode& node, const std::vector<uint8_t>& allowed);
  const uint8_t* codes_of(const SearchNode& node, int feature, Scratch& s) const;
  Best scan(const SearchNode& node, int feature, Scratch& s) const;
  double worth(Largest& magnitudes, int64_t hessian) const;

  double threshold_step_ = 0;
  Entries entries_;
  Lists<uint8_t> codes_;  // of a node's rows, by feature, where other ranks have some of them
  std::vector<int32_t> number_of_;  // every output's number in the node, and 1 more; 0: not met
  std::vector<int32_t> met_;        // the outputs of the node
  Largest largest_;
  std::vector<Scratch> scratch_;
};

}  // namespace polyleaf
