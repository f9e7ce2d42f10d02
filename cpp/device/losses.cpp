#include "device/losses.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace polyleaf {

bool DeviceLoss::supports(const ClassLoss& loss) {
  return loss.kernels().name == std::string("softmax");
}

DeviceLoss::DeviceLoss(const std::shared_ptr<const Device>& device, const Loss* loss,
                       const ClassLoss* class_loss, const LossInput& input)
    : device_(device),
      is_class_loss_(class_loss != nullptr),
      has_unit_hessian_(loss != nullptr && loss->kernels().unit_hessian),
      args_{},
      target_(device),
      weight_(device),
      offset_(device),
      parameter_(device),
      label_(device) {
  if (is_class_loss_ && !supports(*class_loss))
    throw std::invalid_argument("A device does not know this loss of classes.");
  const size_t n = static_cast<size_t>(input.n_rows), k = static_cast<size_t>(input.n_outputs);
  offset_.write(input.offset, k);
  if (input.weight != nullptr) weight_.write(input.weight, n * input.weight_columns);
  if (is_class_loss_) {
    label_.write(input.label, n);
  } else {
    target_.write(input.target, n * k);
    parameter_.write(input.parameter, k);
  }
  args_.weight = input.weight != nullptr ? weight_.data() : nullptr;
  args_.weight_columns = static_cast<int32_t>(input.weight_columns);
  args_.n_rows = input.n_rows;
  args_.n_outputs = static_cast<int32_t>(input.n_outputs);
  args_.offset = offset_.data();
  args_.loss = is_class_loss_ ? 0 : loss->index();
  std::copy_n(is_class_loss_ ? class_loss->params() : loss->params(), kMaxLossParams,
              args_.numbers);
}

void DeviceLoss::check(const DeviceMatrix& raw, const DeviceMatrix& g,
                       const DeviceMatrix* h) const {
  const auto is_alike = [&](const DeviceMatrix& a) {
    return a.device == device_ && a.n_rows == args_.n_rows && a.n_columns == args_.n_outputs;
  };
  if (!is_alike(raw) || !is_alike(g) || (h != nullptr && !has_unit_hessian_ && !is_alike(*h)))
    throw std::invalid_argument(
        "Scores and derivatives must be shaped like the target, on its device.");
  if (h == nullptr && !has_unit_hessian_)
    throw std::invalid_argument("This loss needs an array for its Hessian.");
}

void DeviceLoss::derivatives(const DeviceMatrix& raw, const DeviceMatrix& g,
                             const DeviceMatrix* h) {
  on_device::LossArgs at = args_;
  at.raw = raw.data();
  at.g = g.data();
  at.h = h != nullptr ? h->data() : nullptr;
  if (is_class_loss_)
    device_->launch(device_->grid_for(at.n_rows), on_device::SoftmaxDerivatives{at, label_.data()});
  else
    device_->launch(device_->grid_for(std::max<int64_t>(at.n_rows * at.n_outputs, at.n_outputs)),
                    on_device::Derivatives{at, target_.data(), parameter_.data()});
}

}  // namespace polyleaf
