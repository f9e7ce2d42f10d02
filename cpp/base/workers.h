// Who does the work: today so many threads of one machine. Whatever spreads its work is handed this and
// passes it on, so that a communicator (rows that lie on several machines, whose integer sums are added up)
// or a device will travel here, and no signature changes.
//
// Must not know: what the work is.
#pragma once
#include <cstdint>

namespace polyleaf {

struct Workers {
  Workers(int n_threads) : n_threads(n_threads > 1 ? n_threads : 1) {}  // a number stands for so many threads
  // As many as there are tasks for.
  Workers at_most(int64_t n_tasks) const {
    return n_tasks < n_threads ? Workers(static_cast<int>(n_tasks)) : *this;
  }

  int n_threads;  // at least 1
};

}  // namespace polyleaf
