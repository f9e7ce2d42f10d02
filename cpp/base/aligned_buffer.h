// Aligned memory that grows and is reused over trees. Contents are not initialised, and are lost
// when it grows.
#pragma once
#include <cstddef>
#include <cstdint>
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
  ~Buffer() { release(); }

  // Reserve room for `size` elements, plus one cache line that may be read past the end.
  void reserve(size_t size) {
    if (size <= size_) return;
    release();
    data_ = static_cast<T*>(allocate(allocated_bytes(size)));
    if (data_ == nullptr) throw std::bad_alloc();
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

  void release() {
    if (data_ != nullptr) deallocate(data_, allocated_bytes(size_));
    data_ = nullptr;
    size_ = 0;
  }
#if defined(_WIN32)
  static void* allocate(size_t bytes) { return _aligned_malloc(bytes, kAlign); }
  static void deallocate(void* data, size_t) { _aligned_free(data); }
#else
  static void* allocate(size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (bytes >= kHuge) return map(bytes);
#endif
    void* data = nullptr;
    return posix_memalign(&data, kAlign, bytes) == 0 ? data : nullptr;
  }
  static void deallocate(void* data, [[maybe_unused]] size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (bytes >= kHuge) {
      munmap(data, round_to_pages(bytes));
      return;
    }
#endif
    std::free(data);
  }
#endif
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  // Memory from the system, aligned to huge pages. malloc would leave gaps between large blocks,
  // and keep what is freed below them.
  static constexpr size_t kHuge = size_t{2} << 20, kPage = size_t{1} << 16;
  static size_t round_to_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
  static void* map(size_t bytes) {
    const size_t size = round_to_pages(bytes);
    void* mapped =
        mmap(nullptr, size + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    const size_t gap = kHuge - reinterpret_cast<uintptr_t>(mapped) % kHuge;
    char* data = static_cast<char*>(mapped) + gap;
    munmap(mapped, gap);
    if (gap < kHuge) munmap(data + size, kHuge - gap);
    madvise(data, size / kHuge * kHuge, MADV_HUGEPAGE);
    return data;
  }
#endif
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace polyleaf
