// A communicator that is a Python object (polyleaf.runtime.collective): takes the GIL, and hands
// its arrays over.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/collective.h"

namespace polyleaf {

class PythonCommunicator final : public Communicator {
 public:
  // With the GIL held.
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
  void sum(std::span<int64_t> numbers) override {
    const nanobind::gil_scoped_acquire gil;
    object_.attr("sum")(array(numbers));
  }
  void largest(std::span<double> numbers) override {
    const nanobind::gil_scoped_acquire gil;
    object_.attr("largest")(array(numbers));
  }
  void sum_shares(std::span<int32_t> numbers, std::span<const int64_t> begin,
                  const std::shared_ptr<const void>& owner) override {
    const nanobind::gil_scoped_acquire gil;
    using Owner = std::shared_ptr<const void>;
    const nanobind::capsule held(new Owner(owner),
                                 [](void* p) noexcept { delete static_cast<Owner*>(p); });
    nanobind::list shares;
    for (size_t r = 0; r + 1 < begin.size(); ++r)
      shares.append(array(numbers.subspan(begin[r], begin[r + 1] - begin[r]), held));
    using Summed = nanobind::ndarray<const int32_t, nanobind::ndim<1>, nanobind::c_contig>;
    const Summed found = nanobind::cast<Summed>(object_.attr("sum_shares")(shares));
    if (found.data() != numbers.data() + begin[rank_])  // they may be added up in place
      std::memcpy(numbers.data() + begin[rank_], found.data(), found.size() * sizeof(int32_t));
  }
  std::vector<std::vector<std::byte>> exchange(
      const std::vector<std::vector<std::byte>>& blocks) override {
    const nanobind::gil_scoped_acquire gil;
    nanobind::list handed;
    for (const std::vector<std::byte>& block : blocks)
      handed.append(nanobind::bytes(block.data(), block.size()));
    return copied(object_.attr("exchange")(handed));
  }
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> data) override {
    const nanobind::gil_scoped_acquire gil;
    return copied(object_.attr("gather")(nanobind::bytes(data.data(), data.size())));
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
