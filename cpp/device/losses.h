// Derivatives of losses (losses/objectives.h) at raw scores in GPU memory; targets and weights stay
// there.
#pragma once
#include <cstdint>
#include <memory>

#include "device/device.h"
#include "device/kernels/kernel_args.h"
#include "losses/objectives.h"

namespace polyleaf {

class DeviceLoss {
 public:
  // Set the data of the loss (`raw` is not read). Exactly one of `loss` and `class_loss` is
  // given; the only class loss is softmax.
  DeviceLoss(const std::shared_ptr<const Device>& device, const Loss* loss,
             const ClassLoss* class_loss, const LossInput& input);

  // Return whether a class loss is supported on GPUs.
  static bool supports(const ClassLoss& loss);

  // Throw std::invalid_argument unless the shapes and the device match.
  void check(const DeviceMatrix& raw, const DeviceMatrix& g, const DeviceMatrix* h) const;
  // Compute g, and h unless the Hessian is 1 (then h contains the weights from the start).
  void derivatives(const DeviceMatrix& raw, const DeviceMatrix& g, const DeviceMatrix* h);

 private:
  const std::shared_ptr<const Device> device_;
  const bool is_class_loss_, has_unit_hessian_;
  on_device::LossArgs args_;
  DeviceBuffer<float> target_, weight_, offset_, parameter_;
  DeviceBuffer<int32_t> label_;
};

}  // namespace polyleaf
