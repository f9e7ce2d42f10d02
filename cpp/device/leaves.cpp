#include "device/leaves.h"

#include "leaves/newton.h"

namespace polyleaf {

DeviceLeaves::DeviceLeaves(std::shared_ptr<const Device> device)
    : device_(device), sample_(device), scale_(device), values_(device), sums_(device) {}

void DeviceLeaves::newton(const DeviceMatrix& g, const DeviceMatrix* h, const RowSample& sample,
                          const DeviceRows& rows, int32_t n_leaves, const LeafConfig& config, float* out) {
  sample_.take(sample);
  const int n_outputs = static_cast<int>(g.n_columns);
  const std::vector<double> G =
      sums(g.data(), n_outputs, sample_.largest_magnitudes(g.data(), n_outputs), rows, n_leaves);
  const int h_columns = h != nullptr ? static_cast<int>(h->n_columns) : 1;
  const auto curvature = [&] {
    if (h != nullptr)
      return sums(h->data(), h_columns, sample_.largest_magnitudes(h->data(), h_columns), rows, n_leaves);
    // 1 a row, times its multiplier, of which the largest is known here.
    float largest = 1.0f;
    for (int64_t i = 0; sample.multiplier != nullptr && i < sample.n_used(); ++i)
      largest = std::max(i == 0 ? 0.0f : largest, sample.multiplier[sample.row(i)]);
    return sums(nullptr, 1, {largest}, rows, n_leaves);
  };
  newton_steps(G, curvature(), n_outputs, h_columns, config, out);
}

std::vector<double> DeviceLeaves::sums(const float* values, int n_columns, const std::vector<float>& largest,
                                       const DeviceRows& rows, int32_t n_leaves) {
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

void DeviceLeaves::add(const DeviceMatrix& raw, const DeviceRows& rows, const float* values, int32_t n_leaves,
                       int32_t width, int32_t output) {
  values_.write(values, static_cast<size_t>(n_leaves) * width);
  device_->launch(device_->grid_for(std::max<int64_t>(raw.n_rows * width, width)),
                  on_device::AddLeaves{raw.data(), raw.n_rows, static_cast<int32_t>(raw.n_columns), width,
                                       output, rows.leaves(), values_.data()});
}

}  // namespace polyleaf
