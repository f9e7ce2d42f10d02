// A frozen model on a GPU, bitwise equal to the CPU. Rows in host memory are binned on the CPU,
// predicted on the GPU, and the scores are copied back; rows in GPU memory stay there. Thread-safe:
// calls are serialised.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>

#include "device/binning.h"
#include "device/device.h"
#include "device/kernels/kernel_args.h"
#include "forest/row_predictor.h"

namespace polyleaf {

class DevicePredictor {
 public:
  // Throws std::invalid_argument unless all leaves are dense.
  DevicePredictor(const std::shared_ptr<const Device>& device,
                  std::shared_ptr<const RowPredictor> model);

  int32_t n_features() const { return model_->n_features(); }
  int32_t n_outputs() const { return model_->n_outputs(); }
  const std::shared_ptr<const Device>& device() const { return device_; }
  // Compute scores (n_rows, n_outputs), equal to RowPredictor.
  void scores(const NumberRows& rows, double* scores, const Context& context) const;
  // Same for rows in GPU memory; the result is complete on return.
  DeviceArray scores(const DeviceArray& rows) const;

 private:
  int64_t row_block_size() const;
  void write_transform();
  void add_trees(int64_t n_rows) const;

  const std::shared_ptr<const Device> device_;
  const std::shared_ptr<const RowPredictor> model_;
  DeviceBuffer<on_device::DeviceTree> trees_;
  DeviceBuffer<on_device::TreeNode> nodes_;
  DeviceBuffer<uint64_t> sets_;
  DeviceBuffer<float> values_;
  DeviceBinTable bins_;
  DeviceBuffer<int32_t> used_features_;  // features that trees split on
  int32_t n_used_ = 0;
  DeviceBuffer<double> transform_values_;
  ScoreTransform device_transform_;
  // Scratch of one call.
  mutable std::mutex mutex_;
  mutable DeviceBuffer<uint8_t> codes_;
  mutable DeviceBuffer<float> raw_;
};

}  // namespace polyleaf
