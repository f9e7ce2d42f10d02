#include "device/predictor.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "device/row_partitioner.h"

namespace polyleaf {

DevicePredictor::DevicePredictor(const std::shared_ptr<const Device>& device,
                                 std::shared_ptr<const RowPredictor> model)
    : device_(device),
      model_(std::move(model)),
      trees_(device),
      nodes_(device),
      sets_(device),
      values_(device),
      bins_(device, model_->bins(), model_->categories()),
      used_features_(device),
      transform_values_(device),
      codes_(device),
      raw_(device) {
  std::vector<on_device::DeviceTree> trees;
  std::vector<on_device::TreeNode> nodes;
  std::vector<uint64_t> sets;
  std::vector<float> values;
  const Forest& forest = model_->forest();
  for (const ForestPart& part : forest.parts({0, forest.n_trees()})) {
    const LeafView& leaves = part.leaves->view();
    if (!leaves.kind->is_vector())
      throw std::invalid_argument("A device predicts with leaves of constants.");
    // A tree of several listed outputs becomes one of all outputs, 0 for the others.
    const bool expands = part.outputs.size() > 1;
    const int32_t n_columns = expands ? n_outputs() : leaves.n_columns,
                  output = part.outputs.size() == 1 ? part.outputs[0] : -1;
    trees.push_back({static_cast<int32_t>(nodes.size()), n_columns, output,
                     static_cast<int64_t>(values.size())});
    const auto first_set = static_cast<int32_t>(sets.size() / 4);
    for (on_device::TreeNode node : tree_nodes(*part.tree)) {
      if (node.category_set >= 0) node.category_set += first_set;
      nodes.push_back(node);
    }
    const std::vector<uint64_t> own = tree_sets(*part.tree);
    sets.insert(sets.end(), own.begin(), own.end());
    for (int32_t i = 0; i < part.leaves->n_leaves(); ++i) {
      const LeafFunction leaf = leaves.kind->function(leaves, i);
      if (!expands) {
        values.insert(values.end(), leaf.values, leaf.values + leaf.n_values);
        continue;
      }
      const size_t first = values.size();
      values.resize(first + n_columns, 0.0f);
      for (size_t j = 0; j < part.outputs.size(); ++j)
        values[first + part.outputs[j]] = leaf.values[j];
    }
  }
  trees_.write(trees);
  nodes_.write(nodes);
  sets_.write(sets);
  values_.write(values);
  std::vector<int32_t> used_features = model_->numeric();
  for (const CategoryValues& known : model_->categories()) used_features.push_back(known.feature);
  n_used_ = static_cast<int32_t>(used_features.size());
  used_features_.write(used_features);
  write_transform();
}

void DevicePredictor::write_transform() {
  const ScoreTransform here = model_->transform();
  const auto k = static_cast<size_t>(n_outputs());
  std::vector<double> numbers;
  for (const double* part : {here.base, here.scale, here.offset})
    if (part != nullptr) numbers.insert(numbers.end(), part, part + k);
  transform_values_.write(numbers);
  const bool scaled = here.scale != nullptr;
  device_transform_ = {transform_values_.data(), scaled ? transform_values_.data() + k : nullptr,
                       scaled ? transform_values_.data() + 2 * k : nullptr};
}

int64_t DevicePredictor::row_block_size() const {
  const int64_t row_bytes = std::max<int64_t>({1, n_features(), int64_t{4} * n_outputs()});
  return std::max<int64_t>(1, kTransferBytes / row_bytes);
}

// Write the sums of leaf values to `raw_`.
void DevicePredictor::add_trees(int64_t n_rows) const {
  raw_.clear(static_cast<size_t>(n_rows) * n_outputs());
  constexpr int kRows = on_device::kPredictedRows;
  device_->launch({(n_rows + kRows - 1) / kRows},
                  on_device::PredictTrees{codes_.data(), n_rows, n_outputs(),
                                          model_->forest().n_trees(), trees_.data(), nodes_.data(),
                                          sets_.data(), values_.data(), raw_.data()});
}

void DevicePredictor::scores(const NumberRows& rows, double* scores, const Context& context) const {
  const int64_t block_rows = row_block_size();
  std::vector<uint8_t> codes;
  std::vector<float> sums;
  for (int64_t begin = 0; begin < rows.n_rows; begin += block_rows) {
    const NumberRows part = rows.part(begin, std::min(begin + block_rows, rows.n_rows));
    codes.resize(static_cast<size_t>(part.n_rows) * n_features());
    model_->find_codes(part, codes.data(), context);
    sums.resize(static_cast<size_t>(part.n_rows) * n_outputs());
    {
      const std::lock_guard lock(mutex_);
      codes_.write(codes);
      add_trees(part.n_rows);
      raw_.read(sums.data(), sums.size());
    }
    const ScoreTransform transform = model_->transform();
    double* const to = scores + begin * n_outputs();
    for (size_t i = 0; i < sums.size(); ++i)
      to[i] = transform(static_cast<int32_t>(i % n_outputs()), sums[i]);
  }
}

DeviceArray DevicePredictor::scores(const DeviceArray& rows) const {
  const int64_t n_rows = rows.view().n_rows, block_rows = row_block_size();
  DeviceArray found(device_, n_rows, n_outputs());
  const std::lock_guard lock(mutex_);
  for (int64_t begin = 0; begin < n_rows; begin += block_rows) {
    const int64_t n = std::min(block_rows, n_rows - begin);
    codes_.reserve(static_cast<size_t>(n) * n_features());
    bins_.find_codes(rows.rows(begin, begin + n), used_features_.data(), n_used_, codes_.data());
    add_trees(n);
    device_->launch(device_->grid_for(n * n_outputs()),
                    on_device::ScoresOfSums{raw_.data(), n, n_outputs(), device_transform_,
                                            found.doubles() + begin * n_outputs()});
  }
  device_->wait_for(device_->stream());
  return found;
}

}  // namespace polyleaf
