// Best splits from histograms of channels (GBDT-MO's Algorithms 1 and 2).
//
//   per pair of children: build the smaller one's histogram, subtract for the larger, scan both
//
// A node's histogram is kept only while children may be made from it, and only within a memory
// budget; nodes without a kept parent histogram, and small nodes, are built directly, and the
// smallest with many outputs have no histogram at all. Sparse features have a histogram each, one
// at a time, of the cells of the node. Where other ranks have further rows, every node looked at
// has a histogram, which they add up.
//
// Owns: which histograms are made, how, and of which rows. Must not know: what a channel means
// (scores do), the schedule, leaves.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/context.h"
#include "base/object_pool.h"
#include "grower/search.h"
#include "search/allreduce_histograms.h"
#include "search/dense_scan.h"
#include "search/gradient_source.h"
#include "search/histogram_pool.h"
#include "search/packed_histogram.h"
#include "search/sparse_scan.h"

namespace polyleaf {

// A split that a node may get, as the grower sees it.
SplitInfo to_split_info(const TileSplit& split, double gain);
// The same for the best that was found (nullptr: none) in a node that is worth `node_sum` itself;
// of no feature where it is not admissible.
SplitInfo validate_gain(const TileSplit* best, float node_sum, int n_outputs,
                        const GrowConfig& config);
// Those of finite sum, the most promising first.
std::vector<const TileSplit*> sorted_by_gain(const std::vector<TileSplit>& splits);

class HistogramSearch final : public Search {
 public:
  explicit HistogramSearch(const Bins& bins, const Context& context);

  HistogramSearch(const HistogramSearch&) = delete;
  HistogramSearch& operator=(const HistogramSearch&) = delete;

  // What the next tree, or the next layer, is judged by.
  void use(const QuantisedGradients& channels) {
    fixed_.use(channels);
    source_ = &fixed_;
  }
  void use(GradientSource& source) { source_ = &source; }

  // Where outputs must not fall or rise with features, from the next tree on.
  void set_monotone_constraints(MonotoneConstraints directions) {
    directions_ = std::move(directions);
  }

  const RowSample& sample() const override { return source_->sample(); }
  int n_outputs() const override { return source_->layout().n_outputs; }
  void start(const TreeContext& scope, const SearchNode& root) override;
  void evaluate(const std::vector<SearchNode>& nodes, bool renewed,
                std::vector<SplitInfo>& choices) override;
  void split(int32_t parent, const SearchNode& left, const SearchNode& right,
             float* output_gain) override;
  double cover(int32_t node) const override;

  // What `evaluate` chooses from: the best splits of every part (tiles, and parts of the sparse
  // features), for each node of the batch that may have children; of those without any, feature is
  // -1. `take` says which one of them a node is to get; nullptr: none, it stays a leaf. Where other
  // ranks have further rows, the best that each has found: as many as are `wanted`.
  struct Proposals {
    int32_t node;
    std::vector<TileSplit> splits;
  };
  // More than one wanted: of each part the best of every group of features (`Bins::feature_group`),
  // at most kTileFeatures of them, so that what is proposed does not depend on how features are
  // held; otherwise the best of the part. Valid until the next call.
  const ObjectPool<Proposals>& propose(const std::vector<SearchNode>& nodes, bool renewed,
                                       size_t wanted = 1);
  void take(int32_t node, const TileSplit* split);

 private:
  // A node while its tree grows; the index is its id.
  struct Node {
    SearchNode at;
    ChannelView view;              // of its channels; until it has some, of its parent's
    int histogram = -1;            // slot of the pool; -1: not kept
    std::vector<int32_t> totals;   // lanes
    std::vector<uint8_t> allowed;  // features, where they are sampled per node
    TileSplit best;
    std::unique_ptr<CellBounds> bounds;  // of sparse features; nullptr: none are kept
    OutputBounds value_bounds;           // where values must obey directions
    float prune_bound = 0, floor = 0;    // sparse leaves: see ScanNode and ScanScratch
    int64_t size() const {
      return at.rows.size();
    }  // rows that lie here; what is built, by `count`
  };

  // How the histograms of up to two sibling nodes come about.
  struct Job {
    int32_t build = -1;     // node whose rows are read
    int32_t subtract = -1;  // its sibling, whose histogram is the parent's minus that; -1: none
    int parent = -1;        // slot of the parent, which becomes the sibling's
    bool keep = false;      // keep the built histogram for children
    bool few = false;       // few rows: only touched bins are looked at and cleared
    bool by_rows = false;   // few rows for so many outputs: no histogram, rows in order of bins
    size_t proposals = 0;   // where those of `build` are; those of `subtract` follow
    const int16_t* channels = nullptr;          // of the rows of `build`, contiguous
    const int16_t* sibling_channels = nullptr;  // of `subtract`, where there are sparse features
    int chunks = 1;                             // row chunks built apart and added up
    size_t first_chunk = 0;                     // where they lie in chunk_
    size_t shared = 0;                          // which of the histograms that ranks add up at once
  };

  void lay_out_memory();
  void set_thresholds();
  void set_joint_formats();
  void find_runs();
  bool rides(const Job& job, int t, int64_t n_rows) const;
  int64_t end_of_run(const Job& job, const std::vector<uint32_t>& ends, int64_t i,
                     int64_t end) const;
  int64_t end_of_joint(const Job& job, int t, int64_t i, int64_t end) const;
  // Nodes are added in the order of their ids.
  Node& add_node(const SearchNode& at, const ChannelView& view);
  void make_room(std::vector<Job>& jobs);
  std::vector<Job> plan(const std::vector<SearchNode>& nodes);
  void gather_channels(std::vector<Job>& jobs);
  void sum_totals(const std::vector<Job>& jobs);
  void set_bounds(const std::vector<Job>& jobs);
  void build_chunks(std::vector<Job>& jobs);
  void run(std::span<Job> jobs);
  // What ranks do for one another: `allreduce_histograms.h`.
  void add_ranks(std::span<Job> jobs);
  void hear_ranks(size_t wanted);
  void run_part(const Job& job, int part, int thread);
  void run_tile(const Job& job, int tile_index, int thread, TileSplit* of_built,
                TileSplit* of_sibling);
  const uint64_t* words_of_all(const Node& node, int t, int thread);
  template <class Add>
  void with_words(const Job& job, int t, int64_t begin, int64_t end, int thread, const Add& add);
  void build_rows(const Job& job, int t, int64_t begin, int64_t end, const TileBins& bins,
                  int thread);
  void build_tile(const Job& job, int tile_index, const TileBins& bins, int thread);
  void scan_by_rows(const Job& job, int tile, const uint64_t* rows, const Slots& slots, int thread,
                    TileSplit* out);
  void scan(int32_t node, int tile, const TileHistogram& histogram, const Slots& slots, int thread,
            TileSplit* out);
  void scan_group(int32_t node, int group, const int16_t* channels, int thread, TileSplit* out);
  void set_cell_bounds(const std::vector<Job>& jobs);
  void hand_down_bounds(Node& parent, Node& left, Node& right);
  template <class Find>
  void with_floor(Node& node, int thread, const Find& find);
  // Features that a node may be split on, as flags.
  const std::vector<uint8_t>& allowed_of(const Node& node) const;
  SplitInfo choose(const Proposals& proposals);

  const ScoreKernels& scores() const {
    return select_score_kernels(layout_, scope_->config().split);
  }
  void judge_split(const Node& node, float* output_gain) const;
  // The node where candidates split like the best one.
  ScanNode of_best(const Node& node) const;
  bool has_categories(int tile) const;
  // Of a tile's slots those whose features the node may be split on, as flags.
  Slots slots_of(const Node& node, const Tile& tile) const;
  bool keeps_histogram(const Node& node) const;
  void drop_histogram(Node& node);
  // `thread`: whose workspace may be used.
  ScanNode scan_node(const Node& node, int thread = 0) const;

  const Bins& bins_;
  const Context context_;

  MonotoneConstraints directions_;
  FixedGradients fixed_;

  // One tree's state.
  GradientSource* source_ = nullptr;
  const TreeContext* scope_ = nullptr;
  CategoricalOverfit chance_;
  ChannelLayout layout_;  // that memory is laid out for
  bool laid_out_ = false;
  ObjectPool<Node> nodes_;
  ObjectPool<Proposals> proposals_;
  int per_part_ = 1;    // splits that a part may propose
  SharedTiles shared_;  // of those that are not alone

  // Memory reused over trees.
  HistogramPool pool_;
  int64_t ordered_rows_ = 0;  // up to this size rows are ordered by bins rather than summed in them
  int64_t direct_rows_ = 0;   // up to this size a node is built rather than subtracted
  // How the channels of a row are one number, for each tile; `rows` of the format are 0 where they
  // are not.
  struct Joint {
    PackedSumFormat format;
    bool in_runs = false;  // for the rows of a run, not for so many of a node
  };
  std::vector<Joint> joint_;
  std::vector<int64_t> most_rows_;  // of one bin of each tile
  std::vector<std::vector<uint32_t>>
      runs_;  // of rows in which counts ride, for each tile: where they end
  std::vector<std::vector<uint32_t>> joint_runs_;  // the same of rows that are added as one number
  struct Scratch {
    Buffer<uint64_t> joint;  // one tile, kept zero
    Buffer<int32_t> sums;    // one tile, kept zero between sparse jobs
    Buffer<int32_t> counts;  // the same, where the layout keeps counts apart
    Buffer<int32_t> lanes;
    Buffer<int32_t> below;   // one tile, kept zero: sums that counts ride on
    Buffer<uint16_t> order;  // of the rows of a small node, for each slot of a tile
    Buffer<uint32_t> start;
    Buffer<uint64_t> words,
        fetched;  // of rows whose words lie elsewhere: of a small node, of a few rows
    mutable Buffer<float> workspace;  // of scores
    Buffer<double> moments;
    CellHistogram cells;
    bool clean = false;
    ScanScratch scan;
    void reserve(const ChannelLayout& layout, size_t most_bins, size_t ordered_rows);
    TileBins bins(bool counts_apart) {
      return {sums.data(), counts_apart ? reinterpret_cast<uint32_t*>(counts.data()) : nullptr};
    }
    void clear() {
      std::memset(sums.data(), 0, sizeof(int32_t) * sums.size());
      std::memset(counts.data(), 0, sizeof(int32_t) * counts.size());
    }
  };
  std::vector<Scratch> scratch_;
  std::vector<Buffer<int32_t>> chunk_;
};

}  // namespace polyleaf
