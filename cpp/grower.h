// The grower. Read this file first.
//
// Vocabulary (docs/design.md section 1): *channels* are small integers per row; a *histogram* sums them per
// bin without knowing what they mean; a *score* reads summed channels and says how good a split is; the
// *schedule* says which frontier nodes are split next; the *tree* holds structure and numbered leaves; what a
// leaf pays out is fitted afterwards (leaves/) from unquantised derivatives.
//
// One tree, as GBDT-MO's Algorithm 5 with batches:
//
//   evaluate(root)
//   while batch = schedule.next():
//     children = apply_splits(batch)        # stable partition: a node's words and row ids stay contiguous
//     evaluate(children)                    # per pair: build the smaller child, subtract for the larger,
//     scan both
//   number the leaves
//
// A node's histogram is kept only while children may be made from it, and only within a memory budget; nodes
// without a kept parent histogram, and small nodes, are built directly.
//
// Owns: the growth of one tree and the memory it needs, reused over trees. Must not know: objectives, leaf
// values.
#pragma once
#include <cstdint>
#include <vector>

#include "bins.h"
#include "buffer.h"
#include "channels.h"
#include "histogram.h"
#include "partition.h"
#include "schedule.h"
#include "split.h"
#include "tree.h"

namespace polyleaf {

struct GrowConfig {
  SplitConfig split;
  int32_t max_leaves = 31;
  int32_t max_depth = -1;  // -1: no limit
  bool level_wise = false;
  double colsample_bynode = 1.0;
  uint64_t seed = 0;
  size_t histogram_memory = size_t{1} << 30;  // bytes of kept histograms
};

class Grower {
 public:
  Grower(const Bins& bins, int n_threads);

  Grower(const Grower&) = delete;
  Grower& operator=(const Grower&) = delete;

  // Grows one tree on the channels' sample. `features`: n_features flags, or nullptr for all.
  Tree grow(const Channels& channels, const GrowConfig& config, const uint8_t* features);

  const Bins& bins() const { return bins_; }

  // Leaf id of every row, rows outside the sample included; valid after grow().
  const int32_t* leaf_of_row() const { return leaf_of_row_.data(); }

 private:
  struct Node {
    int64_t begin = 0, end = 0;  // rows, in the order of the partition
    int buffer = 0;              // which copy of words and ids holds them: 0 root, 1 or 2
    int depth = 0;
    int histogram = -1;  // slot of the pool, -1: not kept
    bool has_words = true;
    std::vector<int32_t> totals;   // lanes
    std::vector<uint8_t> allowed;  // features this node may use, where they are sampled per node
    TileSplit split;
    double gain = 0;
    int64_t rows() const { return end - begin; }
  };

  // How the histograms of up to two sibling nodes come about.
  struct Job {
    int32_t build = -1;                 // node whose rows are read
    int32_t subtract = -1;              // its sibling, whose histogram is the parent's minus that; -1: none
    int parent = -1;                    // pool slot of the parent, which becomes the sibling's
    bool keep = false;                  // keep the built histogram for children
    bool sparse = false;                // few rows: only touched bins are looked at and cleared
    bool by_rows = false;               // few rows for so many outputs: no histogram, rows in order of bins
    const int16_t* channels = nullptr;  // of the rows of `build`, contiguous
    int chunks = 1;                     // row chunks built apart and added up
    size_t first_chunk = 0;             // where they lie in chunk_
  };

  void start(const Channels& channels, const GrowConfig& config, const uint8_t* features);
  void lay_out_memory();
  void make_root();
  void evaluate(const std::vector<int32_t>& nodes);
  std::vector<Job> plan(const std::vector<int32_t>& nodes);
  void gather_channels(std::vector<Job>& jobs);
  void build_chunks(std::vector<Job>& jobs);
  void run_job(const Job& job, int job_index, int tile, int thread, std::vector<TileSplit>& splits);
  void scan_by_rows(const Job& job, int tile, int thread, TileSplit& out);
  void scan(int32_t node, int tile, const TileHistogram& histogram, int thread, TileSplit& out);
  void choose(int32_t node, const TileSplit* splits, size_t n);
  std::vector<int32_t> apply_splits(const std::vector<int32_t>& batch);
  void finish();
  void route_outside_rows();

  bool has_categories(int tile) const;
  bool can_split(const Node& node) const;
  bool keeps_histogram(const Node& node) const;
  int take_histogram();
  void drop_histogram(Node& node);
  ScanNode scan_node(const Node& node) const;
  void allowed_features(int32_t node, std::vector<uint8_t>& allowed) const;
  Route route_of(const TileSplit& split) const;
  const uint64_t* words(int buffer, int tile) const;
  uint64_t* words(int buffer, int tile);

  const Bins& bins_;
  const int n_threads_;

  // One tree's state.
  const Channels* channels_ = nullptr;
  const GrowConfig* config_ = nullptr;
  ChannelLayout layout_;
  Tree tree_;
  std::vector<Node> nodes_;
  std::vector<uint8_t> features_;
  std::vector<int> active_tiles_;
  Schedule schedule_{false, 1, 0};

  // Memory reused over trees.
  std::vector<Buffer<uint64_t>> words_[3];  // per tile; [0] only for row samples
  Buffer<uint32_t> ids_[3];
  bool root_is_sample_ = false;
  Buffer<uint8_t> bits_;
  Buffer<int16_t> gathered_;
  Buffer<int32_t> leaf_of_row_;
  std::vector<Buffer<int32_t>> pool_;
  std::vector<int> free_;
  size_t histogram_ints_ = 0;  // of one kept histogram
  int64_t ordered_rows_ = 0;   // up to this size rows are ordered by bins rather than summed in them
  int64_t direct_rows_ = 0;    // up to this size a node is built rather than subtracted
  std::vector<size_t> tile_sums_, tile_counts_;  // where a tile's sums and counts start in it
  struct Scratch {
    Buffer<int32_t> sums;    // one tile, kept zero between sparse jobs
    Buffer<int32_t> counts;  // the same, where the layout keeps counts apart
    Buffer<int32_t> lanes;
    Buffer<uint16_t> order;  // of the rows of a small node, for each slot of a tile
    Buffer<uint32_t> start;
    bool clean = false;
    ScanScratch scan;
  };
  std::vector<Scratch> scratch_;
  std::vector<Buffer<int32_t>> chunk_;
};

}  // namespace polyleaf
