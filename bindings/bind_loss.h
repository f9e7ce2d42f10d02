// How a loss of the core's tables is made by name, whatever it is a loss of.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

namespace nb = nanobind;

namespace polyleaf {

template <class L>
nb::class_<L> bind_loss(nb::module_& m, const char* name, const char* doc) {
  return nb::class_<L>(m, name, doc)
      .def(nb::init<const std::string&, const typename L::Parameters&>(), nb::arg("name"),
           nb::arg("parameters"), "The loss of that name, with all its parameters.")
      .def_static("available", &L::available, "Name of every loss -> names of its parameters.");
}

}  // namespace polyleaf
