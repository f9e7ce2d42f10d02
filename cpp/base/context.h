// Who does the work: so many threads of this machine, and whoever has further rows of the same
// data. Whatever spreads its work is handed this and passes it on.
//
// Must not know: what the work is.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "base/collective.h"

namespace polyleaf {

struct Context {
  // What a thread needs is made for each that is asked for: no number, wherever it comes from, may
  // fill memory.
  static constexpr int kMaxThreads = 256;

  // A number stands for so many threads.
  Context(int n_threads) : n_threads(std::clamp(n_threads, 1, kMaxThreads)) {}
  // As many as there are tasks for.
  Context at_most(int64_t n_tasks) const {
    Context fewer = *this;
    if (n_tasks < n_threads) fewer.n_threads = std::max(1, static_cast<int>(n_tasks));
    return fewer;
  }

  bool is_alone() const { return communicator == nullptr; }
  // Over the rows of all ranks, in place.
  void sum(std::span<int64_t> numbers) const {
    if (is_distributed()) communicator->allreduce_sum(numbers);
  }
  int64_t sum(int64_t number) const {
    sum({&number, 1});
    return number;
  }
  void largest(std::span<double> numbers) const {
    if (is_distributed()) communicator->allreduce_max(numbers);
  }

  int n_threads;                               // 1 to kMaxThreads
  std::shared_ptr<Communicator> communicator;  // nullptr: nobody else
};

}  // namespace polyleaf
