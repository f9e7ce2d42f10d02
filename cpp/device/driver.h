// The CUDA driver, loaded at run time: neither building nor running on CPUs needs CUDA.
#pragma once
#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>

namespace polyleaf {

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

}  // namespace polyleaf
