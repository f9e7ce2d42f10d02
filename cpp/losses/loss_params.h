// Parameters of losses, in the order of their names, and the lower bound of Hessians.
#pragma once

namespace polyleaf {

constexpr int kMaxLossParams = 3;
using LossParams = float[kMaxLossParams];

// Lower bound of Hessians: p (1 - p) underflows for |raw| > 87; such rows would have no influence,
// and a leaf of such rows would divide by zero when lambda is 0.
constexpr float kMinHessian = 1e-16f;

}  // namespace polyleaf
