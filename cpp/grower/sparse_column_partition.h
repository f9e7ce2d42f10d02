// Cells of sparse features by node: a list for each node that may be split, in the order of
// cells.h.
//
// A split makes the children's lists in one of two plans. Where few cells leave, the larger child
// keeps its parent's list as it is, and is told which rows have left; the others' cells are sorted
// anew from their rows. So a tree that parts with a few rows at a time does not move all cells each
// time. Otherwise cells are moved to both sides.
//
// Owns: those lists, reused over trees. Must not know: derivatives, how splits are found, words.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/context.h"
#include "data/sparse_columns.h"
#include "grower/row_partitioner.h"

namespace polyleaf {

// Cells of one node, and maybe of rows that have left it.
struct CellRange {
  static constexpr uint32_t kRemoved = UINT32_MAX;
  const Cell* begin = nullptr;
  const Cell* end = nullptr;
  const uint32_t* positions =
      nullptr;  // of a cell's `row` among the node's, or kRemoved; nullptr: `row` itself
  int64_t size() const { return end - begin; }
  uint32_t place(const Cell& cell) const {
    return positions == nullptr ? cell.row : positions[cell.row];
  }
};

class SparseColumnPartition {
 public:
  SparseColumnPartition(const Cells& cells, const Workers& workers);

  // The list of all rows; -1 where there are no cells.
  int32_t start();
  // Rows grouped anew: each group's list is written to it. ids: the rows that groups are ranges of.
  void group(const uint32_t* ids, int64_t n_rows, std::vector<RowRange>& groups);
  // Gives the children of each division their lists, where they go on. bits[i]: which rows of
  // division i go left; ids[copy]: of the rows of the children.
  void partition_rows(std::vector<RowPartitioner::PartitionRequest>& requests,
                      const std::vector<const uint8_t*>& bits, const uint32_t* const* ids);

  // Cells of the features numbered `first` .. `last` - 1.
  CellRange range(int32_t list, int64_t first, int64_t last) const;
  // Whether a range of one feature is found at once: in lists of many cells a feature.
  bool is_indexed(int32_t list) const { return list >= 0 && lists_[list]->begin != nullptr; }

 private:
  struct List {
    const Cell* cells = nullptr;
    int64_t n = 0, n_left = 0;       // cells, and those of rows that have not left
    int64_t n_rows = 0;              // that cells name
    bool has_positions = false;      // rows have left
    const int64_t* begin = nullptr;  // of each feature; nullptr: not kept
    bool in_use = false;
    Buffer<Cell> own;
    Buffer<uint32_t> positions;
    std::vector<int64_t> own_begin;
  };
  // A division that moves cells, or a list that few rows leave.
  struct Plan;
  struct Piece;

  int32_t acquire_list(int64_t n_cells, int64_t n_rows);
  void release_list(int32_t list) { lists_[list]->in_use = false; }
  void trim(int64_t needed);
  void index(List& list);
  Plan make_plan(RowPartitioner::PartitionRequest& division, const uint8_t* bits,
                 const uint32_t* const* ids) const;
  void remove_child_rows(Plan& plan, int thread);
  void compact(List& list);
  void sort_rows(const Plan& plan, int thread);
  void move_cells(std::vector<Plan>& plans);

  const Cells& cells_;
  const Workers workers_;
  std::vector<std::unique_ptr<List>> lists_;
  std::vector<Buffer<Cell>> scratch_;  // of each thread
  Buffer<uint32_t> ranks_;             // rows that go left before each 64 of them
};

}  // namespace polyleaf
