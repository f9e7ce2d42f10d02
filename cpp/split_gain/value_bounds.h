// What values of a node may be where a split above has pooled an output, so that its children had
// one value though they lie in an order: below, neither side passes it.
//
// Owns: which bounds children inherit. Must not know: what values are best, or how splits are
// found.
#pragma once
#include <limits>
#include <vector>

namespace polyleaf {

class OutputBounds {
 public:
  OutputBounds() = default;
  // None, for so many outputs, zeros after them included.
  explicit OutputBounds(int n)
      : low_(n, -std::numeric_limits<float>::infinity()),
        high_(n, std::numeric_limits<float>::infinity()) {}

  // Of every output, readable to the next sixteen.
  const float* low() const { return low_.data(); }
  const float* high() const { return high_.data(); }

  // A split on a feature of this direction has pooled an output: these become those of one of its
  // children.
  void pool(int output, float value, bool rises, bool is_left) {
    (rises == is_left ? high_ : low_)[output] = value;
  }

 private:
  std::vector<float> low_, high_;
};

}  // namespace polyleaf
