// What the Newton step of a set of rows is worth where a leaf holds k of very many outputs
// (GBDT-SPARSE eq. 20, GBDT-MO eq. 20), from exact sums. The same numbers as those of the leaves
// (leaves/topk.cpp).
//
// Owns: the choice of the k outputs and the order in which their worths are added. Must not know:
// rows, splits.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "leaves/newton.h"

namespace polyleaf {

// The k largest of positive magnitudes offered one by one.
class Largest {
 public:
  void start(int32_t k) {
    k_ = static_cast<size_t>(k);
    floor_ = 0;
    keys_.clear();
  }
  void offer(int64_t key) {
    if (key > floor_) take(key);
  }
  // In descending order.
  const std::vector<int64_t>& sorted() {
    shrink();
    std::sort(keys_.begin(), keys_.end(), std::greater<int64_t>());
    return keys_;
  }

 private:
  void take(int64_t key) {
    keys_.push_back(key);
    if (keys_.size() < 2 * k_ + 16) return;
    shrink();
    floor_ = keys_[k_ - 1];  // keys like it change nothing
  }
  void shrink() {
    if (keys_.size() <= k_) return;
    std::nth_element(keys_.begin(), keys_.begin() + k_ - 1, keys_.end(), std::greater<int64_t>());
    keys_.resize(k_);
  }

  size_t k_ = 1;
  int64_t floor_ = 0;
  std::vector<int64_t> keys_;
};

// Sum over the k outputs of largest |sum|, from the largest on, of what their steps are worth.
inline double worth_of_largest(Largest& magnitudes, double unit, double hessian,
                               const LeafConfig& config) {
  double worth = 0;
  for (int64_t magnitude : magnitudes.sorted())
    worth += NewtonStep(static_cast<double>(magnitude) * unit, hessian, config).gain;
  return worth;
}

}  // namespace polyleaf
