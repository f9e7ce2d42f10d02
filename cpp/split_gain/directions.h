// Where outputs must not fall (1) or not rise (-1) with a feature, as scores read it.
//
// Must not know: who says so.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace polyleaf {

class MonotoneConstraints {
 public:
  MonotoneConstraints() = default;
  // (n_features, n_outputs)
  MonotoneConstraints(const int8_t* directions, int n_features, int n_outputs)
      : n_features_(n_features), n_outputs_(n_outputs) {
    rows_.assign(static_cast<size_t>(n_features + 1) * stride(), 0.0f);
    for (int f = 0; f < n_features; ++f)
      std::copy_n(directions + static_cast<int64_t>(f) * n_outputs, n_outputs,
                  rows_.begin() + static_cast<int64_t>(f) * stride());
  }

  bool any() const { return n_features_ > 0; }
  int n_outputs() const { return n_outputs_; }
  // Numbers to each feature: one an output, zeros after them to the next sixteen.
  int stride() const { return (n_outputs_ + 15) / 16 * 16; }
  const float* of(int feature) const {
    return rows_.data() + static_cast<int64_t>(feature) * stride();
  }
  // Those of a feature that all outputs are free of.
  const float* none() const { return of(n_features_); }

 private:
  int n_features_ = 0, n_outputs_ = 0;
  std::vector<float> rows_;
};

}  // namespace polyleaf
