// Monotone constraints on leaf values: which outputs must not fall or rise with which features, and
// the bounds that splits above a node have set for its values.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace polyleaf {

struct ChannelLayout;
struct ScanNode;
struct SplitConfig;

// Constraints of all features: 1, an output must not fall with the feature; -1, it must not rise;
// 0, it is free.
class MonotoneConstraints {
 public:
  MonotoneConstraints() = default;
  // constraints: (n_features, n_outputs)
  MonotoneConstraints(const int8_t* constraints, int n_features, int n_outputs)
      : n_features_(n_features), n_outputs_(n_outputs) {
    rows_.assign(static_cast<size_t>(n_features + 1) * stride(), 0.0f);
    for (int f = 0; f < n_features; ++f)
      std::copy_n(constraints + static_cast<int64_t>(f) * n_outputs, n_outputs,
                  rows_.begin() + static_cast<int64_t>(f) * stride());
  }

  bool any() const { return n_features_ > 0; }
  int n_outputs() const { return n_outputs_; }
  // Length of a row: one number per output, padded with zeros to a multiple of sixteen.
  int stride() const { return (n_outputs_ + 15) / 16 * 16; }
  const float* row(int feature) const {
    return rows_.data() + static_cast<int64_t>(feature) * stride();
  }
  // The row of a feature without constraints.
  const float* unconstrained_row() const { return row(n_features_); }

 private:
  int n_features_ = 0, n_outputs_ = 0;
  std::vector<float> rows_;
};

// Bounds on the values of a node. Where a split above has tied an output, both of its children got
// one value; no value below either child may pass it.
class OutputBounds {
 public:
  OutputBounds() = default;
  // No bounds; n: number of outputs, padding included.
  explicit OutputBounds(int n)
      : low_(n, -std::numeric_limits<float>::infinity()),
        high_(n, std::numeric_limits<float>::infinity()) {}

  // One number per output, readable up to the next multiple of sixteen.
  const float* low() const { return low_.data(); }
  const float* high() const { return high_.data(); }

  // Make `value` a bound of the output, for the left or the right child of a split that has tied
  // it.
  void tie(int output, float value, bool is_increasing, bool is_left) {
    (is_increasing == is_left ? high_ : low_)[output] = value;
  }

 private:
  std::vector<float> low_, high_;
};

// Throw std::invalid_argument unless the leaves have one value per output, each with a step of its
// own, and as many outputs as the constraints.
void check_monotone_constraints(const MonotoneConstraints& constraints, const ChannelLayout& layout,
                                const SplitConfig& split);

// Set the bounds of the children of a node that is split on a feature. `node` has the constraints
// of that feature; `left`: sums of the left child.
void propagate_bounds(const ScanNode& node, int feature, const int32_t* left, int32_t left_count,
                      OutputBounds& left_bounds, OutputBounds& right_bounds);

}  // namespace polyleaf
