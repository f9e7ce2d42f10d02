// Numbers of losses: those that one has throughout, in the order of their names, and one that all
// keep to.
#pragma once

namespace polyleaf {

constexpr int kMostParameters = 3;
using LossNumbers = float[kMostParameters];

// A curvature never is less: it underflows where a loss is sure of a row (p (1 - p) for |raw| >
// 87), such a row would have no say, and a leaf of such rows would divide by zero when lambda is 0.
constexpr float kLeastCurvature = 1e-16f;

}  // namespace polyleaf
