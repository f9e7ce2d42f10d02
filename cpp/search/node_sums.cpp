#include "search/node_sums.h"

#include <algorithm>
#include <cmath>

#include "quantised_gradients/quantised_gradients.h"
#include "quantised_gradients/sparse_target_sums.h"
#include "search/node_scale.h"

namespace polyleaf {
namespace {

// Return the mean of m numbers, added in the order of ScoreKernels::node_hessian: in sixteen lanes,
// which are then folded.
double average_outputs(const float* numbers, size_t m) {
  if (m == 1) return numbers[0];
  float lanes[16] = {};
  for (size_t j = 0; j < m; ++j) lanes[j % 16] += numbers[j];
  for (int half = 8; half >= 1; half /= 2)
    for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  return lanes[0] / static_cast<float>(m);
}

}  // namespace

NodeSums::NodeSums(const Tree& tree, const int32_t* leaf_of_row, const RowSample& sample,
                   const Context& context)
    : leaf_of_row_(leaf_of_row, leaf_of_row + sample.n_all),
      parent_(static_cast<size_t>(tree.n_nodes()), -1),
      node_of_leaf_(static_cast<size_t>(tree.n_leaves), 0),
      sample_(sample),
      counts_(parent_.size(), 0) {
  if (sample.rows != nullptr) {
    rows_.assign(sample.rows, sample.rows + sample.n_rows);
    sample_.rows = non_null_data(rows_.data(), rows_.size());
  }
  if (sample.multiplier != nullptr) {
    multiplier_.assign(sample.multiplier, sample.multiplier + sample.n_all);
    sample_.multiplier = non_null_data(multiplier_.data(), multiplier_.size());
  }
  for (int32_t i = 0; i < tree.n_nodes(); ++i) {
    if (tree.left[i] < 0)
      node_of_leaf_[tree.leaf[i]] = i;
    else
      parent_[tree.left[i]] = parent_[tree.right[i]] = i;
  }
  for (int64_t i = 0; i < sample_.n_used(); ++i) ++counts_[node(sample_.row(i))];
  sum_up(counts_, 1, context);
}

void NodeSums::sum_up(std::vector<int64_t>& sums, size_t n_columns, const Context& context) const {
  for (size_t i = parent_.size(); i-- > 1;)  // children come after their parents
    for (size_t j = 0; j < n_columns; ++j)
      sums[parent_[i] * n_columns + j] += sums[i * n_columns + j];
  context.allreduce_sum(sums);
}

std::vector<double> NodeSums::sum_hessians(const float* h, int n_columns, bool quantises_nodes,
                                           const Context& context) const {
  std::vector<double> means;
  if (h == nullptr) {
    for (const int64_t count : counts_) means.push_back(static_cast<float>(count));
    return means;
  }
  const size_t m = static_cast<size_t>(n_columns);
  std::vector<float> hessians;
  if (quantises_nodes) {
    hessians = sum_scaled_hessians(h, m, context);
  } else {
    QuantisedGradients quantised;  // of the Hessians, as if they were gradients
    quantised.quantise(h, nullptr, n_columns, HessianKind::unit, sample_, context);
    std::vector<int64_t> sums(counts_.size() * m, 0);
    for (int64_t i = 0; i < sample_.n_used(); ++i) {
      const int64_t row = sample_.row(i);
      int64_t* of_node = sums.data() + node(row) * m;
      for (size_t j = 0; j < m; ++j) of_node[j] += quantised.row(row)[j];
    }
    sum_up(sums, m, context);
    for (size_t i = 0; i < sums.size(); ++i)
      hessians.push_back(static_cast<float>(sums[i]) * quantised.gradient_step()[i % m]);
  }
  for (size_t i = 0; i < counts_.size(); ++i)
    means.push_back(average_outputs(hessians.data() + i * m, m));
  return means;
}

std::vector<float> NodeSums::sum_scaled_hessians(const float* h, size_t m,
                                                 const Context& context) const {
  const size_t n_nodes = counts_.size();
  std::vector<double> largest(n_nodes * m, 0.0);
  for (int64_t i = 0; i < sample_.n_used(); ++i) {
    const int64_t row = sample_.row(i);
    double* of_node = largest.data() + node(row) * m;
    for (size_t j = 0; j < m; ++j)
      of_node[j] = std::max<double>(of_node[j], std::fabs(h[row * m + j] * sample_.factor(row)));
  }
  context.allreduce_max(largest);
  for (size_t i = n_nodes; i-- > 1;)
    for (size_t j = 0; j < m; ++j)
      largest[parent_[i] * m + j] = std::max(largest[parent_[i] * m + j], largest[i * m + j]);
  std::vector<float> inverse(n_nodes * m, 0.0f), step(n_nodes * m, 0.0f);
  for (size_t i = 0; i < n_nodes * m; ++i)
    set_scale(static_cast<float>(largest[i]), count_shift(counts_[i / m]), inverse[i], step[i]);
  std::vector<int64_t> sums(n_nodes * m, 0);
  for (int64_t i = 0; i < sample_.n_used(); ++i) {
    const int64_t row = sample_.row(i);
    const float factor = sample_.factor(row);
    for (int32_t at = node(row); at >= 0; at = parent_[at]) {
      const float* scale = inverse.data() + std::max(parent_[at], 0) * m;
      for (size_t j = 0; j < m; ++j)
        sums[at * m + j] += quantise_value(h[row * m + j] * factor * scale[j]);
    }
  }
  context.allreduce_sum(sums);
  std::vector<float> hessians(n_nodes * m);
  for (size_t i = 0; i < n_nodes; ++i)
    for (size_t j = 0; j < m; ++j)
      hessians[i * m + j] =
          static_cast<float>(sums[i * m + j]) * step[std::max(parent_[i], 0) * m + j];
  return hessians;
}

std::vector<double> NodeSums::sum_weights(const float* weight, const Context& context) const {
  if (weight == nullptr && sample_.multiplier == nullptr) return {counts_.begin(), counts_.end()};
  const FixedPoint fixed = fixed_point(weight, sample_, context);
  std::vector<int64_t> sums(counts_.size(), 0);
  for (int64_t i = 0; i < sample_.n_used(); ++i) {
    const int64_t row = sample_.row(i);
    sums[node(row)] += fixed((weight != nullptr ? weight[row] : 1.0f) * sample_.factor(row));
  }
  sum_up(sums, 1, context);
  std::vector<double> hessians;
  for (const int64_t sum : sums) hessians.push_back(static_cast<double>(sum) * fixed.unit);
  return hessians;
}

}  // namespace polyleaf
