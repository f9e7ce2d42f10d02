// Derivatives at raw scores. Element-wise losses use the core's formulas; softmax equals
// losses/kernels/objective_kernels.cpp, one row per thread, with sums in the same order.
#include "device/kernels/block.h"
#include "losses/kernels/elementwise_kernels.h"

namespace polyleaf::on_device {

constexpr int kPart = 16;  // classes summed before they are added to the total

__device__ inline float get_weight(const LossArgs& at, int64_t row, int k) {
  return at.weight_columns == 1 ? at.weight[row] : at.weight[row * at.n_outputs + k];
}

// Compute the derivatives of one row and output, times its weight. If the Hessian is 1, h already
// contains the weights.
template <class L>
__device__ void derive(const Derivatives& a, int64_t row, int k) {
  const LossArgs& at = a.at;
  const int64_t i = row * at.n_outputs + k;
  const float z = at.raw[i] + at.offset[k], y = a.target[i], parameter = a.parameter[k];
  const float weight = at.weight != nullptr ? get_weight(at, row, k) : 1.0f;
  dispatch_loss<L>(at.numbers, [&](auto loss) {
    if constexpr (kHasUnitHessian<decltype(loss)>) {
      at.g[i] = loss.gradient(z, y, parameter) * weight;
    } else {
      const Derivative d = loss.derivative(z, y, parameter);
      at.g[i] = d.g * weight;
      at.h[i] = d.h * weight;
    }
  });
}

template <class... L>
__device__ void derive_by_number(Losses<L...>, const Derivatives& a, int64_t row, int k) {
  int number = 0;
  ((number++ == a.at.loss ? derive<L>(a, row, k) : void()), ...);
}

__device__ inline void softmax_row(const SoftmaxDerivatives& a, int64_t row) {
  const LossArgs& at = a.at;
  const float* const raw = at.raw + row * at.n_outputs;
  float *const g = at.g + row * at.n_outputs, *const h = at.h + row * at.n_outputs;
  float largest = raw[0] + at.offset[0], sum = 0.0f;
  for (int k = 0; k < at.n_outputs; ++k) largest = max(largest, raw[k] + at.offset[k]);
  for (int begin = 0; begin < at.n_outputs; begin += kPart) {
    float part = 0.0f;
    for (int k = begin; k < at.n_outputs && k < begin + kPart; ++k) {
      g[k] = exp_saturating(raw[k] + at.offset[k] - largest);
      part += g[k];
    }
    sum += part;
  }
  const float inverse = 1.0f / sum, factor = at.numbers[0];
  const float weight = at.weight != nullptr ? at.weight[row] : 1.0f;
  for (int k = 0; k < at.n_outputs; ++k) {
    const float p = g[k] * inverse;
    const float gradient = k == a.label[row] ? p - 1.0f : p;
    const float hessian = factor != 0.0f ? factor * (p * (1.0f - p)) : magnitude(gradient);
    g[k] = gradient * weight;
    h[k] = max(hessian, kMinHessian) * weight;
  }
}

}  // namespace polyleaf::on_device

using namespace polyleaf::on_device;

extern "C" __global__ void derivatives(const polyleaf::on_device::Derivatives a) {
  visit_column_rows({nullptr, a.at.n_rows, nullptr}, a.at.n_outputs,
                    [&](uint32_t row, int k) { derive_by_number(ElementwiseLosses(), a, row, k); });
}

extern "C" __global__ void softmax_derivatives(const SoftmaxDerivatives a) {
  for (int64_t row = thread_of_grid(); row < a.at.n_rows; row += threads_of_grid())
    softmax_row(a, row);
}
