// Source text of the kernels for run-time compilation. The build generates it (cpp/CMakeLists.txt).
#pragma once

namespace polyleaf {

struct DeviceSource {
  const char* name;  // path as in #include
  const char* text;
};
extern const DeviceSource kDeviceSources[];
extern const int kDeviceSourceCount;

constexpr const char* kDeviceProgram =
    "device/kernels/all.cu";  // the file that includes all others

}  // namespace polyleaf
