#include "device/leaves.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "leaves/newton.h"

namespace polyleaf {

DeviceLeaves::DeviceLeaves(const std::shared_ptr<const Device>& device)
    : device_(device),
      sample_(device),
      scale_(device),
      values_(device),
      sums_(device),
      begin_(device),
      outputs_(device) {}

void DeviceLeaves::newton(const DeviceMatrix& g, const DeviceMatrix* h, const RowSample& sample,
                          const DeviceRowPartitioner& rows, int32_t n_leaves,
                          const LeafConfig& config, float* out) {
  const Sums sums = derivatives(g, h, sample, rows, n_leaves);
  solve_newton_leaves({sums.G.data(), n_leaves, sums.n_outputs},
                      {sums.H.data(), n_leaves, sums.h_columns}, config,
                      {out, n_leaves, sums.n_outputs});
}

TopkLeafArrays DeviceLeaves::topk(const DeviceMatrix& g, const DeviceMatrix* h,
                                  const RowSample& sample, const DeviceRowPartitioner& rows,
                                  int32_t n_leaves, const LeafConfig& config, int32_t leaf_k,
                                  const Tree* shared) {
  Sums sums = derivatives(g, h, sample, rows, n_leaves);
  return solve_topk_leaves(std::move(sums.G), std::move(sums.H), sums.n_outputs, sums.h_columns,
                           config, leaf_k, shared);
}

std::vector<double> DeviceLeaves::sum_hessians(const DeviceMatrix* h, const RowSample& sample,
                                               const DeviceRowPartitioner& rows, int32_t n_leaves) {
  sample_.set(sample);
  return sum_hessian_columns(h, rows, n_leaves);
}

DeviceLeaves::Sums DeviceLeaves::derivatives(const DeviceMatrix& g, const DeviceMatrix* h,
                                             const RowSample& sample,
                                             const DeviceRowPartitioner& rows, int32_t n_leaves) {
  sample_.set(sample);
  return {sum_matrix(g, rows, n_leaves), sum_hessian_columns(h, rows, n_leaves),
          static_cast<int>(g.n_columns), h != nullptr ? static_cast<int>(h->n_columns) : 1};
}

std::vector<double> DeviceLeaves::sum_hessian_columns(const DeviceMatrix* h,
                                                      const DeviceRowPartitioner& rows,
                                                      int32_t n_leaves) {
  if (h != nullptr) return sum_matrix(*h, rows, n_leaves);
  // Hessian 1 per row, times its multiplier, whose maximum is known on the host.
  const RowSample& sample = sample_.host();
  float largest = 1.0f;
  for (int64_t i = 0; sample.multiplier != nullptr && i < sample.n_used(); ++i)
    largest = std::max(i == 0 ? 0.0f : largest, sample.multiplier[sample.row(i)]);
  return sums(nullptr, 1, {largest}, rows, n_leaves);
}

std::vector<double> DeviceLeaves::sum_matrix(const DeviceMatrix& matrix,
                                             const DeviceRowPartitioner& rows, int32_t n_leaves) {
  const int n_columns = static_cast<int>(matrix.n_columns);
  const std::vector<float> largest = sample_.compute_max_magnitudes(matrix.data(), n_columns);
  return sums(matrix.data(), n_columns, largest, rows, n_leaves);
}

std::vector<double> DeviceLeaves::sums(const float* values, int n_columns,
                                       const std::vector<float>& largest,
                                       const DeviceRowPartitioner& rows, int32_t n_leaves) {
  const FixedColumns fixed(largest, n_columns);
  const size_t n_sums = static_cast<size_t>(n_leaves) * n_columns;
  scale_.write(fixed.scale);
  sums_.clear(n_sums);
  const int64_t n_items = sample_.host().n_used() * n_columns;
  device_->launch(device_->grid_for(std::max<int64_t>(n_items, n_columns)),
                  on_device::SumLeaves{values, n_columns, n_leaves, sample_.at(), rows.leaves(),
                                       scale_.data(), sums_.data()});
  return fixed.sums(sums_.read(n_sums));
}

void DeviceLeaves::add(const DeviceMatrix& raw, const DeviceRowPartitioner& rows,
                       const LeafView& leaves, int32_t n_leaves, int32_t output) {
  if (leaves.kind->reads_features)
    throw std::invalid_argument("Leaves on a device read no features.");
  if (leaves.kind->lists_outputs) return add_sparse(raw, rows, leaves, n_leaves);
  values_.write(leaves.values, static_cast<size_t>(n_leaves * leaves.stride));
  const int32_t width = leaves.n_columns;
  device_->launch(
      device_->grid_for(std::max<int64_t>(raw.n_rows * width, width)),
      on_device::AddLeaves{raw.data(), raw.n_rows, static_cast<int32_t>(raw.n_columns), width,
                           output, rows.leaves(), leaves.stride, values_.data()});
}

void DeviceLeaves::add_sparse(const DeviceMatrix& raw, const DeviceRowPartitioner& rows,
                              const LeafView& leaves, int32_t n_leaves) {
  int64_t max_entries = 0;
  for (int32_t leaf = 0; leaf < n_leaves; ++leaf)
    max_entries = std::max(max_entries, leaves.begin[leaf + 1] - leaves.begin[leaf]);
  if (max_entries == 0) return;
  const auto n_entries = static_cast<size_t>(leaves.begin[n_leaves]);
  begin_.write(leaves.begin, static_cast<size_t>(n_leaves) + 1);
  outputs_.write(leaves.index, n_entries);
  values_.write(leaves.values, n_entries);
  device_->launch(device_->grid_for(std::max<int64_t>(raw.n_rows * max_entries, max_entries)),
                  on_device::AddSparse{raw.data(), raw.n_rows, static_cast<int32_t>(raw.n_columns),
                                       static_cast<int32_t>(max_entries), rows.leaves(),
                                       begin_.data(), outputs_.data(), values_.data()});
}

}  // namespace polyleaf
