// Aligned memory that grows and is reused over trees. Contents are not initialised, and are lost
// when it grows.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

#include "base/check.h"

#if defined(__linux__)
#include <sys/mman.h>
#elif defined(_WIN32)
#include <malloc.h>
#endif

namespace polyleaf {

template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t size) { reserve(size); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer() { release(data_); }

  // Reserve room for `size` elements, plus one cache line that may be read past the end.
  void reserve(size_t size) {
    if (size <= size_) return;
    release(data_);
    data_ = nullptr;
    size_ = 0;
    const size_t bytes = allocated_bytes(size), align = bytes >= kHuge ? kHuge : kAlign;
    data_ = static_cast<T*>(allocate(align, bytes));
    if (data_ == nullptr) throw std::bad_alloc();
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (align == kHuge) madvise(data_, bytes / kHuge * kHuge, MADV_HUGEPAGE);
#endif
    size_ = size;
  }
  // Return the memory that `size` elements take. Large buffers use huge pages where the system has
  // them: histograms touch memory at random.
  static size_t allocated_bytes(size_t size) {
    return (size * sizeof(T) + 2 * kAlign - 1) / kAlign * kAlign;
  }
  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  T& operator[](size_t i) {
    POLYLEAF_DCHECK(i < size_);
    return data_[i];
  }
  const T& operator[](size_t i) const {
    POLYLEAF_DCHECK(i < size_);
    return data_[i];
  }
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

 private:
  static constexpr size_t kAlign = 64;
  static constexpr size_t kHuge = size_t{2} << 20;
#if defined(_WIN32)
  static void* allocate(size_t align, size_t bytes) { return _aligned_malloc(bytes, align); }
  static void release(void* data) { _aligned_free(data); }
#else
  static void* allocate(size_t align, size_t bytes) {
    void* data = nullptr;
    return posix_memalign(&data, align, bytes) == 0 ? data : nullptr;
  }
  static void release(void* data) { std::free(data); }
#endif
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace polyleaf
