// Splits of sparse gradients by exact sums of every feature (GBDT-SPARSE, Algorithm 1): rows in the
// order of the feature, running sums of the outputs of the left child, and at regular thresholds
// the k largest outputs of both children. In distributed training all ranks receive the gradients
// of a node, and features are assigned to ranks. Numeric features only.
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

  // See SparseTargetSearch::use. threshold_step: fraction of a node's rows between thresholds; 0: a
  // threshold at every bin.
  void use(const SparseRows& gradients, const float* weight, const RowSample& sample,
           const LeafConfig& step, int32_t leaf_k, double threshold_step) {
    SparseTargetSearch::use(gradients, weight, sample, step, leaf_k);
    threshold_step_ = threshold_step;
  }

  void start(const TreeContext& tree, const SearchNode&) override;
  void evaluate(const std::vector<SearchNode>& nodes, bool renewed,
                std::vector<SplitInfo>& splits_out) override;
  void split(int32_t parent, const SearchNode& left, const SearchNode& right,
             float* output_gain) override {
    (void)output_gain;
    record_split(parent, left.id, right.id);
  }

 private:
  // Gradients of a node's rows, on all ranks. Outputs have new indices 0, 1, ... in the order of
  // appearance.
  struct Entries {
    std::vector<int64_t> begin;  // per row
    std::vector<int32_t> index, value;
    std::vector<int64_t> hessian;  // per row
    std::vector<int64_t> totals;   // per output
    int64_t total_hessian = 0;
    double gain = 0;  // of the node as one leaf
  };
  // The best threshold of a feature.
  struct Best {
    double sum = 0;  // of the gains of both children
    int32_t feature = -1, bin = -1;
    bool missing_left = false;
    int64_t n_left = 0, left_hessian = 0;
    double penalised_gain = 0;  // gain by which features are compared
    bool is_better(const Best& other) const {
      if (feature < 0 || other.feature < 0) return feature >= 0;
      return penalised_gain > other.penalised_gain ||
             (penalised_gain == other.penalised_gain && feature < other.feature);
    }
  };
  // Memory of one thread.
  struct Scratch {
    std::vector<uint32_t> order;
    std::vector<uint8_t> codes;  // of one feature
    std::vector<int64_t> sums;
    LargestMagnitudes left, right;
  };

  void gather(const SearchNode& node, const std::vector<uint8_t>& allowed);
  void clear_entries();
  void add_entry(int32_t output, int32_t value) {
    int32_t& index = output_index_[output];
    if (index == 0) {
      outputs_.push_back(output);
      entries_.totals.push_back(0);
      index = static_cast<int32_t>(outputs_.size());
    }
    entries_.index.push_back(index - 1);
    entries_.value.push_back(value);
    entries_.totals[index - 1] += value;
  }
  void end_row(int64_t hessian) {
    entries_.begin.push_back(static_cast<int64_t>(entries_.index.size()));
    entries_.hessian.push_back(hessian);
    entries_.total_hessian += hessian;
  }
  // Distributed training.
  bool owns_feature(int feature) const {
    return !context_.is_distributed() ||
           feature % context_.communicator->size() == context_.communicator->rank();
  }
  void allgather_entries(const SearchNode& node, const std::vector<uint8_t>& allowed);
  const uint8_t* get_codes(const SearchNode& node, int feature, Scratch& s) const;
  Best scan(const SearchNode& node, int feature, Scratch& s) const;
  double gain(LargestMagnitudes& magnitudes, int64_t hessian) const;

  double threshold_step_ = 0;
  Entries entries_;
  Lists<uint8_t> codes_;               // of a node's rows, by feature, in distributed training
  std::vector<int32_t> output_index_;  // index in the node of each output, plus 1; 0: none
  std::vector<int32_t> outputs_;       // outputs of the node
  LargestMagnitudes largest_;
  std::vector<Scratch> scratch_;
};

}  // namespace polyleaf
