// Derivatives of losses at raw scores that lie on a device (losses/objectives.h), with targets and
// weights that stay there.
//
// Owns: which losses a device knows. Must not know: the mathematics of losses.
#pragma once
#include <cstdint>
#include <memory>

#include "device/device.h"
#include "device/kernels/kernel_args.h"
#include "losses/objectives.h"

namespace polyleaf {

class DeviceLoss {
 public:
  // What the loss is of: `raw` is not read, its shape is given. Either of `loss` and `of_classes`
  // is there; the only loss of classes is softmax.
  DeviceLoss(std::shared_ptr<const Device> device, const Loss* loss, const ClassLoss* of_classes,
             const LossInput& input);

  // Whether a device knows this loss of classes.
  static bool supports(const ClassLoss& loss);

  // Throws std::invalid_argument where these are not shaped like the target, or on another device.
  void check(const DeviceMatrix& raw, const DeviceMatrix& g, const DeviceMatrix* h) const;
  // Writes g, and h unless the Hessian is 1: it is that of the weights then, from the start.
  void derivatives(const DeviceMatrix& raw, const DeviceMatrix& g, const DeviceMatrix* h);

 private:
  const std::shared_ptr<const Device> device_;
  const bool of_classes_, unit_;
  on_device::LossAt at_;
  DeviceBuffer<float> target_, weight_, offset_, parameter_;
  DeviceBuffer<int32_t> label_;
};

}  // namespace polyleaf
