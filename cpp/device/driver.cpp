#include "device/driver.h"

#if defined(__unix__) || defined(__APPLE__)
#include <dlfcn.h>
#endif

namespace polyleaf {
namespace {

constexpr int kOutOfMemory = 2;

#if defined(__unix__) || defined(__APPLE__)
void* open(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    throw DeviceError("No driver of CUDA was found (" + library +
                      "): this machine has no NVIDIA card, or the card no driver.");
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

}  // namespace polyleaf
