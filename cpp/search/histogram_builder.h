// Builds the histograms of a batch of nodes (GBDT-MO, Algorithm 1).
//
//   per pair of children: build the smaller one's histogram, subtract it from the parent's
//
// A node's histogram is kept only while its children may need it, and only within a memory budget.
// Nodes whose parent's histogram was not kept and small nodes are built directly. In distributed
// training every node has a histogram, which the ranks add up.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
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
#include "search/sparse_gain_bounds.h"

namespace polyleaf {

// A node while its tree grows; its index is its id.
struct HistogramNode {
  SearchNode at;
  ChannelView view;              // of its quantised gradients; the parent's until its own exist
  int histogram = -1;            // slot of the histogram pool; -1: not kept
  std::vector<int32_t> totals;   // one per lane
  std::vector<uint8_t> allowed;  // features, where they are sampled per node
  TileSplit best;
  std::unique_ptr<SparseGainBounds> gain_bounds;  // of sparse features; nullptr: not kept
  OutputBounds output_bounds;                     // with monotone constraints
  float prune_bound = 0, best_so_far = 0;         // sparse leaves: see ScanNode and ScanScratch
  // Rows on this rank; work depends on these, decisions on `at.count`.
  int64_t n_rows() const { return at.rows.size(); }
};

// Work that makes the histograms of a node and, by subtraction, of its sibling.
struct HistogramJob {
  int32_t build = -1;     // node whose rows are read
  int32_t subtract = -1;  // sibling whose histogram is the parent's minus that; -1: none
  int parent = -1;        // slot of the parent's histogram, which becomes the sibling's
  bool keep = false;      // keep the built histogram for the children
  bool is_small = false;  // rows are sorted, or only bins that they touch scanned and cleared
  size_t candidates = 0;  // index of the candidate splits of `build`; the sibling's follow
  const int16_t* channels = nullptr;          // of the rows of `build`, contiguous
  const int16_t* sibling_channels = nullptr;  // of `subtract`, with sparse features only
  int n_chunks = 1;                           // row chunks that threads build apart
  size_t first_sums = 0;                      // index of the sums of the first tile and thread
  size_t shared = 0;                          // index among the histograms that ranks add up
};

// Return the number of rows up to which a node's histogram is built, not subtracted from the
// parent's. Subtracting moves every bin of a histogram that has left the cache; building reads
// rows. By measurement both cost the same at this number.
inline int64_t count_direct_rows(double bins_per_feature, int lanes) {
  return static_cast<int64_t>(bins_per_feature * 5.0 * lanes / (lanes + 12));
}
// Return the number of rows up to which no histogram is kept: both children are likely to be built.
inline int64_t count_unkept_rows(int64_t direct_rows) {
  return 4 * direct_rows / 3;
}

class HistogramBuilder {
 public:
  HistogramBuilder(const Bins& bins, const Context& context,
                   const ObjectPool<HistogramNode>& nodes);

  // Start a tree. Memory is laid out anew if the layout has changed. sorts_rows: splits of small
  // nodes come from sorted rows.
  void start(const TreeContext& tree, const ChannelLayout& layout, bool has_fixed_gradients,
             bool sorts_rows);
  // Choose how the channels of a row are packed into one number. max_magnitudes: of each lane;
  // nullptr: not known, so that sums are kept apart.
  void set_packed_formats(const int32_t* max_magnitudes);

  // Return the jobs of the root or of pairs of children.
  std::vector<HistogramJob> plan(const std::vector<SearchNode>& batch,
                                 ObjectPool<HistogramNode>& nodes);
  // Build row chunks of large nodes in parallel where there are fewer tiles than work for all
  // threads. Each thread adds up its own. Sums are integers, so chunks do not change them.
  void build_chunks(std::vector<HistogramJob>& jobs);
  // Return how many of n jobs are worked on at once.
  size_t get_batch_size(size_t n_jobs) const {
    return context_.is_distributed() ? shared_.get_batch_size() : n_jobs;
  }
  // Add up the histograms of all ranks.
  void allreduce_histograms(std::span<HistogramJob> jobs);
  std::vector<TileSplit> allgather_splits(const std::vector<TileSplit>& splits) const {
    return shared_.allgather(splits);
  }
  // Return whether this rank scans a tile, given by its index among the tree's tiles.
  bool owns_tile(int tile_index) const {
    return !context_.is_distributed() || shared_.owns(tile_index);
  }

  // Return the words of a small node's rows, contiguous.
  const uint64_t* load_words(const HistogramNode& node, int t, int thread);
  // Build one tile of the job's histogram.
  TileBins build(const HistogramJob& job, int tile_index, int thread);
  // Turn a tile of the parent's histogram into the sibling's.
  TileBins subtract(const HistogramJob& job, int t, const TileBins& bins);

  // Drop the histogram of a node.
  void release(HistogramNode& node);

 private:
  // Packing of the channels of a row into one number, for a tile; max_rows of the format is 0 if
  // they are not packed.
  struct Packing {
    PackedSumFormat format;
    bool in_runs = false;  // the format holds for the rows of a run
  };
  struct Scratch {
    Buffer<uint64_t> packed;           // one tile, kept zero
    Buffer<int32_t> sums;              // one tile, kept zero between small jobs
    Buffer<int32_t> counts;            // likewise, where the layout has no count lane
    Buffer<int32_t> rest;              // one tile, kept zero: sums without their packed counts
    Buffer<uint64_t> words, gathered;  // copied words: of a small node; of a block of rows
    bool is_clear = false;

    void reserve(const ChannelLayout& layout, size_t max_bins);
    TileBins bins(bool has_counts) {
      return {sums.data(), has_counts ? reinterpret_cast<uint32_t*>(counts.data()) : nullptr};
    }
    void clear() {
      std::memset(sums.data(), 0, sizeof(int32_t) * sums.size());
      std::memset(counts.data(), 0, sizeof(int32_t) * counts.size());
    }
  };

  // Sums of the chunks of one tile that one thread has built.
  struct ThreadSums {
    Buffer<int32_t> ints;
    bool is_used = false;

    TileBins bins(const Tile& tile, const ChannelLayout& layout) {
      int32_t* counts = ints.data() + count_bins(tile) * layout.lanes;
      return {ints.data(), layout.count_lane < 0 ? reinterpret_cast<uint32_t*>(counts) : nullptr};
    }
  };

  void set_size_thresholds();
  void find_count_runs();
  bool keeps_histogram(const HistogramNode& node) const;
  bool packs_count(const HistogramJob& job, int t, int64_t n_rows) const;
  int64_t find_run_end(const HistogramJob& job, const std::vector<uint32_t>& ends, int64_t i,
                       int64_t end) const;
  int64_t find_packed_end(const HistogramJob& job, int t, int64_t i, int64_t end) const;
  template <class Add>
  void visit_words(const HistogramJob& job, int t, int64_t begin, int64_t end, int thread,
                   const Add& add);
  void add_rows(const HistogramJob& job, int t, int64_t begin, int64_t end, const TileBins& bins,
                int thread);
  void add_tile(const HistogramJob& job, int tile_index, const TileBins& bins, int thread);

  const Bins& bins_;
  const Context context_;
  const ObjectPool<HistogramNode>& nodes_;
  const TreeContext* tree_ = nullptr;
  bool has_fixed_gradients_ = true;
  ChannelLayout layout_;
  bool is_laid_out_ = false;
  SharedTiles shared_;

  HistogramPool pool_;
  int64_t small_rows_ = 0;   // nodes of up to so many rows are small
  int64_t direct_rows_ = 0;  // nodes of up to so many rows are built rather than subtracted
  std::vector<Packing> packing_;
  std::vector<int64_t> max_bin_rows_;               // rows of the largest bin of each tile
  std::vector<std::vector<uint32_t>> count_runs_;   // ends of row runs, see find_count_runs
  std::vector<std::vector<uint32_t>> packed_runs_;  // ends of row runs of packed channels
  std::vector<Scratch> scratch_;
  std::vector<ThreadSums> thread_sums_;  // [chunked job][tile][thread]
};

}  // namespace polyleaf
