// Leaf values from derivatives that lie on a device, and leaf values on their way to raw scores there: what
// newton.h and add_leaf_values (leaf_block.h) do on processors, to the same bits.
//
// Must not know: how the structure was found.
#pragma once
#include <cstdint>

#include "base/settings.h"
#include "device/rows.h"
#include "device/sample.h"

namespace polyleaf {

class DeviceLeaves {
 public:
  explicit DeviceLeaves(std::shared_ptr<const Device> device);

  // out: (n_leaves, K). h: 1 or K columns; nullptr: curvature 1.
  void newton(const DeviceMatrix& g, const DeviceMatrix* h, const RowSample& sample, const DeviceRows& rows,
              int32_t n_leaves, const LeafConfig& config, float* out);

  // raw gets the values (n_leaves, width) of its rows; output >= 0: one column, which goes there.
  void add(const DeviceMatrix& raw, const DeviceRows& rows, const float* values, int32_t n_leaves,
           int32_t width, int32_t output);

 private:
  std::vector<double> sums(const float* values, int n_columns, const std::vector<float>& largest,
                           const DeviceRows& rows, int32_t n_leaves);

  const std::shared_ptr<const Device> device_;
  DeviceSample sample_;
  DeviceBuffer<float> scale_, values_;
  DeviceBuffer<int64_t> sums_;
};

}  // namespace polyleaf
