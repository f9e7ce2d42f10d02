// A search as Python holds it: beside it what it was told to use, which lives until the search is
// told to use something else, or to let go.
//
// Owns: lifetimes, and that a search is asked only for trees that it can find splits of. Must not
// know: which searches there are.
#pragma once
#include <memory>
#include <tuple>
#include <utility>

#include "arrays.h"
#include "device/row_partitioner.h"
#include "grower/grower.h"
#include "grower/search.h"

namespace polyleaf {

class SearchHandle {
 public:
  explicit SearchHandle(const Bins& bins) : bins_(bins) {}
  virtual ~SearchHandle() = default;
  SearchHandle(const SearchHandle&) = delete;
  SearchHandle& operator=(const SearchHandle&) = delete;

  const Bins& bins() const { return bins_; }
  // The search, for the next tree or layer of a grower on `bins`.
  Search& get(const Bins& bins) {
    require(&bins == &bins_, "The search must be over the grower's bins.");
    require(is_ready(), "The search must be told what to use before a tree is grown.");
    require(search().sample().n_all == bins.n_rows(),
            "What the search uses must have as many rows as the bins.");
    return search();
  }
  virtual bool is_ready() const { return held_ != nullptr; }
  // Call with the GIL held.
  void reset() { held_.reset(); }

  const void* grower = nullptr;  // that grows a tree with it step by step

 protected:
  virtual Search& search() = 0;
  // Keeps Python objects and arrays alive. Released before the search is told to use others, so
  // that one that fails to take them on is not asked for a tree.
  template <class... Objects>
  void retain(Objects... objects) {
    held_ = std::make_shared<std::tuple<Objects...>>(std::move(objects)...);
  }

 private:
  const Bins& bins_;
  std::shared_ptr<void> held_;
};

// A grower, and the search of the tree that it grows step by step.
struct GrowerHandle {
  GrowerHandle(const Bins& bins, const Context& context) : grower(bins, context) {}
  GrowerHandle(std::unique_ptr<RowPartitioner> rows, const Context& context)
      : grower(std::move(rows), context) {}
  Grower grower;
  nb::object held;

  const uint8_t* flags(const Optional1<const bool>& features) const {
    if (!features) return nullptr;
    require(static_cast<int>(features->size()) == grower.bins().n_features(),
            "features needs one flag per feature.");
    return reinterpret_cast<const uint8_t*>(features->data());
  }
  SearchHandle& search() const {
    require(held.is_valid(), "No tree is being grown: call begin first.");
    auto& search = nb::cast<SearchHandle&>(held);
    require(search.grower == this, "The search has begun another tree.");
    return search;
  }
  // Where they lie on a device.
  DeviceRowPartitioner& device_rows() {
    auto* const rows = dynamic_cast<DeviceRowPartitioner*>(&grower.rows());
    require(rows != nullptr, "The rows of this grower lie on no device.");
    return *rows;
  }
};

}  // namespace polyleaf
