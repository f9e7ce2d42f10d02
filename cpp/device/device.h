// A card: its memory, and kernels that run on it one after another, in the order of the calls. A
// model does not depend on it.
//
// One stream: what is launched sees what was copied and launched before. `read` waits, nothing else
// does. Calls may come from any threads: they take turns.
//
// Owns: context, stream, module. Must not know: what kernels compute.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "device/driver.h"

namespace polyleaf {

// What goes between the host and a card at a time, where rows go in parts.
inline constexpr int64_t kTransferBytes = int64_t{1} << 28;

class Device {
 public:
  Device(const std::string& driver, int ordinal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  std::string name() const;
  int driver_version() const;        // 1000 * major + 10 * minor
  std::string architecture() const;  // sm_90
  int n_processors() const { return n_processors_; }
  size_t block_memory() const {
    return block_memory_;
  }  // bytes that the threads of a block may share
  size_t free_memory() const;

  // What `launch` knows kernels from: a program for this architecture.
  void load(const void* image);
  bool is_loaded() const { return module_ != nullptr; }

  DeviceAddress allocate(size_t bytes) const;
  void free(DeviceAddress address) const noexcept;
  void write(DeviceAddress to, const void* from, size_t bytes) const;
  void read(void* to, DeviceAddress from, size_t bytes) const;
  void copy(DeviceAddress to, DeviceAddress from, size_t bytes) const;
  void clear(DeviceAddress at, size_t bytes) const;

  // Throws a DeviceError unless memory of another library's is this device's.
  void check_owns(DeviceAddress address) const;
  // What other libraries wait for, or are told of, as a number: the driver's handle.
  uint64_t stream() const { return reinterpret_cast<uint64_t>(stream_); }
  // Until all is done that was asked for in a stream, of another library's or this one's.
  void wait_for(uint64_t stream) const;

  struct Grid {
    int64_t x = 1, y = 1;
  };
  // So many blocks that each thread has something to do, but no more than the card runs at once.
  Grid grid_for(int64_t n_items) const;
  template <class Record>
  void launch(Grid grid, const Record& record, int threads = kThreads) const {
    size_t shared = 0;
    if constexpr (requires { record.shared(threads); })
      shared = static_cast<size_t>(record.shared(threads));
    launch(Record::kName, grid, threads, shared, &record);
  }

  static constexpr int kThreads = 256;

 private:
  class Turn;
  void launch(const char* kernel, Grid grid, int threads, size_t shared, const void* record) const;
  int attribute(int number) const;

  const Driver driver_;
  mutable std::mutex mutex_;
  int device_ = 0, n_processors_ = 0;
  size_t block_memory_ = 0;
  void *context_ = nullptr, *stream_ = nullptr, *module_ = nullptr;
  // Small things on their way to the device wait here, so that whoever wrote them need not.
  void* room_ = nullptr;
  mutable size_t room_used_ = 0;
  mutable std::map<std::string, void*> kernels_;
};

// Memory of a device that grows and is reused, as Buffer (base/aligned_buffer.h).
template <class T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::shared_ptr<const Device> device) : device_(std::move(device)) {}
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : device_(other.device_),
        address_(std::exchange(other.address_, 0)),
        size_(std::exchange(other.size_, 0)) {}
  ~DeviceBuffer() { release(); }

  // Room for `size` elements, which are not kept when it grows.
  void reserve(size_t size) {
    if (size <= size_) return;
    release();
    address_ = device_->allocate(size * sizeof(T));
    size_ = size;
  }
  size_t size() const { return size_; }
  // An address on the device: for kernels, not to be read here.
  T* data() const { return reinterpret_cast<T*>(address_); }

  // These elements, first of all; `from` may be gone afterwards.
  void write(const T* from, size_t n) {
    reserve(n);
    if (n > 0) device_->write(address_, from, n * sizeof(T));
  }
  void write(const std::vector<T>& from) { write(from.data(), from.size()); }
  void read(T* to, size_t n, size_t first = 0) const {
    if (n > 0) device_->read(to, address_ + first * sizeof(T), n * sizeof(T));
  }
  std::vector<T> read(size_t n) const {
    std::vector<T> found(n);
    read(found.data(), n);
    return found;
  }
  // The first n of another buffer of this device.
  void copy(const DeviceBuffer& from, size_t n) {
    reserve(n);
    if (n > 0) device_->copy(address_, from.address_, n * sizeof(T));
  }
  // The first n become 0.
  void clear(size_t n, size_t first = 0) {
    if (first == 0) reserve(n);
    if (n > 0) device_->clear(address_ + first * sizeof(T), n * sizeof(T));
  }

 private:
  void release() {
    if (address_ != 0) device_->free(address_);
    address_ = 0;
    size_ = 0;
  }

  const std::shared_ptr<const Device> device_;
  DeviceAddress address_ = 0;
  size_t size_ = 0;
};

// A float32 matrix (n_rows, n_columns) on a device.
struct DeviceMatrix {
  DeviceMatrix(std::shared_ptr<const Device> on, int64_t n_rows, int64_t n_columns)
      : device(on), n_rows(n_rows), n_columns(n_columns), values(std::move(on)) {
    values.reserve(static_cast<size_t>(n_rows * n_columns));
  }
  size_t size() const { return static_cast<size_t>(n_rows * n_columns); }
  float* data() const { return values.data(); }

  std::shared_ptr<const Device> device;
  int64_t n_rows, n_columns;
  DeviceBuffer<float> values;
};

}  // namespace polyleaf
