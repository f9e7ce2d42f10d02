// Where outputs must not fall (1) or not rise (-1) with a feature, as scores read it.
//
// Must not know: who says so.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace polyleaf {

class FeatureDirections {
 public:
  FeatureDirections() = default;
  // (n_features, n_outputs)
  FeatureDirections(const int8_t* directions, int n_features, int n_outputs)
      : n_outputs_(n_outputs), stride_((n_outputs + 15) / 16 * 16) {
    rows_.assign(static_cast<size_t>(n_features) * stride_, 0.0f);
    for (int f = 0; f < n_features; ++f) {
      const int8_t* own = directions + static_cast<int64_t>(f) * n_outputs;
      std::copy_n(own, n_outputs, rows_.begin() + static_cast<int64_t>(f) * stride_);
      any_.push_back(std::any_of(own, own + n_outputs, [](int8_t d) { return d != 0; }));
    }
  }

  bool any() const { return !any_.empty(); }
  int n_outputs() const { return n_outputs_; }
  // Of every output, zeros after them to the next sixteen; nullptr where all are free.
  const float* of(int feature) const {
    return any() && any_[feature] ? rows_.data() + static_cast<int64_t>(feature) * stride_ : nullptr;
  }

 private:
  int n_outputs_ = 0, stride_ = 0;
  std::vector<float> rows_;
  std::vector<uint8_t> any_;
};

}  // namespace polyleaf
