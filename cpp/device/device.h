// A GPU: its memory, and kernels that run on it in the order of the calls. Models do not depend on
// the device.
//
// All work uses one stream: a kernel sees all copies and launches before it. Only `read` waits.
// Thread-safe: calls are serialised.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace polyleaf {

// The CUDA driver, loaded at run time: neither building nor running on CPUs needs CUDA.

// A GPU error, or there is no GPU.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// The GPU is out of memory.
struct OutOfDeviceMemory : DeviceError {
  using DeviceError::DeviceError;
};

// GPU address as the driver represents it.
using DeviceAddress = unsigned long long;

struct Driver {
  // library: its file name, searched in the system's library path.
  explicit Driver(const std::string& library);

  // Throw DeviceError unless `result` is success.
  void check(int result, const char* what) const;

  int (*init)(unsigned);
  int (*driver_version)(int*);
  int (*device_count)(int*);
  int (*device)(int*, int);
  int (*device_name)(char*, int, int);
  int (*device_attribute)(int*, int, int);
  int (*retain_context)(void**, int);
  int (*release_context)(int);
  int (*push_context)(void*);
  int (*pop_context)(void**);
  int (*create_stream)(void**, unsigned);
  int (*destroy_stream)(void*);
  int (*synchronize)(void*);
  int (*load_module)(void**, const void*);
  int (*unload_module)(void*);
  int (*function)(void**, void*, const char*);
  int (*function_attribute)(int*, int, void*);
  int (*set_function_attribute)(void*, int, int);
  int (*memory_info)(size_t*, size_t*);
  int (*allocate)(DeviceAddress*, size_t);
  int (*free)(DeviceAddress);
  int (*allocate_host)(void**, size_t);
  int (*free_host)(void*);
  int (*to_device)(DeviceAddress, const void*, size_t, void*);
  int (*to_host)(void*, DeviceAddress, size_t, void*);
  int (*copy)(DeviceAddress, DeviceAddress, size_t, void*);
  int (*fill)(DeviceAddress, unsigned char, size_t, void*);
  int (*pointer_attribute)(void*, int, DeviceAddress);
  int (*error_string)(int, const char**);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                void**, void**);
};

// Source text of the kernels for run-time compilation. The build generates it (cpp/CMakeLists.txt).

struct DeviceSource {
  const char* name;  // path as in #include
  const char* text;
};
extern const DeviceSource kDeviceSources[];
extern const int kDeviceSourceCount;

// The file that includes all others.
constexpr const char* kDeviceProgram = "device/kernels/all.cu";

// Bytes per transfer between host and GPU, when rows are processed in blocks.
inline constexpr int64_t kTransferBytes = int64_t{1} << 28;

class Device {
 public:
  Device(const std::string& driver, int ordinal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  std::string name() const;
  int driver_version() const;        // 1000 * major + 10 * minor
  std::string architecture() const;  // e.g. sm_90
  int n_processors() const { return n_processors_; }
  size_t block_memory() const { return block_memory_; }  // bytes of shared memory per block
  // Return how many blocks with `shared` bytes each a multiprocessor runs at a time.
  int count_resident_blocks(int threads, size_t shared) const;
  size_t free_memory() const;

  // Load the kernels, compiled for this architecture.
  void load(const void* image);
  bool is_loaded() const { return module_ != nullptr; }

  DeviceAddress allocate(size_t bytes) const;
  void free(DeviceAddress address) const noexcept;
  void write(DeviceAddress to, const void* from, size_t bytes) const;
  void read(void* to, DeviceAddress from, size_t bytes) const;
  void copy(DeviceAddress to, DeviceAddress from, size_t bytes) const;
  void clear(DeviceAddress at, size_t bytes) const;

  // Throw DeviceError unless the memory belongs to this device.
  void check_owns(DeviceAddress address) const;
  // The driver's stream handle, for other libraries.
  uint64_t stream() const { return reinterpret_cast<uint64_t>(stream_); }
  // Wait until a stream (of this or another library) has finished.
  void wait_for(uint64_t stream) const;

  struct Grid {
    int64_t x = 1, y = 1;
  };
  // Choose a grid that gives every thread work and does not exceed what the GPU runs at once.
  Grid grid_for(int64_t n_items) const;
  template <class Args>
  void launch(Grid grid, const Args& args, int threads = kThreads) const {
    size_t shared = 0;
    if constexpr (requires { args.shared(threads); })
      shared = static_cast<size_t>(args.shared(threads));
    launch(Args::kName, grid, threads, shared, &args);
  }

  static constexpr int kThreads = 256;

 private:
  class ContextLock;
  void launch(const char* kernel, Grid grid, int threads, size_t shared, const void* args) const;
  int attribute(int number) const;

  const Driver driver_;
  mutable std::mutex mutex_;
  int device_ = 0, n_processors_ = 0, processor_threads_ = 0;
  size_t block_memory_ = 0, processor_memory_ = 0;
  void *context_ = nullptr, *stream_ = nullptr, *module_ = nullptr;
  // Staging memory of small copies, so that the caller need not wait.
  void* staging_ = nullptr;
  mutable size_t staging_used_ = 0;
  mutable std::map<std::string, void*> kernels_;
};

// GPU memory that grows and is reused, like Buffer (base/aligned_buffer.h).
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

  // Reserve `size` elements; contents are lost when it grows.
  void reserve(size_t size) {
    if (size <= size_) return;
    release();
    address_ = device_->allocate(size * sizeof(T));
    size_ = size;
  }
  size_t size() const { return size_; }
  // An address in GPU memory, for kernels.
  T* data() const { return reinterpret_cast<T*>(address_); }

  // Write the first elements; `from` may be freed afterwards.
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
  // Copy the first n elements of another buffer on this device.
  void copy(const DeviceBuffer& from, size_t n) {
    reserve(n);
    if (n > 0) device_->copy(address_, from.address_, n * sizeof(T));
  }
  // Set n elements to 0.
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

// A float32 matrix (n_rows, n_columns) in GPU memory.
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
