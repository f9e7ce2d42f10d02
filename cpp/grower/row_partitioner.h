// Row partitioner interface: the rows of each node as ranges that a split divides stably in two.
//
// Rows are in host memory (host_row_partitioner.h) or on a GPU (device/row_partitioner.h). The
// grower calls the interface only; a search asks it for the rows in the memory that it reads.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "base/bin_code.h"
#include "data/bins.h"
#include "data/sample.h"
#include "grower/tree.h"

namespace polyleaf {

// The rows of one node: positions [begin, end) of one copy of the row ids, and the list of their
// sparse entries (sparse_column_partition.h; -1: none).
struct RowRange {
  int64_t begin = 0, end = 0;
  int copy = 0;  // 0: the root; alternating 1 and 2 below it
  int32_t entry_list = -1;
  int64_t size() const { return end - begin; }
};

class HostRowPartitioner;
class DeviceRowPartitioner;

class RowPartitioner {
 public:
  virtual ~RowPartitioner() = default;

  // Return the rows in host memory, or on a GPU. A partitioner overrides one of the two; the other
  // throws std::invalid_argument.
  virtual const HostRowPartitioner& host_rows() const {
    throw std::invalid_argument(
        "The search reads rows in host memory, but the rows of this grower are on a GPU.");
  }
  virtual const DeviceRowPartitioner& device_rows() const {
    throw std::invalid_argument("The rows of this grower are in host memory, not on a GPU.");
  }

  virtual const Bins& bins() const = 0;

  // Set the root's rows to the sample.
  virtual RowRange start(const RowSample& sample) = 0;

  // Return whether the tree was started with this sample.
  virtual bool has(const RowSample& sample) const = 0;
  // Partition another sample by the leaf ids that `assign_leaf_ids` has written, ascending
  // within a leaf; return one range per leaf.
  virtual std::vector<RowRange> repartition(const RowSample& sample, int32_t n_leaves) = 0;

  // A node, its split, and the resulting ranges `left` and `right`, which `partition_rows` sets.
  struct PartitionRequest {
    RowRange rows;
    int feature = -1;
    int threshold = -1;    // last code that goes left; -1: categorical, see `set`
    CategorySet set = {};  // codes that go left, in the model's encoding
    bool missing_left = false;
    // Whether a child may be split further. If neither may, only ids are moved: sparse entries are
    // not needed.
    bool left_is_splittable = true, right_is_splittable = true;
    int64_t n_left = 0;  // rows that go left, over all ranks
    RowRange left, right;
  };
  virtual void partition_rows(std::vector<PartitionRequest>& requests) = 0;

  // Rows of one leaf.
  struct LeafRows {
    int32_t leaf;
    RowRange rows;
  };
  // Write the leaf id of every row; rows outside the sample are routed through the tree.
  virtual void assign_leaf_ids(const std::vector<LeafRows>& leaves, const Tree& tree) = 0;
  // Leaf ids in host memory, one for each row of the bins.
  virtual const int32_t* leaf_of_row() = 0;
};

}  // namespace polyleaf
