// Quantised gradients of nodes with linear leaves (GBDT-PL, sections 3.2 and 4): the node's
// derivatives, and their products with the node's regressors. With the bin means of a candidate's
// feature these give the smallest loss of both children.
//
// Half-additive (section 4.3): one regressor, what the slopes of the parent have fitted. With many
// outputs these differ; their coefficients stay 1, so that what has been fitted moves into the
// gradients and no regressor is left (the additive fit that the paper compares with).
//
// Full (eq. 6): the regressors are the features of the splits above.
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
  LinearGradients(const LinearTable& table, const LinearConfig& config)
      : table_(table), config_(config) {}
  LinearGradients(const LinearGradients&) = delete;
  LinearGradients& operator=(const LinearGradients&) = delete;

  // Set the derivatives of the next tree, which are copied, and quantised node by node: g (n_all,
  // n_outputs), h (n_all, 1) for a shared Hessian, (n_all, n_outputs) for a diagonal one
  // (half-additive only), nullptr for unit.
  void quantise(const float* g, const float* h, int n_outputs, HessianKind hessian,
                const RowSample& sample, const Context& context);

  const LinearConfig& config() const { return config_; }
  const RowSample& sample() const override { return sample_; }
  const ChannelLayout& layout() const override { return layouts_.back(); }
  bool fixed() const override { return false; }
  void start(const TreeContext& tree, const SearchNode& root) override;
  void fill(std::vector<Request>& requests) override;
  ChannelView view(int32_t node) const override;
  const std::vector<int32_t>& totals() const override { return root_totals_; }
  CategoricalOverfit categorical_overfit() const override;
  void split(int32_t parent, const TileSplit& split, const ScanNode& node, const SearchNode& left,
             const SearchNode& right, float* output_gain) override;

 private:
  struct Node {
    std::vector<int32_t> regressors;  // features
    double norm = 0;                  // sum of squares of the slopes
    // Update of its rows when they are first read, see FittedUpdate and FittedStep: a number for
    // each code of the feature, and the factor of what has been fitted.
    int32_t feature = -1;
    float factor = 0;
    float number[CodeTable::kSize];
    std::vector<float> middle, slope;  // many outputs: see FittedStep
    const ChannelLayout* layout = nullptr;
    std::vector<float> gradient_step, hessian_step;
    LinearScan scan;

    // Reset to a node without update and regressors.
    void start() {
      regressors.clear();
      norm = 0;
      feature = -1;
      factor = 0;
      middle.clear();
      slope.clear();
      layout = nullptr;
    }
  };
  // One request's rows in columns_: rows as in rows_ if half-additive; otherwise, column after
  // column, g of every output, the Hessian if there is one, the regressors.
  struct Columns {
    Node* node;
    const Request* request;
    int p;
    size_t at;        // offset in columns_
    size_t channels;  // offset in channels_
    std::vector<float> largest, range, inverse;
    std::vector<int64_t> totals;
  };
  // Rows of a request that one task handles, and its results.
  struct RowBlock {
    size_t of;
    int64_t begin, n;
    std::vector<float> largest, range;
    std::vector<int64_t> totals;
  };
  // One side of a split, for which slopes are solved.
  struct Side {
    std::vector<int32_t> all, there;
    std::vector<double> products, slopes, middle, terms;
  };

  int n_hessian() const {
    return hessian_ == HessianKind::unit ? 0 : hessian_ == HessianKind::shared ? 1 : n_outputs_;
  }
  int n_derivatives() const { return n_outputs_ + n_hessian(); }
  // Return whether rows are (g, h or 1, fitted, 1): one output, half-additive.
  bool is_narrow() const { return n_outputs_ == 1 && !config_.full; }
  // Return the numbers of the rows begin .. begin + n - 1 of a request by their codes of a feature.
  CodeTable look_up(const Columns& c, int32_t feature, int64_t begin, int64_t n,
                    const float* number, uint64_t* room) const;
  int missing_code(int32_t feature) const {
    const Bins& bins = tree_->bins();
    return bins.tile(bins.tile_index(feature)).missing();
  }
  int n_regressors(const Node& node) const {
    return config_.full                   ? static_cast<int>(node.regressors.size())
           : is_narrow() && node.norm > 0 ? 1
                                          : 0;
  }
  void make_blocks();
  void read_rows();
  void read_block(const Columns& c, int64_t begin, int64_t n, float* largest, float* range);
  void read_narrow(const Columns& c, int64_t begin, int64_t n, float* largest, float* range);
  void read_many(const Columns& c, int64_t begin, int64_t n, float* largest);
  void read_columns(const Columns& c, int64_t begin, int64_t n, float* largest, float* range);
  void fill_channels(const Columns& c, int64_t begin, int64_t n, int64_t* totals);
  void allreduce_ranges();
  void allreduce_totals();
  void set_scales(Columns& c);
  std::vector<LaneProduct> lane_products(int p) const;
  void quantise_nodes();
  void set_side(int side, const TileSplit& split, const ScanNode& node);
  void make_child(const Node& parent, const TileSplit& split, const double* slopes,
                  const double* middle, Node& child) const;

  const LinearTable& table_;
  const LinearConfig config_;
  HessianKind hessian_ = HessianKind::unit;
  Context context_ = 1;
  int n_outputs_ = 1, stride_ = 4;
  RowSample sample_;
  std::vector<uint32_t> sample_rows_;
  std::vector<ChannelLayout> layouts_;  // by number of regressors
  const TreeContext* tree_ = nullptr;
  ObjectPool<Node> nodes_;     // by id
  ObjectPool<Columns> batch_;  // of one call of `fill`
  ObjectPool<RowBlock> blocks_;
  Side sides_[3];  // left, right, and the node without the split
  SearchNode root_;
  std::vector<int32_t> root_totals_;
  const int16_t* root_channels_ = nullptr;  // made by `start`, until they are requested
  Buffer<float> rows_;  // by row id: g, Hessian; if narrow: g, Hessian, fitted, 1
  Buffer<float> columns_;
  Buffer<int16_t> channels_;
};

}  // namespace polyleaf
