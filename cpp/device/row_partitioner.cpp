#include "device/row_partitioner.h"

#include <algorithm>
#include <stdexcept>

namespace polyleaf {
namespace {

constexpr int64_t kMoveBlock = 4096;    // rows moved by one block
constexpr int64_t kNumberBlock = 8192;  // rows whose leaf ids one block writes

}  // namespace

DeviceRowPartitioner::DeviceRowPartitioner(const DeviceBins& bins)
    : bins_(bins),
      ids_{DeviceBuffer<uint32_t>(bins.device()), DeviceBuffer<uint32_t>(bins.device()),
           DeviceBuffer<uint32_t>(bins.device())},
      requests_(bins.device()),
      pieces_(bins.device()),
      n_left_(bins.device()),
      leaf_pieces_(bins.device()),
      nodes_(bins.device()),
      sets_(bins.device()),
      leaf_of_row_(bins.device()) {
  leaf_of_row_.reserve(bins.host().n_rows());
}

RowRange DeviceRowPartitioner::start(const RowSample& sample) {
  set_sample(sample);
  is_listed_ = !takes_all_;
  if (is_listed_) ids_[0].write(rows_);
  return {0, sample.n_used(), 0};
}

void DeviceRowPartitioner::set_sample(const RowSample& sample) {
  takes_all_ = sample.rows == nullptr;
  if (!takes_all_) rows_.assign(sample.rows, sample.rows + sample.n_rows);
  for (int copy : {1, 2}) ids_[copy].reserve(sample.n_used());
}

bool DeviceRowPartitioner::has(const RowSample& sample) const {
  if (sample.rows == nullptr || takes_all_) return (sample.rows == nullptr) == takes_all_;
  return std::equal(sample.rows, sample.rows + sample.n_rows, rows_.begin(), rows_.end());
}

std::vector<RowRange> DeviceRowPartitioner::repartition(const RowSample& sample, int32_t n_leaves) {
  set_sample(sample);
  is_listed_ = true;
  std::vector<uint32_t> ids(sample.n_used());
  const std::vector<int64_t> begin =
      group_rows_by_leaf(sample, leaf_of_row(), n_leaves, ids.data());
  ids_[0].write(ids);
  std::vector<RowRange> ranges;
  for (int32_t leaf = 0; leaf < n_leaves; ++leaf)
    ranges.push_back({begin[leaf], begin[leaf + 1], 0});
  return ranges;
}

on_device::DevicePartitionRequest DeviceRowPartitioner::at(const PartitionRequest& d) const {
  const Bins& bins = bins_.host();
  const int tile = bins.tile_index(d.feature);
  on_device::DevicePartitionRequest at{};
  at.begin = d.rows.begin;
  at.end = d.rows.end;
  at.left_to = d.left.begin;
  at.right_to = d.right.begin;
  at.from = d.rows.copy;
  at.to = d.left.copy;
  at.tile = tile;
  at.shift = 8 * bins.slot_index(d.feature);
  at.missing = bins.tile(tile).missing();
  at.threshold = d.threshold;
  at.missing_left = d.missing_left;
  at.is_set = d.threshold < 0;
  std::copy(d.set.begin(), d.set.end(), at.set);
  return at;
}

on_device::DeviceRowIds DeviceRowPartitioner::row_ids() const {
  return {bins_.words(), bins_.host().n_rows(), {ids(0), ids(1), ids(2)}};
}

void DeviceRowPartitioner::partition_rows(std::vector<PartitionRequest>& requests) {
  std::vector<on_device::DevicePartitionRequest> at;
  std::vector<on_device::RowPiece> pieces;
  for (PartitionRequest& d : requests) {
    const int to = d.rows.copy == 1 ? 2 : 1;
    const int64_t middle = d.rows.begin + d.n_left;
    d.left = {d.rows.begin, middle, to};
    d.right = {middle, d.rows.end, to};
    at.push_back(this->at(d));
    at.back().first_piece = static_cast<int32_t>(pieces.size());
    for (int64_t b = d.rows.begin; b < d.rows.end; b += kMoveBlock)
      pieces.push_back(
          {b, std::min(b + kMoveBlock, d.rows.end), static_cast<int32_t>(at.size()) - 1});
    at.back().last_piece = static_cast<int32_t>(pieces.size());
  }
  const Device& device = *bins_.device();
  requests_.write(at);
  pieces_.write(pieces);
  n_left_.reserve(pieces.size());
  const Device::Grid of_pieces{static_cast<int64_t>(pieces.size())};
  device.launch(of_pieces,
                on_device::CountLeft{row_ids(), requests_.data(), pieces_.data(), n_left_.data()});
  device.launch({static_cast<int64_t>(at.size())},
                on_device::PlacePieces{requests_.data(), n_left_.data()});
  device.launch(of_pieces,
                on_device::MoveRows{row_ids(), requests_.data(), pieces_.data(), n_left_.data()});
}

// The leaf of rows outside the sample is unknown, so all rows are routed through the tree.
void DeviceRowPartitioner::assign_leaf_ids(const std::vector<LeafRows>& leaves, const Tree& tree) {
  if (is_listed_) return route(tree);
  std::vector<on_device::LeafPiece> pieces;
  for (const auto& [leaf, rows] : leaves)
    for (int64_t b = rows.begin; b < rows.end; b += kNumberBlock)
      pieces.push_back({b, std::min(b + kNumberBlock, rows.end), rows.copy, leaf});
  leaf_pieces_.write(pieces);
  bins_.device()->launch(
      {static_cast<int64_t>(pieces.size())},
      on_device::AssignLeafIds{{ids(0), ids(1), ids(2)}, leaf_pieces_.data(), leaf_of_row_.data()});
}

void DeviceRowPartitioner::route(const Tree& tree) {
  const int64_t n_rows = bins_.host().n_rows();
  nodes_.write(tree_nodes(tree));
  sets_.write(tree_sets(tree));
  bins_.device()->launch(bins_.device()->grid_for(n_rows),
                         on_device::RouteRows{bins_.words(), n_rows, bins_.places(), bins_.tiles(),
                                              nodes_.data(), sets_.data(), leaf_of_row_.data()});
}

const int32_t* DeviceRowPartitioner::leaf_of_row() {
  read_ = leaf_of_row_.read(static_cast<size_t>(bins_.host().n_rows()));
  return read_.data();
}

std::vector<on_device::TreeNode> tree_nodes(const Tree& tree) {
  std::vector<on_device::TreeNode> nodes;
  for (int32_t i = 0; i < tree.n_nodes(); ++i)
    nodes.push_back({tree.feature[i], tree.threshold[i], tree.missing_left[i], tree.left[i],
                     tree.right[i], tree.leaf[i], tree.category_set[i]});
  return nodes;
}

std::vector<uint64_t> tree_sets(const Tree& tree) {
  std::vector<uint64_t> sets;
  for (const CategorySet& set : tree.categories) sets.insert(sets.end(), set.begin(), set.end());
  return sets;
}

}  // namespace polyleaf
