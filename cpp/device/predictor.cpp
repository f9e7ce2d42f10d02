#include "device/predictor.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "device/rows.h"
#include "leaves/dense_block.h"

namespace polyleaf {
DevicePredictor::DevicePredictor(std::shared_ptr<const Device> device,
                                 std::shared_ptr<const RowPredictor> model)
    : device_(device),
      model_(std::move(model)),
      trees_(device),
      nodes_(device),
      sets_(device),
      values_(device),
      bins_(device, model_->bins(), model_->categories()),
      wanted_(device),
      unit_(device),
      codes_(device),
      raw_(device) {
  std::vector<on_device::TreeAt> trees;
  std::vector<on_device::TreeNode> nodes;
  std::vector<uint64_t> sets;
  std::vector<float> values;
  const Forest& forest = model_->forest();
  for (const ForestPart& part : forest.parts({0, forest.n_trees()})) {
    const auto* leaves = dynamic_cast<const DenseLeaves*>(part.leaves.get());
    if (leaves == nullptr)
      throw std::invalid_argument("A device predicts with leaves of constants.");
    trees.push_back({static_cast<int32_t>(nodes.size()), leaves->n_columns(), part.output,
                     static_cast<int64_t>(values.size())});
    const auto first_set = static_cast<int32_t>(sets.size() / 4);
    for (on_device::TreeNode node : tree_nodes(*part.tree)) {
      if (node.category_set >= 0) node.category_set += first_set;
      nodes.push_back(node);
    }
    const std::vector<uint64_t> own = tree_sets(*part.tree);
    sets.insert(sets.end(), own.begin(), own.end());
    for (int32_t leaf = 0; leaf < leaves->n_leaves(); ++leaf) {
      const float* const vector = leaves->view().values + leaf * leaves->view().stride;
      values.insert(values.end(), vector, vector + leaves->n_columns());
    }
  }
  trees_.write(trees);
  nodes_.write(nodes);
  sets_.write(sets);
  values_.write(values);
  std::vector<int32_t> wanted = model_->numeric();
  for (const CategoryValues& known : model_->categories()) wanted.push_back(known.feature);
  n_wanted_ = static_cast<int32_t>(wanted.size());
  wanted_.write(wanted);
  write_unit();
}

void DevicePredictor::write_unit() {
  const ScoreTransform here = model_->unit();
  const auto k = static_cast<size_t>(n_outputs());
  std::vector<double> numbers;
  for (const double* part : {here.base, here.scale, here.offset})
    if (part != nullptr) numbers.insert(numbers.end(), part, part + k);
  unit_.write(numbers);
  const bool scaled = here.scale != nullptr;
  unit_there_ = {unit_.data(), scaled ? unit_.data() + k : nullptr,
                 scaled ? unit_.data() + 2 * k : nullptr};
}

int64_t DevicePredictor::rows_at_a_time() const {
  const int64_t of_row = std::max<int64_t>({1, n_features(), int64_t{4} * n_outputs()});
  return std::max<int64_t>(1, kBytesAtATime / of_row);
}

// Leaves the sums of the leaf values in `raw_`.
void DevicePredictor::add_trees(int64_t n_rows) const {
  raw_.clear(static_cast<size_t>(n_rows) * n_outputs());
  constexpr int kRows = on_device::kPredictedRows;
  device_->launch({(n_rows + kRows - 1) / kRows},
                  on_device::PredictTrees{codes_.data(), n_rows, n_outputs(),
                                          model_->forest().n_trees(), trees_.data(), nodes_.data(),
                                          sets_.data(), values_.data(), raw_.data()});
}

void DevicePredictor::scores(const NumberRows& rows, double* scores, const Workers& workers) const {
  const int64_t at_a_time = rows_at_a_time();
  std::vector<uint8_t> codes;
  std::vector<float> sums;
  for (int64_t begin = 0; begin < rows.n_rows; begin += at_a_time) {
    const NumberRows part = rows.part(begin, std::min(begin + at_a_time, rows.n_rows));
    codes.resize(static_cast<size_t>(part.n_rows) * n_features());
    model_->find_codes(part, codes.data(), workers);
    sums.resize(static_cast<size_t>(part.n_rows) * n_outputs());
    {
      const std::lock_guard turn(mutex_);
      codes_.write(codes);
      add_trees(part.n_rows);
      raw_.read(sums.data(), sums.size());
    }
    const ScoreTransform unit = model_->unit();
    double* const to = scores + begin * n_outputs();
    for (size_t i = 0; i < sums.size(); ++i)
      to[i] = unit(static_cast<int32_t>(i % n_outputs()), sums[i]);
  }
}

DeviceArray DevicePredictor::scores(const DeviceArray& rows) const {
  const int64_t n_rows = rows.view().n_rows, at_a_time = rows_at_a_time();
  DeviceArray found(device_, n_rows, n_outputs());
  const std::lock_guard turn(mutex_);
  for (int64_t begin = 0; begin < n_rows; begin += at_a_time) {
    const int64_t n = std::min(at_a_time, n_rows - begin);
    codes_.reserve(static_cast<size_t>(n) * n_features());
    bins_.find_codes(rows.rows(begin, begin + n), wanted_.data(), n_wanted_, codes_.data());
    add_trees(n);
    device_->launch(device_->grid_for(n * n_outputs()),
                    on_device::ScoresOfSums{raw_.data(), n, n_outputs(), unit_there_,
                                            found.doubles() + begin * n_outputs()});
  }
  device_->wait_for(device_->stream());
  return found;
}

}  // namespace polyleaf
