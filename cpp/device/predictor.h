// A frozen model on a device: rows become codes on processors, walk down the trees there, and their scores
// come back, the bits of the processor.
//
// Owns: the trees' memory there. Thread-safe: calls take turns. Must not know: how numbers become codes.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>

#include "device/device.h"
#include "device/kernels/records.h"
#include "forest/row_predictor.h"

namespace polyleaf {

class DevicePredictor {
 public:
  // Throws std::invalid_argument unless all leaves are vectors, or values, of constants.
  DevicePredictor(std::shared_ptr<const Device> device, std::shared_ptr<const RowPredictor> model);

  int32_t n_features() const { return model_->n_features(); }
  int32_t n_outputs() const { return model_->n_outputs(); }
  // scores (n_rows, n_outputs), those of RowPredictor.
  void scores(const NumberRows& rows, double* scores, const Workers& workers) const;

 private:
  void add_trees(int64_t n_rows) const;

  const std::shared_ptr<const Device> device_;
  const std::shared_ptr<const RowPredictor> model_;
  DeviceBuffer<on_device::TreeAt> trees_;
  DeviceBuffer<on_device::TreeNode> nodes_;
  DeviceBuffer<uint64_t> sets_;
  DeviceBuffer<float> values_;
  // Of the rows of one call.
  mutable std::mutex mutex_;
  mutable DeviceBuffer<uint8_t> codes_;
  mutable DeviceBuffer<float> raw_;
};

}  // namespace polyleaf
