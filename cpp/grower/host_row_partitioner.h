// Row partition in host memory: the ids of a node's rows are contiguous. A split moves them to the
// children and keeps their order (stable), so nothing depends on the block size. Sparse features:
// sparse_column_partition.h.
//
// The 64-bit words of bin codes stay in place and are found through the ids: they are read while
// sums of histograms wait for their stores, where moving them would take more time and memory.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/bin_code.h"
#include "base/context.h"
#include "base/isa.h"
#include "data/bins.h"
#include "data/sample.h"
#include "grower/row_partitioner.h"
#include "grower/sparse_column_partition.h"

namespace polyleaf {

// The split condition on one slot of a tile. Numeric: left when ((code + offset) & mask) <=
// threshold; offset 1 wraps the missing code (the largest) to zero, so missing values need no
// branch.
struct Route {
  int slot = 0;
  int offset = 0;
  int mask = 255;
  int threshold = 0;
  const uint64_t* set = nullptr;  // categorical: 256 bits over the tile's codes
};

constexpr int64_t kGatherWords = 4096;  // words gathered at a time; they fit the L1 cache

struct PartitionKernels {
  // Set bit i % 8 of bits[i / 8] where row i goes left and return how many do. Writes (n + 7) / 8
  // bytes.
  int64_t (*decide)(const uint64_t* words, int64_t n, const Route& route, uint8_t* bits);
  void (*move_ids)(const uint32_t* from, const uint8_t* bits, int64_t n, uint32_t* left,
                   int64_t n_left, uint32_t* right);
  // Same for the implicit row ids first, first + 1, ...
  void (*move_id_range)(uint32_t first, const uint8_t* bits, int64_t n, uint32_t* left,
                        int64_t n_left, uint32_t* right);
  // ranks[i]: number of rows that go left among the first 64 i rows, for 0 <= i <= n / 64.
  void (*rank)(const uint8_t* bits, int64_t n, uint32_t* ranks);
  // Move entries to the side of their rows and renumber their row positions.
  void (*move_entries)(const SparseEntry* from, int64_t n, const uint8_t* bits,
                       const uint32_t* ranks, SparseEntry* left, SparseEntry* right);
  // out[i] = words[ids[i]]
  void (*gather_words)(const uint64_t* words, const uint32_t* ids, int64_t n, uint64_t* out);
};
POLYLEAF_DECLARE_KERNELS(PartitionKernels, partition_kernels)

class HostRowPartitioner final : public RowPartitioner {
 public:
  HostRowPartitioner(const Bins& bins, const Context& context);

  HostRowPartitioner(const HostRowPartitioner&) = delete;
  HostRowPartitioner& operator=(const HostRowPartitioner&) = delete;

  const HostRowPartitioner& host_rows() const override { return *this; }
  RowRange start(const RowSample& sample) override;
  bool has(const RowSample& sample) const override;
  std::vector<RowRange> repartition(const RowSample& sample, int32_t n_leaves) override;
  void partition_rows(std::vector<PartitionRequest>& requests) override;
  void assign_leaf_ids(const std::vector<LeafRows>& leaves, const Tree& tree) override;
  const int32_t* leaf_of_row() override { return leaf_of_row_.data(); }

  // Decide which rows first .. last - 1 of the request (relative to its range) go left: bit i % 8
  // of bits[i / 8] belongs to row first + i. Returns the number of rows that go left.
  int64_t decide(const PartitionRequest& request, int64_t first, int64_t last, uint8_t* bits) const;

  // Words of the rows of a range from row `first` on: word i is words[i], or words[ids[i]] if ids
  // is not null.
  struct Words {
    const uint64_t* words;
    const uint32_t* ids;
  };
  Words locate_words(const RowRange& rows, int tile, int64_t first) const;
  // Return the words of rows first .. first + n - 1 of a range in order, either in place or
  // gathered into `buffer` (n words plus a cache line).
  const uint64_t* words(const RowRange& rows, int tile, int64_t first, int64_t n,
                        uint64_t* buffer) const;
  // Return how many of n words to read at a time: all if they are contiguous, a block if they
  // must be gathered.
  int64_t word_block_size(const RowRange& rows, int64_t n) const {
    return needs_gather(rows) ? std::min(n, kGatherWords) : n;
  }
  // Return whether the words of a range must be gathered before they are contiguous.
  bool needs_gather(const RowRange& rows) const { return ids(rows) != nullptr; }
  // Row ids of a range; nullptr if row i of the range is row begin + i.
  const uint32_t* ids(const RowRange& rows) const {
    return rows.copy == 0 && !is_sample_ ? nullptr : ids_[rows.copy].data() + rows.begin;
  }

  const SparseColumnPartition& sparse_partition() const { return sparse_partition_; }
  // Write the codes of one feature for the rows of a range; 255 is missing.
  void codes(const RowRange& rows, int feature, uint8_t* out) const;

  const Bins& bins() const override { return bins_; }
  const RowSample& sample() const { return sample_; }

 private:
  void set_sample(const RowSample& sample);
  void route_outside_rows(const Tree& tree);
  Route make_route(const PartitionRequest& request, CategorySet& set) const;
  void partition_entries(std::vector<PartitionRequest>& requests);
  int64_t decide_sparse(const PartitionRequest& request, int64_t first, int64_t last,
                        uint8_t* bits) const;

  const Bins& bins_;
  const Context context_;
  RowSample sample_;
  bool is_sample_ = false;      // the root uses a row sample, so copy 0 has its own ids
  std::vector<uint32_t> rows_;  // row ids of the sample
  Buffer<uint32_t> ids_[3];
  Buffer<uint8_t> bits_;  // bits of the requests one after another, each at a multiple of 64 rows
  SparseColumnPartition sparse_partition_;
  Buffer<int32_t> leaf_of_row_;
};

}  // namespace polyleaf
