// A grower as Python holds it.
#pragma once
#include <memory>
#include <utility>

#include "arrays.h"
#include "device/row_partitioner.h"
#include "grower/grower.h"
#include "search_handle.h"

namespace polyleaf {

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
