// Best splits from histograms of channels, on a device: what histogram_search.h does on processors,
// with the same sums and the same order of candidates, so that the splits are the same.
//
// Of a pair of children the smaller one's histogram is built, the larger one's is its parent's less
// that. Of a batch one record a node is read back; where derivatives are renewed within a tree,
// what nodes sum to as well. Splits on categories are looked for on this machine, in histograms
// that are read back; they need sorting.
//
// Owns: which histograms are made, and their memory. Must not know: the schedule, leaves.
#pragma once
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/context.h"
#include "device/channels.h"
#include "device/rows.h"
#include "grower/search.h"
#include "search/dense_scan.h"

namespace polyleaf {

class DeviceSearch final : public Search {
 public:
  DeviceSearch(const DeviceBins& bins, const Workers& workers);

  void use(const DeviceChannels& channels) { channels_ = &channels; }
  // As that of HistogramSearch.
  void obey(FeatureDirections directions);

  const RowSample& sample() const override { return channels_->sample(); }
  int n_outputs() const override { return layout().n_outputs; }
  void start(const TreeContext& scope, const SearchNode& root) override;
  void evaluate(const std::vector<SearchNode>& nodes, bool renewed,
                std::vector<SplitInfo>& choices) override;
  void split(int32_t parent, const SearchNode& left, const SearchNode& right,
             float* output_gain) override;
  double cover(int32_t node) const override;

 private:
  struct Node {
    SearchNode at;
    int histogram = -1;  // -1: none is kept
    std::vector<int32_t> totals;
    TileSplit best;
    ValueBounds value_bounds;  // where values must obey directions
  };
  // Nodes that are looked at together, and how their histograms come about.
  struct Batch {
    std::vector<int32_t> nodes;    // that may have children
    std::vector<int32_t> built;    // from their rows
    std::vector<int32_t> pairs;    // of histograms: the first less the second
    std::vector<int32_t> passing;  // of those built: nodes that may not have children
  };

  const ChannelLayout& layout() const { return channels_->layout(); }
  const ScoreKernels& scores() const { return scores_of(layout(), scope_->config().split); }
  ScanNode scan_node(const Node& node) const;
  void forget(const std::vector<SearchNode>& nodes);
  void lay_out_memory();
  int n_histograms_wanted() const;
  Node& add_node(const SearchNode& at, std::vector<int32_t> totals, ValueBounds bounds);
  int take_histogram();
  bool make_room_for_pair(const Batch& batch);
  void plan_pair(int32_t left, int32_t right, Batch& batch);
  void plan_alone(int32_t node, Batch& batch);
  void run(Batch& batch, std::vector<SplitInfo>& choices, int32_t first_id);
  void build(const Batch& batch);
  void scan(const Batch& batch);
  void sum_nodes(const Batch& batch);
  void launch_scan(const on_device::ScanNumeric& scan, const Batch& batch);
  bool name_lanes(const Batch& batch);
  bool write_own_sums(const Batch& batch);
  void write_bounds(const Batch& batch);
  void scan_categories(Node& node);
  void take_found(Node& node, const int32_t* found);
  on_device::Histograms histograms() const;

  const DeviceBins& bins_;
  const std::shared_ptr<const Device> device_;
  const Workers workers_;

  FeatureDirections directions_;

  // One tree's state.
  const DeviceChannels* channels_ = nullptr;
  const TreeContext* scope_ = nullptr;
  const DeviceRowPartitioner* rows_ = nullptr;
  Chance chance_;
  std::vector<Node> nodes_;
  std::vector<int> free_;  // histograms
  bool renewed_ = false;   // whether totals of nodes that are looked at are to be summed

  // Memory reused over trees.
  int n_histograms_ = 0;
  int64_t histogram_size_ = 0;
  DeviceBuffer<int32_t> histograms_;
  DeviceBuffer<on_device::HistogramPiece> pieces_;
  DeviceBuffer<int32_t> pairs_, totals_, found_;
  DeviceBuffer<on_device::NodeAt> nodes_at_;
  DeviceBuffer<uint8_t> allowed_;
  DeviceBuffer<on_device::FeatureBest> best_;
  DeviceBuffer<float> room_, factors_, own_sums_, directions_there_, low_, high_;
  DeviceBuffer<int32_t> lanes_;
  mutable Buffer<float> workspace_;  // of scores
  std::vector<int32_t> found_here_, sums_here_;
  ScanScratch scratch_;
};

}  // namespace polyleaf
