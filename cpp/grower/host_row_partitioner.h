// Rows by node: ids of a node's rows lie next to each other. A split moves them to the children and
// keeps their order (stable), so nothing depends on how rows are cut into blocks. Cells of sparse
// features: sparse_partition.h.
//
// Words stay where they are while a node has many of all rows: they are found by the ids, and most
// of what a line of memory holds is wanted. Of a node of fewer rows they are fetched once, tile by
// tile, and move with its rows from there on, unless they are to stay (bins.h).
//
// Owns: the copies of words and ids, reused over trees, and the leaf of every row. Must not know:
// derivatives, how splits are found.
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

// Where one code of a tile's slot goes. Numeric: left when ((code + offset) & mask) <= threshold,
// which with offset 1 wraps the missing code (the largest) to zero: no branch for missing values.
struct Route {
  int slot = 0;
  int offset = 0;
  int mask = 255;
  int threshold = 0;
  const uint64_t* set = nullptr;  // categorical: 256 bits over the tile's codes
};

constexpr int64_t kGatherWords =
    4096;  // words that are fetched at a time: they stay in the first cache

struct PartitionKernels {
  // bits[i / 8] bit i % 8: row i goes left. Returns how many do. Writes (n + 7) / 8 bytes.
  int64_t (*decide)(const uint64_t* words, int64_t n, const Route& route, uint8_t* bits);
  void (*move_words)(const uint64_t* from, const uint8_t* bits, int64_t n, uint64_t* left,
                     int64_t n_left, uint64_t* right);
  void (*move_ids)(const uint32_t* from, const uint8_t* bits, int64_t n, uint32_t* left,
                   int64_t n_left, uint32_t* right);
  // The same for row ids first, first + 1, ... that were never written down.
  void (*move_id_range)(uint32_t first, const uint8_t* bits, int64_t n, uint32_t* left,
                        int64_t n_left, uint32_t* right);
  // ranks[i]: how many of the first 64 i rows go left; for 0 <= i <= n / 64.
  void (*rank)(const uint8_t* bits, int64_t n, uint32_t* ranks);
  // Cells to the side of their rows, whose places are counted anew there.
  void (*move_entries)(const Cell* from, int64_t n, const uint8_t* bits, const uint32_t* ranks,
                       Cell* left, Cell* right);
  // out[i] = words[ids[i]]
  void (*gather_words)(const uint64_t* words, const uint32_t* ids, int64_t n, uint64_t* out);
};
POLYLEAF_DECLARE_KERNELS(PartitionKernels, partition_kernels)

class HostRowPartitioner final : public RowPartitioner {
 public:
  HostRowPartitioner(const Bins& bins, const Workers& workers);

  HostRowPartitioner(const HostRowPartitioner&) = delete;
  HostRowPartitioner& operator=(const HostRowPartitioner&) = delete;

  RowRange start(const RowSample& sample, const std::vector<int>& tiles) override;
  bool has(const RowSample& sample) const override;
  std::vector<RowRange> repartition(const RowSample& sample, int32_t n_leaves) override;
  void partition_rows(std::vector<PartitionRequest>& requests) override;
  void assign_leaf_ids(const std::vector<LeafRows>& leaves, const Tree& tree) override;
  const int32_t* leaf_of_row() override { return leaf_of_row_.data(); }

  // Which of the request's rows first .. last - 1 (counted from the first of its range) go left:
  // bit i % 8 of bits[i / 8] is that of row first + i. Returns how many do.
  int64_t decide(const PartitionRequest& request, int64_t first, int64_t last, uint8_t* bits) const;

  // Words of the rows of a range from row `first` on: word i is words[i], or words[ids[i]] where
  // there are ids.
  struct Words {
    const uint64_t* words;
    const uint32_t* ids;
  };
  Words locate_words(const RowRange& rows, int tile, int64_t first) const;
  // Words of rows first .. first + n - 1 of a range, in their order: where they lie, or fetched
  // into `buffer` (n words and a cache line).
  const uint64_t* words(const RowRange& rows, int tile, int64_t first, int64_t n,
                        uint64_t* buffer) const;
  // How many of them are best asked for at once, where there are n: all that lie there, few that
  // are fetched.
  int64_t word_block_size(const RowRange& rows, int64_t n) const {
    return needs_gather(rows) ? std::min(n, kGatherWords) : n;
  }
  // Whether words of a range must be fetched before they lie next to each other.
  bool needs_gather(const RowRange& rows) const { return rows.words == 0 && ids(rows) != nullptr; }
  // Row ids of a range; nullptr where row i of the range is row begin + i.
  const uint32_t* ids(const RowRange& rows) const {
    return rows.copy == 0 && !is_sample_ ? nullptr : ids_[rows.copy].data() + rows.begin;
  }

  const SparseColumnPartition& sparse_partition() const { return sparse_partition_; }
  // One feature's codes of the rows of a range, 255 where missing.
  void codes(const RowRange& rows, int feature, uint8_t* out) const;

  const Bins& bins() const override { return bins_; }
  const RowSample& sample() const { return sample_; }
  const std::vector<int>& tiles() const { return tiles_; }

 private:
  void set_sample(const RowSample& sample);
  bool is_small_node(int64_t n_rows) const;
  void fetch_words(const std::vector<RowRange*>& ranges);
  bool moves_in_place(const std::vector<PartitionRequest>& requests) const;
  void move_in_place(const std::vector<PartitionRequest>& requests);
  uint64_t* words_at(int copy, int tile, int64_t row) {
    return words_[copy - 1][tile].data() + row;
  }
  void route_outside_rows(const Tree& tree);
  Route make_route(const PartitionRequest& request, CategorySet& set) const;
  void partition_cells(std::vector<PartitionRequest>& requests);
  int64_t decide_sparse(const PartitionRequest& request, int64_t first, int64_t last,
                        uint8_t* bits) const;

  const Bins& bins_;
  const Workers workers_;
  RowSample sample_;
  bool is_sample_ = false;      // copy 0 has words and ids of its own
  std::vector<uint32_t> rows_;  // of the sample
  std::vector<int> tiles_;
  std::vector<Buffer<uint64_t>> words_[2];     // copies 1 and 2, per tile; at the places of ids
  std::vector<Buffer<uint64_t>> right_words_;  // of each thread, for what goes right
  Buffer<uint32_t> ids_[3];
  Buffer<uint8_t>
      bits_;  // of the requests, one after another; each begins at a multiple of 64 rows
  SparseColumnPartition sparse_partition_;
  Buffer<int32_t> leaf_of_row_;
};

}  // namespace polyleaf
