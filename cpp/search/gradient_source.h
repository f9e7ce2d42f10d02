// Sources of the quantised gradients of a node: quantised once per tree and gathered, or computed
// for every node from what its parent has fitted (linear_gradients.h).
#pragma once
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/context.h"
#include "grower/host_row_partitioner.h"
#include "grower/search.h"
#include "quantised_gradients/quantised_gradients.h"
#include "search/dense_scan.h"

namespace polyleaf {

// Layout and steps of a node's channels.
struct ChannelView {
  const ChannelLayout* layout = nullptr;
  const float* gradient_step = nullptr;
  const float* hessian_step = nullptr;
  const LinearScan* linear = nullptr;       // nullptr: constant leaves
  const int32_t* max_magnitudes = nullptr;  // of each lane; nullptr: not known
};

class GradientSource {
 public:
  virtual ~GradientSource() = default;

  // Return the rows of the next tree, or of the next layer.
  virtual const RowSample& sample() const = 0;
  // Return the layout of the nodes with the most channels.
  virtual const ChannelLayout& layout() const = 0;
  // Return whether a row has the same channels in all nodes of a tree, so that a node's sums are
  // its children's.
  virtual bool fixed() const = 0;
  // Start a tree; make the root's channels.
  virtual void start(const TreeContext& tree, const SearchNode& root) = 0;

  // Request for the channels of a node's rows, contiguous, and, if channels are not fixed, for
  // their sums over the rows of all ranks.
  struct Request {
    int32_t node;
    RowRange rows;
    int64_t count;  // rows on all ranks
    const int16_t* channels = nullptr;
    std::vector<int32_t>* totals = nullptr;
  };
  // Fill the requests. The channels stay valid until the next call.
  virtual void fill(std::vector<Request>& requests) = 0;
  // Return the view of the root or of a node of an earlier request, and the root's sums.
  virtual ChannelView view(int32_t node) const = 0;
  virtual const std::vector<int32_t>& totals() const = 0;
  // Return the overfit of the gradients of the tree's rows. Call before `fill`.
  virtual CategoricalOverfit categorical_overfit() const = 0;

  // Apply the split of a node. Writes what each output adds to gain * n_outputs, unless channels
  // are fixed.
  virtual void split(int32_t parent, const TileSplit& split, const ScanNode& node,
                     const SearchNode& left, const SearchNode& right, float* output_gain) = 0;
};

// Gradients that are quantised once per row.
class FixedGradients final : public GradientSource {
 public:
  explicit FixedGradients(const Context& context) : context_(context) {}
  void use(const QuantisedGradients& channels) { channels_ = &channels; }
  const int16_t* row(int64_t id) const { return channels_->row(id); }

  const RowSample& sample() const override { return channels_->sample(); }
  const ChannelLayout& layout() const override { return channels_->layout(); }
  bool fixed() const override { return true; }
  void start(const TreeContext& tree, const SearchNode&) override {
    partition_ = &tree.partition();
  }
  void fill(std::vector<Request>& requests) override;
  ChannelView view(int32_t) const override {
    return {&channels_->layout(), channels_->gradient_step(), channels_->hessian_step(), nullptr,
            channels_->max_magnitudes().data()};
  }
  const std::vector<int32_t>& totals() const override { return channels_->totals(); }
  CategoricalOverfit categorical_overfit() const override;
  void split(int32_t, const TileSplit&, const ScanNode&, const SearchNode&, const SearchNode&,
             float*) override {}

 private:
  const Context context_;
  const QuantisedGradients* channels_ = nullptr;
  const HostRowPartitioner* partition_ = nullptr;
  Buffer<int16_t> gathered_;
};

}  // namespace polyleaf
