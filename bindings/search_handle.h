// A search with the objects that it uses, which stay alive until the search uses others or is
// reset.
#pragma once
#include <memory>
#include <tuple>
#include <utility>

#include "arrays.h"
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
    require(is_ready(), "Call use() of the search before a tree is grown.");
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

}  // namespace polyleaf
