// Bins of sparse features in distributed training. Features are assigned to ranks. Each rank counts
// the entries of its own rows by feature, and is told which features have enough rows for a split.
// It sums the entries of these by feature and code, sends these bins to the feature's rank, and
// scans the bins of its own features, of all ranks' rows (sparse_scan.h).
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/collective.h"
#include "base/context.h"
#include "data/bins.h"
#include "grower/sparse_column_partition.h"
#include "quantised_gradients/quantised_gradients.h"

namespace polyleaf {

// Bins of one node that a rank has sent: for each bin its key (SparseEntry), the used lanes of its
// sums, and the number of rows unless a lane holds it. Keys ascend.
class SparseBinList {
 public:
  SparseBinList(std::span<const int32_t> ints, const ChannelLayout& layout)
      : ints_(ints.data()),
        size_(static_cast<int64_t>(ints.size()) / count_ints(layout)),
        n_ints_(count_ints(layout)) {}
  // Return the size of a bin.
  static int64_t count_ints(const ChannelLayout& layout) {
    return 1 + layout.n_used() + (layout.count_lane < 0);
  }

  int64_t size() const { return size_; }
  uint32_t key(int64_t i) const { return static_cast<uint32_t>(ints_[i * n_ints_]); }
  const int32_t* sums(int64_t i) const { return ints_ + i * n_ints_ + 1; }
  uint32_t count(int64_t i) const { return static_cast<uint32_t>(ints_[(i + 1) * n_ints_ - 1]); }
  // Return the first bin of a feature, or of one after it.
  int64_t find(int64_t number) const;

 private:
  const int32_t* ints_;
  int64_t size_, n_ints_;
};

class SharedSparseBins {
 public:
  SharedSparseBins(const Bins& bins, const Context& context);

  // A node of which bins are sent.
  struct Node {
    const ChannelLayout* layout;
    int32_t list;             // of entries
    const int16_t* channels;  // of its rows
    const uint8_t* allowed;   // flags of all features
  };
  struct FeatureRange {
    int64_t first = 0, last = 0;  // indices among the sparse features
  };

  // Assign the features of a tree.
  void start(const ChannelLayout& layout);
  // Find the features that have enough rows in these nodes, and batches of which bins are sent at
  // once; return their number. The nodes and lists must not change until all batches are sent.
  int plan(const SparseColumnPartition& lists, std::span<const Node> nodes, int min_rows);
  // Send the bins of a batch.
  void exchange(int batch);
  // Return the features of this rank in a batch.
  FeatureRange features(int batch) const { return get_range(context_.communicator->rank(), batch); }
  // Return the bins of this rank's features in a node, as each rank has sent them.
  std::span<const SparseBinList> bins(size_t node) const {
    const size_t n_ranks = blocks_.size();
    return std::span(received_).subspan(node * n_ranks, n_ranks);
  }

 private:
  struct Scratch {
    Buffer<int32_t> sums, totals;
    Buffer<uint32_t> counts;  // zero between features
    Buffer<SparseEntry> present;
    void reserve(const ChannelLayout& layout);
  };
  // Number of rows with an entry of a feature.
  struct FeatureCount {
    int32_t number, n_rows;
  };

  FeatureRange get_range(int rank, int batch) const;
  Lists<FeatureCount> count_rows(int rank) const;
  void choose_features(const std::vector<Lists<FeatureCount>>& counts, int min_rows);
  int32_t* pack(const Node& node, const EntryRange& entries, const FeatureCount* counted,
                const int32_t* is_chosen, int32_t* out, Scratch& scratch) const;
  void find_received_bins();

  const Bins& bins_;
  const Context context_;
  std::vector<int64_t> edges_;  // first feature of each rank, and the end of the last
  std::vector<Scratch> scratch_;
  // What is sent for some nodes.
  const SparseColumnPartition* lists_ = nullptr;
  std::vector<Node> nodes_;
  std::vector<Lists<FeatureCount>> counts_;  // [rank][node], of this rank's rows
  // [rank][node], flags of these features; then the first feature of each batch.
  std::vector<Lists<int32_t>> chosen_;
  // Bins that other ranks may still read, and those that are packed next.
  std::shared_ptr<Buffer<int32_t>> sent_, buffer_;
  std::vector<Communicator::Block> blocks_;
  std::vector<SparseBinList> received_;  // [node][rank]
};

}  // namespace polyleaf
