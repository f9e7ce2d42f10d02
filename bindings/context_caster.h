// Conversion of a number of threads, or of an object with `n_threads` and `communicator`
// (polyleaf.runtime.context.Context), to Context. Include it wherever a bound function takes a
// Context.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/context.h"

namespace polyleaf {

class PythonCommunicator final : public Communicator {
 public:
  // Call with the GIL held.
  explicit PythonCommunicator(nanobind::object object)
      : object_(std::move(object)),
        rank_(nanobind::cast<int>(object_.attr("rank"))),
        size_(nanobind::cast<int>(object_.attr("size"))) {}
  ~PythonCommunicator() override {
    const nanobind::gil_scoped_acquire gil;
    object_.reset();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void allreduce_sum(std::span<int64_t> numbers) override {
    const nanobind::gil_scoped_acquire gil;
    object_.attr("allreduce_sum")(array(numbers));
  }
  void allreduce_max(std::span<double> numbers) override {
    const nanobind::gil_scoped_acquire gil;
    object_.attr("allreduce_max")(array(numbers));
  }
  std::vector<Block> alltoall(std::span<const Block> blocks) override {
    const nanobind::gil_scoped_acquire gil;
    nanobind::list arguments;
    for (const Block& block : blocks) {
      using Owner = std::shared_ptr<const void>;
      const nanobind::capsule held(new Owner(block.owner),
                                   [](void* p) noexcept { delete static_cast<Owner*>(p); });
      arguments.append(
          array(std::span(reinterpret_cast<const uint8_t*>(block.bytes.data()), block.bytes.size()),
                held));
    }
    std::vector<Block> received;
    for (nanobind::handle each : object_.attr("alltoall")(arguments))
      received.push_back(view(each));
    return received;
  }
  std::vector<std::vector<std::byte>> allgather(std::span<const std::byte> data) override {
    const nanobind::gil_scoped_acquire gil;
    return copied(object_.attr("allgather")(nanobind::bytes(data.data(), data.size())));
  }

 private:
  static std::vector<std::vector<std::byte>> copied(nanobind::handle blocks) {
    std::vector<std::vector<std::byte>> found;
    for (nanobind::handle each : blocks) {
      const nanobind::bytes bytes(each);
      const std::byte* begin = static_cast<const std::byte*>(bytes.data());
      found.emplace_back(begin, begin + bytes.size());
    }
    return found;
  }

  // Return the bytes of a Python object, which are copied only if they are not aligned.
  static Block view(nanobind::handle object) {
    const std::shared_ptr<Py_buffer> buffer(new Py_buffer{}, [](Py_buffer* held) {
      const nanobind::gil_scoped_acquire gil;
      PyBuffer_Release(held);
      delete held;
    });
    if (PyObject_GetBuffer(object.ptr(), buffer.get(), PyBUF_SIMPLE) != 0)
      nanobind::raise_python_error();
    const std::span bytes(static_cast<const std::byte*>(buffer->buf),
                          static_cast<size_t>(buffer->len));
    if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(int32_t) == 0) return {bytes, buffer};
    const auto copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
    return {*copy, copy};
  }

  template <class T>
  static nanobind::object array(std::span<T> numbers, nanobind::handle owner = {}) {
    return nanobind::cast(nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>(
                              numbers.data(), {numbers.size()}, owner),
                          nanobind::rv_policy::reference);
  }

  nanobind::object object_;
  int rank_, size_;
};

}  // namespace polyleaf

template <>
struct nanobind::detail::type_caster<polyleaf::Context> {
  using Value = polyleaf::Context;
  static constexpr auto Name = const_name("int | polyleaf.runtime.context.Context");
  template <class>
  using Cast = Value;
  template <class>
  static constexpr bool can_cast() {
    return true;
  }

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    const object context = steal(
        PyLong_Check(source.ptr()) ? nullptr : PyObject_GetAttrString(source.ptr(), "n_threads"));
    PyErr_Clear();
    PyObject* number = context.is_valid() ? context.ptr() : source.ptr();
    if (!PyLong_Check(number)) return false;
    int overflow = 0;
    const long long n = PyLong_AsLongLongAndOverflow(number, &overflow);
    const long long most = Value::kMaxThreads;
    context_.emplace(overflow > 0 || n > most ? Value::kMaxThreads
                     : n < 1                  ? 1
                                              : static_cast<int>(n));
    return context.is_valid() ? read_communicator(source) : true;
  }
  explicit operator Value() const { return *context_; }

 private:
  bool read_communicator(handle source) noexcept try {
    const object communicator = getattr(source, "communicator");
    if (cast<int>(communicator.attr("size")) > 1)
      context_->communicator = std::make_shared<polyleaf::PythonCommunicator>(communicator);
    return true;
  } catch (const std::exception&) {
    PyErr_Clear();
    return false;
  }

  std::optional<Value> context_;
};
