// Histogram search on a GPU: the same splits as search/histogram_search.h, since sums and the order
// of candidates are equal.
//
// The histogram of the smaller child is built, that of the larger one is its parent's minus it. One
// result per node is copied back; if derivatives change within a tree, the node totals too.
// Categorical splits need sorting and are found on the host from copied histograms.
#pragma once
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/context.h"
#include "device/quantised_gradients.h"
#include "device/row_partitioner.h"
#include "grower/search.h"
#include "search/dense_scan.h"

namespace polyleaf {

class DeviceSearch final : public Search {
 public:
  DeviceSearch(const DeviceBins& bins, const Context& context);

  void use(const DeviceQuantisedGradients& channels) { channels_ = &channels; }
  // Like HistogramSearch.
  void set_monotone_constraints(MonotoneConstraints directions);

  const RowSample& sample() const override { return channels_->sample(); }
  int n_outputs() const override { return layout().n_outputs; }
  void start(const TreeContext& tree_context, const SearchNode& root) override;
  void evaluate(const std::vector<SearchNode>& nodes, bool renewed,
                std::vector<SplitInfo>& splits) override;
  void split(int32_t parent, const SearchNode& left, const SearchNode& right,
             float* output_gain) override;
  double cover(int32_t node) const override;

 private:
  struct Node {
    SearchNode at;
    int histogram = -1;  // -1: none
    std::vector<int32_t> totals;
    TileSplit best;
    OutputBounds value_bounds;  // output bounds under monotone constraints
  };
  // Nodes that are evaluated together, and how their histograms are obtained.
  struct Batch {
    std::vector<int32_t> nodes;         // nodes that may be split
    std::vector<int32_t> built;         // histograms built from rows
    std::vector<int32_t> pairs;         // pairs of histograms: subtract the second from the first
    std::vector<int32_t> unsplittable;  // built histograms of nodes that may not be split
  };

  const ChannelLayout& layout() const { return channels_->layout(); }
  const ScoreKernels& scores() const {
    return select_score_kernels(layout(), tree_context_->config().split);
  }
  ScanNode scan_node(const Node& node) const;
  void discard_sums(const std::vector<SearchNode>& nodes);
  void allocate_histograms();
  int count_needed_histograms() const;
  Node& add_node(const SearchNode& at, std::vector<int32_t> totals, OutputBounds bounds);
  int acquire_histogram();
  bool free_two_histograms(const Batch& batch);
  void plan_pair(int32_t left, int32_t right, Batch& batch);
  void plan_single(int32_t node, Batch& batch);
  void run(Batch& batch, std::vector<SplitInfo>& splits, int32_t first_id);
  void build(const Batch& batch);
  void scan(const Batch& batch);
  void sum_nodes(const Batch& batch);
  void launch_scan(const on_device::ScanNumeric& scan, const Batch& batch);
  bool write_solved_lanes(const Batch& batch);
  bool write_own_sums(const Batch& batch);
  void write_bounds(const Batch& batch);
  void scan_categories(Node& node);
  void store_best(Node& node, const int32_t* found);
  on_device::Histograms histograms() const;

  const DeviceBins& bins_;
  const std::shared_ptr<const Device> device_;
  const Context context_;

  MonotoneConstraints directions_;

  // State of one tree.
  const DeviceQuantisedGradients* channels_ = nullptr;
  const TreeContext* tree_context_ = nullptr;
  const DeviceRowPartitioner* rows_ = nullptr;
  CategoricalOverfit chance_;
  std::vector<Node> nodes_;
  std::vector<int> free_;  // unused histograms
  bool renewed_ = false;   // whether node totals must be recomputed

  // Memory reused over trees.
  int n_histograms_ = 0;
  int64_t histogram_size_ = 0;
  DeviceBuffer<int32_t> histograms_;
  DeviceBuffer<on_device::HistogramPiece> pieces_;
  DeviceBuffer<int32_t> pairs_, totals_, found_;
  DeviceBuffer<on_device::DeviceNode> nodes_at_;
  DeviceBuffer<uint8_t> allowed_;
  DeviceBuffer<on_device::FeatureBest> best_;
  DeviceBuffer<float> scan_scratch_, factors_, own_sums_, device_directions_, low_, high_;
  DeviceBuffer<int32_t> lanes_;
  mutable Buffer<float> workspace_;  // workspace of the scores
  std::vector<int32_t> host_results_, host_sums_;
  ScanScratch scratch_;
};

}  // namespace polyleaf
