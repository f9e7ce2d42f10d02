// Rows by node on a device: ids of the rows of a node lie next to each other, in their order. Words
// stay where they are.
//
// Who goes left is known in numbers before it is known in rows, since the search counts exactly: so
// nothing is read back when nodes are split.
//
// Owns: ids, and the leaf of every row. Must not know: derivatives, how splits are found.
#pragma once
#include <cstdint>
#include <vector>

#include "device/bins.h"
#include "grower/row_partitioner.h"

namespace polyleaf {

class DeviceRowPartitioner final : public RowPartitioner {
 public:
  explicit DeviceRowPartitioner(const DeviceBins& bins);

  const Bins& bins() const override { return bins_.host(); }
  RowRange start(const RowSample& sample, const std::vector<int>& tiles) override;
  bool has(const RowSample& sample) const override;
  // Rows are grouped on this machine, where they are drawn.
  std::vector<RowRange> repartition(const RowSample& sample, int32_t n_leaves) override;
  void partition_rows(std::vector<PartitionRequest>& requests) override;
  void assign_leaf_ids(const std::vector<LeafRows>& leaves, const Tree& tree) override;
  // A copy, made when it is asked for.
  const int32_t* leaf_of_row() override;

  const DeviceBins& on_device() const { return bins_; }
  // Of each row of the last tree, on the device.
  const int32_t* leaves() const { return leaf_of_row_.data(); }
  // Of a copy; nullptr where row i is place i.
  uint32_t* ids(int copy) const { return copy == 0 && !is_listed_ ? nullptr : ids_[copy].data(); }

 private:
  on_device::DivisionAt at(const PartitionRequest& division) const;
  on_device::RowsAt rows_at() const;
  void route(const Tree& tree);
  void take(const RowSample& sample);

  const DeviceBins& bins_;
  std::vector<uint32_t> rows_;  // of the sample, where it is not all rows
  bool takes_all_ = true;
  bool is_listed_ = false;  // whether the root's copy is ids, in another order than places
  DeviceBuffer<uint32_t> ids_[3];
  DeviceBuffer<on_device::DivisionAt> divisions_;
  DeviceBuffer<on_device::RowPiece> pieces_;
  DeviceBuffer<int32_t> n_left_;
  DeviceBuffer<on_device::LeafPiece> leaf_pieces_;
  DeviceBuffer<on_device::TreeNode> nodes_;
  DeviceBuffer<uint64_t> sets_;
  DeviceBuffer<int32_t> leaf_of_row_;
  std::vector<int32_t> read_;
};

// A tree's nodes as kernels read them, and the words of its category sets.
std::vector<on_device::TreeNode> tree_nodes(const Tree& tree);
std::vector<uint64_t> tree_sets(const Tree& tree);

}  // namespace polyleaf
