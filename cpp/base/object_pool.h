// Objects that are made, in order, over and over: for the nodes of one tree, then for those of the
// next. What their vectors have allocated stays.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

namespace polyleaf {

template <class T>
class ObjectPool {
 public:
  size_t size() const { return size_; }
  void clear() { size_ = 0; }
  // The next object, as it was left when it was last used. It does not move.
  T& add() {
    if (size_ == items_.size()) items_.push_back(std::make_unique<T>());
    return *items_[size_++];
  }
  T& operator[](size_t i) { return *items_[i]; }
  const T& operator[](size_t i) const { return *items_[i]; }

 private:
  std::vector<std::unique_ptr<T>> items_;
  size_t size_ = 0;
};

}  // namespace polyleaf
