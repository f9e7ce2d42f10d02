// Numbers of losses: those that one has throughout, in the order of their names, and one that all
// keep to.
#pragma once

namespace polyleaf {

constexpr int kMaxLossParams = 3;
using LossParams = float[kMaxLossParams];

// A Hessian never is less: it underflows where a loss is sure of a row (p (1 - p) for |raw| >
// 87), such a row would have no say, and a leaf of such rows would divide by zero when lambda is 0.
constexpr float kMinHessian = 1e-16f;

}  // namespace polyleaf
