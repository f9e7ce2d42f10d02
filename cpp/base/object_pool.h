// Objects that are reused in order: for the nodes of one tree, then for those of the next. The
// memory of their vectors is kept.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "base/check.h"

namespace polyleaf {

template <class T>
class ObjectPool {
 public:
  size_t size() const { return size_; }
  void clear() { size_ = 0; }
  // Return the next object, in the state of its last use. Its address does not change.
  T& add() {
    if (size_ == items_.size()) items_.push_back(std::make_unique<T>());
    return *items_[size_++];
  }
  T& operator[](size_t i) {
    POLYLEAF_DCHECK(i < size_);
    return *items_[i];
  }
  const T& operator[](size_t i) const {
    POLYLEAF_DCHECK(i < size_);
    return *items_[i];
  }

 private:
  std::vector<std::unique_ptr<T>> items_;
  size_t size_ = 0;
};

}  // namespace polyleaf
