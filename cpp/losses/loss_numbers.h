// Numbers that a loss has throughout, in the order of their names.
#pragma once

namespace polyleaf {

constexpr int kMostParameters = 3;
using LossNumbers = float[kMostParameters];

}  // namespace polyleaf
