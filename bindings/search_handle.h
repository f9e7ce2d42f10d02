// A search with the objects that it uses. They stay alive until the search uses other objects or is
// reset.
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
  // Return the search, for the next tree or layer of a grower on `bins`.
  Search& get(const Bins& bins) {
    require(&bins == &bins_, "The search must use the grower's bins.");
    require(is_ready(), "Call use() of the search before growing a tree.");
    require(search().sample().n_all == bins.n_rows(),
            "The gradients of the search must have as many rows as the bins.");
    return search();
  }
  virtual bool is_ready() const { return objects_ != nullptr; }
  // Release the objects in use. Call with the GIL held.
  void reset() { objects_.reset(); }

  const void* grower = nullptr;  // grower that uses the search step by step

 protected:
  virtual Search& search() = 0;
  // Keep Python objects and arrays alive. Call reset() before the search takes new ones, so that a
  // search that rejects them is not used for a tree.
  template <class... Objects>
  void retain(Objects... objects) {
    objects_ = std::make_shared<std::tuple<Objects...>>(std::move(objects)...);
  }

 private:
  const Bins& bins_;
  std::shared_ptr<void> objects_;
};

// A grower, with the search of the tree that is being grown step by step.
struct GrowerHandle {
  GrowerHandle(const Bins& bins, const Context& context) : grower(bins, context) {}
  GrowerHandle(std::unique_ptr<RowPartitioner> rows, const Context& context)
      : grower(std::move(rows), context) {}
  Grower grower;
  nb::object held;

  const uint8_t* flags(const Optional1<const bool>& features) const {
    if (!features) return nullptr;
    require(static_cast<int>(features->size()) == grower.bins().n_features(),
            "features must have one flag per feature.");
    return reinterpret_cast<const uint8_t*>(features->data());
  }
  SearchHandle& search() const {
    require(held.is_valid(), "No tree is being grown: call begin first.");
    auto& search = nb::cast<SearchHandle&>(held);
    require(search.grower == this, "The search has begun another tree.");
    return search;
  }
};

}  // namespace polyleaf
