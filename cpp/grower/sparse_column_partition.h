// Partition of sparse feature entries by node: one list for each node that may be split, in the
// order of sparse_columns.h.
//
// A split creates the children's lists in one of two ways. If few entries leave, the larger child
// keeps its parent's list and marks the rows that have left; the entries of the smaller child are
// collected and sorted. Otherwise entries are moved to both sides. Thus a tree that repeatedly
// splits off a few rows does not move all entries each time.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/context.h"
#include "data/sparse_columns.h"
#include "grower/row_partitioner.h"

namespace polyleaf {

// Entries of one node, possibly with entries of rows that have left it.
struct EntryRange {
  static constexpr uint32_t kRemoved = UINT32_MAX;
  const SparseEntry* begin = nullptr;
  const SparseEntry* end = nullptr;
  // Position of an entry's `row` in the node, or kRemoved; nullptr: `row` itself.
  const uint32_t* positions = nullptr;
  int64_t size() const { return end - begin; }
  uint32_t place(const SparseEntry& cell) const {
    return positions == nullptr ? cell.row : positions[cell.row];
  }
};

class SparseColumnPartition {
 public:
  SparseColumnPartition(const SparseColumns& columns, const Context& context);

  // Create the list of all rows; -1 if there are no sparse features.
  int32_t start();
  // Partition the entries by groups of rows and set each group's list. ids: row ids that
  // the groups are ranges of.
  void group(const uint32_t* ids, int64_t n_rows, std::vector<RowRange>& groups);
  // Create the children's lists of each request if the child may be split. bits[i]: rows of
  // request i that go left; ids[copy]: row ids of the children.
  void partition_rows(std::vector<RowPartitioner::PartitionRequest>& requests,
                      const std::vector<const uint8_t*>& bits, const uint32_t* const* ids);

  // Return the entries of the sparse features `first` .. `last` - 1.
  EntryRange range(int32_t list, int64_t first, int64_t last) const;
  // Return whether the list stores where each feature begins.
  bool is_indexed(int32_t list) const { return list >= 0 && lists_[list]->begin != nullptr; }

 private:
  struct List {
    const SparseEntry* entries = nullptr;
    int64_t n = 0, n_left = 0;       // entries, and those of rows that have not left
    int64_t n_rows = 0;              // number of rows that entries refer to
    bool has_positions = false;      // some rows have left
    const int64_t* begin = nullptr;  // first entry of each feature; nullptr: not stored
    bool in_use = false;
    Buffer<SparseEntry> own;
    Buffer<uint32_t> positions;
    std::vector<int64_t> own_begin;
  };
  // How the entries of one request are partitioned.
  struct Plan;
  struct Piece;

  int32_t acquire_list(int64_t n_entries, int64_t n_rows);
  void release_list(int32_t list) { lists_[list]->in_use = false; }
  void trim(int64_t needed);
  void index(List& list);
  Plan make_plan(RowPartitioner::PartitionRequest& request, const uint8_t* bits,
                 const uint32_t* const* ids) const;
  void remove_child_rows(Plan& plan, int thread);
  void compact(List& list);
  void sort_rows(const Plan& plan, int thread);
  void move_entries(std::vector<Plan>& plans);

  const SparseColumns& columns_;
  const Context context_;
  std::vector<std::unique_ptr<List>> lists_;
  std::vector<Buffer<SparseEntry>> scratch_;  // of each thread
  Buffer<uint32_t> ranks_;                    // prefix counts of rows that go left, one per 64 rows
};

}  // namespace polyleaf
