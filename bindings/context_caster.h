// What Python may give where the core asks who does the work: a number of threads, or an object
// that says so in `n_threads` and knows the other ranks in `communicator`
// (polyleaf.runtime.context.Context). Included wherever a bound function takes `Workers`.
#pragma once
#include <nanobind/nanobind.h>

#include <optional>

#include "base/context.h"
#include "python_communicator.h"

template <>
struct nanobind::detail::type_caster<polyleaf::Workers> {
  using Value = polyleaf::Workers;
  static constexpr auto Name = const_name("int | polyleaf.runtime.context.Context");
  template <class>
  using Cast = Value;
  template <class>
  static constexpr bool can_cast() {
    return true;
  }

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    const object told = steal(
        PyLong_Check(source.ptr()) ? nullptr : PyObject_GetAttrString(source.ptr(), "n_threads"));
    PyErr_Clear();
    PyObject* number = told.is_valid() ? told.ptr() : source.ptr();
    if (!PyLong_Check(number)) return false;
    int overflow = 0;
    const long long n = PyLong_AsLongLongAndOverflow(number, &overflow);
    const long long most = Value::kMostThreads;
    workers_.emplace(overflow > 0 || n > most ? Value::kMostThreads
                     : n < 1                  ? 1
                                              : static_cast<int>(n));
    return told.is_valid() ? knows_others(source) : true;
  }
  explicit operator Value() const { return *workers_; }

 private:
  bool knows_others(handle source) noexcept try {
    const object communicator = getattr(source, "communicator");
    if (cast<int>(communicator.attr("size")) > 1)
      workers_->communicator = std::make_shared<polyleaf::PythonCommunicator>(communicator);
    return true;
  } catch (const std::exception&) {
    PyErr_Clear();
    return false;
  }

  std::optional<Value> workers_;
};
