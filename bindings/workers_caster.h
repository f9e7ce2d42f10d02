// What Python may give where the core asks who does the work: a number of threads, or an object that says so
// in `n_threads` (polyleaf.threads.Workers). Included wherever a bound function takes `Workers`.
#pragma once
#include <nanobind/nanobind.h>

#include <optional>

#include "base/workers.h"

template <>
struct nanobind::detail::type_caster<polyleaf::Workers> {
  using Value = polyleaf::Workers;
  static constexpr auto Name = const_name("int | polyleaf.threads.Workers");
  template <class>
  using Cast = Value;
  template <class>
  static constexpr bool can_cast() {
    return true;
  }

  bool from_python(handle source, uint8_t flags, cleanup_list* cleanup) noexcept {
    make_caster<int> number;
    const object told =
        steal(PyLong_Check(source.ptr()) ? nullptr : PyObject_GetAttrString(source.ptr(), "n_threads"));
    PyErr_Clear();
    if (!number.from_python(told.is_valid() ? handle(told) : source, flags, cleanup)) return false;
    workers_.emplace(number.value);
    return true;
  }
  explicit operator Value() const { return *workers_; }

 private:
  std::optional<Value> workers_;
};
