// Which rows each node has, as the grower asks for it: ranges that a split parts in two, in their
// order.
//
// Where rows lie is not known here: in memory of this machine (partition.h), or on a device
// (device/rows.h). A search reads rows where they lie, and is asked only about ranges of rows of
// its own kind.
#pragma once
#include <cstdint>
#include <vector>

#include "base/bin_code.h"
#include "data/bins.h"
#include "data/sample.h"
#include "grower/tree.h"

namespace polyleaf {

// The rows of one node: places [begin, end) of one copy, and the list of their cells of sparse
// features (sparse_columns.h; -1: there are none, or they are not read).
struct RowRange {
  int64_t begin = 0, end = 0;
  int copy = 0;  // 0: the root's; 1 or 2 below it, in turn
  int32_t cells = -1;
  int words = 0;  // the copy that holds their words, 1 or 2; 0: none does, ids tell where they are
  int64_t size() const { return end - begin; }
};

class RowPartitioner {
 public:
  virtual ~RowPartitioner() = default;

  virtual const Bins& bins() const = 0;

  // The root's rows: the sample. Only the words of `tiles` will be asked for.
  virtual RowRange start(const RowSample& sample, const std::vector<int>& tiles) = 0;

  // Whether the tree's rows are those of `sample`.
  virtual bool has(const RowSample& sample) const = 0;
  // The rows of another sample, grouped by the leaves that `number` has written, ascending in each
  // group; a range per leaf.
  virtual std::vector<RowRange> repartition(const RowSample& sample, int32_t n_leaves) = 0;

  // One node and what parts its rows; `divide` finds `left` and `right`.
  struct PartitionRequest {
    RowRange rows;
    int feature = -1;
    int threshold = -1;    // last code that goes left; -1: `set` tells
    CategorySet set = {};  // codes that go left, as the model sees them
    bool missing_left = false;
    // Whether a child may be split further. Where neither may, only ids move: their words and cells
    // are never read.
    bool left_is_splittable = true, right_is_splittable = true;
    int64_t n_left = 0;  // rows that go left, wherever they lie
    RowRange left, right;
  };
  virtual void partition_rows(std::vector<PartitionRequest>& requests) = 0;

  // Rows that are in one leaf.
  struct LeafRows {
    int32_t leaf;
    RowRange rows;
  };
  // Writes the leaf of every row; rows outside the sample walk down the tree.
  virtual void assign_leaf_ids(const std::vector<LeafRows>& leaves, const Tree& tree) = 0;
  // Those leaves, one for each row of the bins, in memory of this machine.
  virtual const int32_t* leaf_of_row() = 0;
};

}  // namespace polyleaf
