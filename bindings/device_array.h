// An array on a device as Python holds it, with whoever owns its memory.
#pragma once
#include <string>

#include "arrays.h"
#include "device/array.h"

namespace polyleaf {

struct DeviceArrayHandle {
  DeviceArray array;
  size_t n_dimensions;
  nb::object owner;
  nb::ndarray<nb::ro> handed;  // where another library has handed it over

  nb::tuple shape() const;
  std::string typestr() const;
};

void bind_device_arrays(nb::module_& m);

}  // namespace polyleaf
