// Where the channels of a node come from: quantised once for a tree and gathered, or made anew for
// every node from what its parent has fitted (linear_gradients.h).
//
// Owns: the contract between who makes channels and who sums them.
#pragma once
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/context.h"
#include "grower/search.h"
#include "quantised_gradients/quantised_gradients.h"
#include "search/dense_scan.h"

namespace polyleaf {

// How a node's channels are to be read.
struct ChannelView {
  const ChannelLayout* layout = nullptr;
  const float* gradient_step = nullptr;
  const float* hessian_step = nullptr;
  const LinearScan* linear = nullptr;  // nullptr: constant leaves
  const int32_t* largest =
      nullptr;  // magnitude of a row's channel, of every lane; nullptr: not known
};

class GradientSource {
 public:
  virtual ~GradientSource() = default;

  // Rows of the next tree, or the next layer.
  virtual const RowSample& sample() const = 0;
  // Of the nodes that have most channels.
  virtual const ChannelLayout& layout() const = 0;
  // Whether a row has the same channels in all nodes of a tree, so that a node's sums are its
  // children's.
  virtual bool fixed() const = 0;
  // A new tree; makes the root's channels.
  virtual void start(const TreeContext& scope, const SearchNode& root) = 0;

  // The channels of a node's rows, next to each other, and, where channels are not fixed, their
  // sums, those of the rows of all ranks.
  struct Request {
    int32_t node;
    RowRange rows;
    int64_t count;  // of the rows of all ranks
    const int16_t* channels = nullptr;
    std::vector<int32_t>* totals = nullptr;
  };
  // QuantisedGradients stay where they are until the next call.
  virtual void fill(std::vector<Request>& requests) = 0;
  // Of the root, or of a node that `fill` was asked for; the root's sums.
  virtual ChannelView view(int32_t node) const = 0;
  virtual const std::vector<int32_t>& totals() const = 0;
  // Of the gradients of all rows of the tree, or of the layer. Asked for before any call of `fill`.
  virtual CategoricalOverfit categorical_overfit() const = 0;

  // The node's split was found to be this, and is taken. Writes what each output adds to gain *
  // n_outputs, unless channels are fixed.
  virtual void split(int32_t parent, const TileSplit& split, const ScanNode& node,
                     const SearchNode& left, const SearchNode& right, float* output_gain) = 0;
};

// QuantisedGradients that a row keeps.
class FixedGradients final : public GradientSource {
 public:
  explicit FixedGradients(const Context& context) : context_(context) {}
  void use(const QuantisedGradients& channels) { channels_ = &channels; }
  const int16_t* row(int64_t id) const { return channels_->row(id); }

  const RowSample& sample() const override { return channels_->sample(); }
  const ChannelLayout& layout() const override { return channels_->layout(); }
  bool fixed() const override { return true; }
  void start(const TreeContext& scope, const SearchNode&) override {
    partition_ = &scope.partition();
  }
  void fill(std::vector<Request>& requests) override;
  ChannelView view(int32_t) const override {
    return {&channels_->layout(), channels_->gradient_step(), channels_->hessian_step(), nullptr,
            channels_->largest().data()};
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
