// Row partition in GPU memory: the ids of a node's rows are contiguous and keep their order. Words
// of bin codes stay in place.
//
// The search counts rows exactly, so the sizes of children are known before rows are moved and
// nothing is read back.
#pragma once
#include <cstdint>
#include <vector>

#include "device/bins.h"
#include "grower/row_partitioner.h"

namespace polyleaf {

class DeviceRowPartitioner final : public RowPartitioner {
 public:
  explicit DeviceRowPartitioner(const DeviceBins& bins);

  const DeviceRowPartitioner& device_rows() const override { return *this; }
  const Bins& bins() const override { return bins_.host(); }
  RowRange start(const RowSample& sample) override;
  bool has(const RowSample& sample) const override;
  // The sample is drawn and grouped on the host.
  std::vector<RowRange> repartition(const RowSample& sample, int32_t n_leaves) override;
  void partition_rows(std::vector<PartitionRequest>& requests) override;
  void assign_leaf_ids(const std::vector<LeafRows>& leaves, const Tree& tree) override;
  // Copied to host memory on each call.
  const int32_t* leaf_of_row() override;

  const DeviceBins& device_bins() const { return bins_; }
  // Leaf ids of the last tree in GPU memory.
  const int32_t* leaves() const { return leaf_of_row_.data(); }
  // Row ids of a copy; nullptr if position i is row i.
  uint32_t* ids(int copy) const { return copy == 0 && !is_listed_ ? nullptr : ids_[copy].data(); }

 private:
  on_device::DevicePartitionRequest at(const PartitionRequest& request) const;
  on_device::DeviceRowIds row_ids() const;
  void route(const Tree& tree);
  void set_sample(const RowSample& sample);

  const DeviceBins& bins_;
  std::vector<uint32_t> rows_;  // rows of the sample, if it is not all rows
  bool takes_all_ = true;
  bool is_listed_ = false;  // whether the root's copy is an explicit list of ids
  DeviceBuffer<uint32_t> ids_[3];
  DeviceBuffer<on_device::DevicePartitionRequest> requests_;
  DeviceBuffer<on_device::RowPiece> pieces_;
  DeviceBuffer<int32_t> n_left_;
  DeviceBuffer<on_device::LeafPiece> leaf_pieces_;
  DeviceBuffer<on_device::TreeNode> nodes_;
  DeviceBuffer<uint64_t> sets_;
  DeviceBuffer<int32_t> leaf_of_row_;
  std::vector<int32_t> read_;
};

// Return a tree's nodes as kernels read them, and the words of its category sets.
std::vector<on_device::TreeNode> tree_nodes(const Tree& tree);
std::vector<uint64_t> tree_sets(const Tree& tree);

}  // namespace polyleaf
