// QuantisedGradients of nodes whose leaves will be linear (GBDT-PL, sections 3.2 and 4): the node's
// derivatives, and their products with the regressors that the node has of its own. With the bin
// means of a candidate's feature these give the least loss of both children.
//
// half-additive (section 4.3)  one regressor: the slopes' part of what the parent has fitted. With
// many
//                              outputs these differ; their coefficients stay 1, so that what has
//                              been fitted moves into the gradients and no regressor is left (the
//                              additive fit that the paper compares with)
// full (eq. 6)                 the features of the splits above
//
// Owns: what nodes pass on to their children, and the channels made from it. Must not know: how
// candidates are scored, schedules.
#pragma once
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/context.h"
#include "base/object_pool.h"
#include "base/settings.h"
#include "data/linear_table.h"
#include "search/gradient_source.h"
#include "search/kernels/linear_gradient_kernels.h"

namespace polyleaf {

class LinearGradients final : public GradientSource {
 public:
  explicit LinearGradients(const LinearTable& table) : table_(table) {}
  LinearGradients(const LinearGradients&) = delete;
  LinearGradients& operator=(const LinearGradients&) = delete;

  // What the next tree is judged by: g (n_all, n_outputs), h (n_all, 1) for shared Hessian,
  // (n_all, n_outputs) for diagonal (half-additive only), nullptr for unit. Copied.
  void use(const float* g, const float* h, int n_outputs, HessianKind hessian,
           const RowSample& sample, const LinearConfig& config, const Context& context);

  const RowSample& sample() const override { return sample_; }
  const ChannelLayout& layout() const override { return layouts_.back(); }
  bool fixed() const override { return false; }
  void start(const TreeContext& scope, const SearchNode& root) override;
  void fill(std::vector<Request>& requests) override;
  ChannelView view(int32_t node) const override;
  const std::vector<int32_t>& totals() const override { return root_totals_; }
  CategoricalOverfit categorical_overfit() const override;
  void split(int32_t parent, const TileSplit& split, const ScanNode& node, const SearchNode& left,
             const SearchNode& right, float* output_gain) override;

 private:
  struct Node {
    std::vector<int32_t> regressors;  // features
    double norm = 0;                  // sum of squares of its slopes
    // What it takes on when its rows are first read: fitted = old * fitted + line[code of feature].
    int32_t feature = -1;
    float old = 0;
    float line[256];
    std::vector<float> middle, slope;  // many outputs: see FittedStep
    const ChannelLayout* layout = nullptr;
    std::vector<float> gradient_step, hessian_step;
    LinearScan scan;

    // It takes nothing on, and has no regressors.
    void start() {
      regressors.clear();
      norm = 0;
      feature = -1;
      old = 0;
      middle.clear();
      slope.clear();
      layout = nullptr;
    }
  };
  // One request's rows in columns_: rows as they are in rows_ where half-additive; otherwise,
  // column after column, g of every output, the Hessian if there is one, the regressors.
  struct Columns {
    Node* node;
    const Request* request;
    int p;
    size_t at;        // first float in columns_
    size_t channels;  // first integer in channels_
    std::vector<float> largest, range, inverse;
    std::vector<int64_t> totals;
  };
  // Rows of a request that one task reads, and what it finds; or that it makes integers of.
  struct Piece {
    size_t of;
    int64_t begin, n;
    std::vector<float> largest, range;
    std::vector<int64_t> totals;
  };
  // One side of a split, as its slopes are solved from.
  struct Side {
    std::vector<int32_t> all, there;
    std::vector<double> products, slopes, middle, terms;
  };

  int n_hessian() const {
    return hessian_ == HessianKind::unit ? 0 : hessian_ == HessianKind::shared ? 1 : n_outputs_;
  }
  int n_derivatives() const { return n_outputs_ + n_hessian(); }
  // One output, half-additive: rows (g, h or 1, fitted, 1).
  bool narrow() const { return n_outputs_ == 1 && !config_.full; }
  int n_regressors(const Node& node) const {
    return config_.full                ? static_cast<int>(node.regressors.size())
           : narrow() && node.norm > 0 ? 1
                                       : 0;
  }
  void cut_into_pieces();
  void read_rows();
  void read_block(const Columns& c, int64_t begin, int64_t n, float* largest, float* range);
  void read_narrow(const Columns& c, int64_t begin, int64_t n, float* largest, float* range);
  void read_many(const Columns& c, int64_t begin, int64_t n, float* largest);
  void read_columns(const Columns& c, int64_t begin, int64_t n, float* largest, float* range);
  void fill_channels(const Columns& c, int64_t begin, int64_t n, int64_t* totals);
  void hear_ranges();
  void hear_totals();
  void set_scales(Columns& c);
  std::vector<LaneProduct> lane_products(int p) const;
  void quantise();
  void set_side(int side, const TileSplit& split, const ScanNode& node);
  void pass_on(const Node& parent, const TileSplit& split, const double* slopes,
               const double* middle, Node& child) const;

  const LinearTable& table_;
  LinearConfig config_{};
  HessianKind hessian_ = HessianKind::unit;
  Context context_ = 1;
  int n_outputs_ = 1, stride_ = 4;
  RowSample sample_;
  std::vector<uint32_t> sample_rows_;
  std::vector<ChannelLayout> layouts_;  // by number of regressors
  const TreeContext* scope_ = nullptr;
  ObjectPool<Node> nodes_;     // in the order of their ids
  ObjectPool<Columns> batch_;  // of one call of `fill`
  ObjectPool<Piece> pieces_;
  Side sides_[3];  // left, right, and the node without the split
  SearchNode root_;
  std::vector<int32_t> root_totals_;
  const int16_t* root_channels_ = nullptr;  // made by `start`, until they are asked for
  Buffer<float> rows_;  // by row id: g, Hessian; where narrow: g, Hessian, fitted, 1
  Buffer<float> columns_;
  Buffer<int16_t> channels_;
};

}  // namespace polyleaf
