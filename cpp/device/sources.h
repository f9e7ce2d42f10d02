// The text of the kernels, for a compiler that is called while the program runs. The build writes
// it (cpp/CMakeLists.txt).
#pragma once

namespace polyleaf {

struct DeviceSource {
  const char* name;  // as it is included
  const char* text;
};
extern const DeviceSource kDeviceSources[];
extern const int kDeviceSourceCount;

constexpr const char* kDeviceProgram = "device/kernels/all.cu";  // the one that includes all others

}  // namespace polyleaf
