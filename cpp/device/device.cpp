#include "device/device.h"

#if defined(__unix__) || defined(__APPLE__)
#include <dlfcn.h>
#endif

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace polyleaf {
namespace {

constexpr int kOutOfMemory = 2;

#if defined(__unix__) || defined(__APPLE__)
void* open(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    throw DeviceError("No driver of CUDA was found (" + library +
                      "): there is no NVIDIA GPU, or its driver is not installed.");
  return handle;
}
void* symbol(void* library, const char* name) {
  return dlsym(library, name);
}
#else
void* open(const std::string&) {
  throw DeviceError("Devices are for Linux.");
}
void* symbol(void*, const char*) {
  return nullptr;
}
#endif

template <class F>
void find(void* library, const char* name, F*& function) {
  function = reinterpret_cast<F*>(symbol(library, name));
  if (function == nullptr)
    throw DeviceError(std::string("The driver of CUDA has no ") + name +
                      ": it is too old, update it.");
}

}  // namespace

// The library is never unloaded: the driver does not support it.
Driver::Driver(const std::string& library) {
  void* const from = open(library);
  find(from, "cuInit", init);
  find(from, "cuDriverGetVersion", driver_version);
  find(from, "cuDeviceGetCount", device_count);
  find(from, "cuDeviceGet", device);
  find(from, "cuDeviceGetName", device_name);
  find(from, "cuDeviceGetAttribute", device_attribute);
  find(from, "cuDevicePrimaryCtxRetain", retain_context);
  find(from, "cuDevicePrimaryCtxRelease_v2", release_context);
  find(from, "cuCtxPushCurrent_v2", push_context);
  find(from, "cuCtxPopCurrent_v2", pop_context);
  find(from, "cuStreamCreate", create_stream);
  find(from, "cuStreamDestroy_v2", destroy_stream);
  find(from, "cuStreamSynchronize", synchronize);
  find(from, "cuModuleLoadData", load_module);
  find(from, "cuModuleUnload", unload_module);
  find(from, "cuModuleGetFunction", function);
  find(from, "cuFuncGetAttribute", function_attribute);
  find(from, "cuFuncSetAttribute", set_function_attribute);
  find(from, "cuMemGetInfo_v2", memory_info);
  find(from, "cuMemAlloc_v2", allocate);
  find(from, "cuMemFree_v2", free);
  find(from, "cuMemAllocHost_v2", allocate_host);
  find(from, "cuMemFreeHost", free_host);
  find(from, "cuMemcpyHtoDAsync_v2", to_device);
  find(from, "cuMemcpyDtoHAsync_v2", to_host);
  find(from, "cuMemcpyDtoDAsync_v2", copy);
  find(from, "cuMemsetD8Async", fill);
  find(from, "cuPointerGetAttribute", pointer_attribute);
  find(from, "cuGetErrorString", error_string);
  find(from, "cuLaunchKernel", launch);
}

void Driver::check(int result, const char* what) const {
  if (result == 0) return;
  const char* sentence = nullptr;
  error_string(result, &sentence);
  const std::string message = std::string("The device failed to ") + what + ": " +
                              (sentence != nullptr ? sentence : "the driver does not say why") +
                              " (error " + std::to_string(result) + ").";
  if (result == kOutOfMemory) throw OutOfDeviceMemory(message);
  throw DeviceError(message);
}

namespace {

// Attribute numbers of the CUDA driver.
constexpr int kMultiprocessors = 16, kProcessorThreads = 39, kMajor = 75, kMinor = 76,
              kProcessorMemory = 81, kBlockMemory = 97;
constexpr int kSharedBytesAttribute = 1, kMaxDynamicSharedAttribute = 8;
constexpr int kPointerOrdinalAttribute = 9;
constexpr unsigned kNonBlocking = 1;

constexpr int64_t kBlocksPerProcessor = 8;
constexpr size_t kReservedBytes = 1024;  // shared memory of each block that the driver uses
constexpr size_t kStagingBytes = size_t{4} << 20;  // staging memory for small copies to the device

std::string gibibytes(size_t bytes) {
  const auto tenths = static_cast<int64_t>(10.0 * static_cast<double>(bytes) / (1 << 30) + 0.5);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
}

}  // namespace

// Locks the device for a thread and makes its context current; restores the previous context on
// destruction.
class Device::ContextLock {
 public:
  explicit ContextLock(const Device& device) : lock_(device.mutex_), driver_(device.driver_) {
    driver_.check(driver_.push_context(device.context_), "be made current");
  }
  ~ContextLock() {
    void* before;
    driver_.pop_context(&before);
  }

 private:
  const std::lock_guard<std::mutex> lock_;
  const Driver& driver_;
};

Device::Device(const std::string& driver, int ordinal) : driver_(driver) {
  driver_.check(driver_.init(0), "start");
  int n = 0;
  driver_.check(driver_.device_count(&n), "be counted");
  if (ordinal < 0 || ordinal >= n)
    throw DeviceError("There is no CUDA device " + std::to_string(ordinal) + ": the driver sees " +
                      std::to_string(n) + ".");
  driver_.check(driver_.device(&device_, ordinal), "be found");
  n_processors_ = attribute(kMultiprocessors);
  block_memory_ = static_cast<size_t>(attribute(kBlockMemory));
  processor_memory_ = static_cast<size_t>(attribute(kProcessorMemory));
  processor_threads_ = attribute(kProcessorThreads);
  driver_.check(driver_.retain_context(&context_, device_), "give a context");
  const ContextLock lock(*this);
  driver_.check(driver_.create_stream(&stream_, kNonBlocking), "make a stream");
  driver_.check(driver_.allocate_host(&staging_, kStagingBytes), "take memory of this machine");
}

Device::~Device() {
  if (driver_.push_context(context_) == 0) {
    driver_.synchronize(stream_);
    if (module_ != nullptr) driver_.unload_module(module_);
    driver_.free_host(staging_);
    driver_.destroy_stream(stream_);
    void* before;
    driver_.pop_context(&before);
  }
  driver_.release_context(device_);
}

int Device::attribute(int number) const {
  int value = 0;
  driver_.check(driver_.device_attribute(&value, number, device_), "tell what it is");
  return value;
}

std::string Device::name() const {
  char name[256] = {};
  driver_.check(driver_.device_name(name, sizeof(name) - 1, device_), "tell its name");
  return name;
}

int Device::driver_version() const {
  int version = 0;
  driver_.check(driver_.driver_version(&version), "tell its version");
  return version;
}

std::string Device::architecture() const {
  return "sm_" + std::to_string(10 * attribute(kMajor) + attribute(kMinor));
}

size_t Device::free_memory() const {
  const ContextLock lock(*this);
  size_t free = 0, total = 0;
  driver_.check(driver_.memory_info(&free, &total), "tell how much memory is free");
  return free;
}

void Device::load(const void* image) {
  if (module_ != nullptr) throw std::logic_error("The device has its kernels.");
  const ContextLock lock(*this);
  driver_.check(driver_.load_module(&module_, image), "load the kernels");
}

DeviceAddress Device::allocate(size_t bytes) const {
  const ContextLock lock(*this);
  DeviceAddress address = 0;
  try {
    driver_.check(driver_.allocate(&address, std::max<size_t>(bytes, 1)), "find room");
  } catch (const OutOfDeviceMemory&) {
    size_t free = 0, total = 0;
    driver_.memory_info(&free, &total);
    throw OutOfDeviceMemory(
        "The device has no room for " + gibibytes(bytes) + " more: " + gibibytes(free) + " of " +
        gibibytes(total) +
        " are free. Lower histogram_memory or max_bins, give the device to this program "
        "alone, or use device=\"cpu\".");
  }
  return address;
}

void Device::free(DeviceAddress address) const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (driver_.push_context(context_) != 0) return;
  driver_.free(address);
  void* before;
  driver_.pop_context(&before);
}

void Device::write(DeviceAddress to, const void* from, size_t bytes) const {
  const ContextLock lock(*this);
  const bool is_small = bytes <= kStagingBytes / 4;
  if (is_small) {
    if (staging_used_ + bytes > kStagingBytes) {
      driver_.check(driver_.synchronize(stream_), "finish its work");
      staging_used_ = 0;
    }
    from = std::memcpy(static_cast<char*>(staging_) + staging_used_, from, bytes);
    staging_used_ += (bytes + 15) / 16 * 16;
  }
  driver_.check(driver_.to_device(to, from, bytes, stream_), "be written to");
  if (!is_small) driver_.check(driver_.synchronize(stream_), "finish its work");
}

void Device::read(void* to, DeviceAddress from, size_t bytes) const {
  const ContextLock lock(*this);
  driver_.check(driver_.to_host(to, from, bytes, stream_), "be read");
  driver_.check(driver_.synchronize(stream_), "finish its work");
}

void Device::copy(DeviceAddress to, DeviceAddress from, size_t bytes) const {
  const ContextLock lock(*this);
  driver_.check(driver_.copy(to, from, bytes, stream_), "copy its memory");
}

void Device::clear(DeviceAddress at, size_t bytes) const {
  const ContextLock lock(*this);
  driver_.check(driver_.fill(at, 0, bytes, stream_), "be cleared");
}

void Device::check_owns(DeviceAddress address) const {
  const ContextLock lock(*this);
  int ordinal = -1;
  if (driver_.pointer_attribute(&ordinal, kPointerOrdinalAttribute, address) != 0)
    throw DeviceError(
        "The array claims to be in GPU memory, but the driver does not know its address.");
  if (ordinal != device_)
    throw DeviceError("The array is on GPU " + std::to_string(ordinal) +
                      ", but training uses GPU " + std::to_string(device_) +
                      ": copy it there, or set CUDA_VISIBLE_DEVICES to one GPU.");
}

void Device::wait_for(uint64_t stream) const {
  const ContextLock lock(*this);
  driver_.check(driver_.synchronize(reinterpret_cast<void*>(stream)), "finish its work");
}

int Device::count_resident_blocks(int threads, size_t shared) const {
  const auto by_memory = static_cast<int>(processor_memory_ / (shared + kReservedBytes));
  return std::max(1, std::min(by_memory, processor_threads_ / threads));
}

Device::Grid Device::grid_for(int64_t n_items) const {
  const int64_t n_needed = (n_items + kThreads - 1) / kThreads;
  return {std::clamp<int64_t>(n_needed, 1, n_processors_ * kBlocksPerProcessor)};
}

void Device::launch(const char* kernel, Grid grid, int threads, size_t shared,
                    const void* args) const {
  if (module_ == nullptr) throw std::logic_error("The device has no kernels yet.");
  const ContextLock lock(*this);
  void*& function = kernels_[kernel];
  if (function == nullptr) {
    driver_.check(driver_.function(&function, module_, kernel), "find a kernel");
    int declared = 0;  // bytes of shared memory that the kernel itself declares
    driver_.check(driver_.function_attribute(&declared, kSharedBytesAttribute, function),
                  "describe a kernel");
    driver_.check(driver_.set_function_attribute(function, kMaxDynamicSharedAttribute,
                                                 static_cast<int>(block_memory_) - declared),
                  "give shared memory to a kernel");
  }
  void* arguments[] = {const_cast<void*>(args)};
  driver_.check(driver_.launch(function, static_cast<unsigned>(grid.x),
                               static_cast<unsigned>(grid.y), 1, static_cast<unsigned>(threads), 1,
                               1, static_cast<unsigned>(shared), stream_, arguments, nullptr),
                kernel);
}

}  // namespace polyleaf
