// Who does the work: today so many threads of one machine. Whatever spreads its work is handed this and
// passes it on, so that a communicator (rows that lie on several machines, whose integer sums are added up)
// or a device will travel here, and no signature changes.
//
// Must not know: what the work is.
#pragma once
#include <algorithm>
#include <cstdint>

namespace polyleaf {

struct Workers {
  // What a thread needs is made for each that is asked for: no number, wherever it comes from, may fill
  // memory.
  static constexpr int kMostThreads = 256;

  // A number stands for so many threads.
  Workers(int n_threads) : n_threads(std::clamp(n_threads, 1, kMostThreads)) {}
  // As many as there are tasks for.
  Workers at_most(int64_t n_tasks) const {
    return n_tasks < n_threads ? Workers(static_cast<int>(n_tasks)) : *this;
  }

  int n_threads;  // 1 to kMostThreads
};

}  // namespace polyleaf
