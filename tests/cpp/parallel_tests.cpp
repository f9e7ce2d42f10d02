// Tasks run once each, nested or not; exceptions are rethrown, and the pool survives them.
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "base/parallel.h"
#include "check.h"
#include "tests.h"

namespace polyleaf::tests {
namespace {

// WebAssembly has no threads.
bool has_threads() {
  try {
    std::thread([] {}).join();
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

}  // namespace

void test_parallel() {
  for (int n_threads : {1, 2, 3, 8}) {
    std::vector<int> ran(1000, 0);
    parallel_for(n_threads, 1000, [&](int64_t task, int thread) {
      CHECK(thread >= 0 && thread < n_threads);
      ++ran[task];
    });
    for (int count : ran) CHECK(count == 1);
  }
  std::atomic<int> inner{0};
  parallel_for(2, 4, [&](int64_t, int) { parallel_for(2, 5, [&](int64_t, int) { ++inner; }); });
  CHECK(inner == 20);
  bool thrown = false;
  try {
    parallel_for(3, 100, [](int64_t task, int) {
      if (task == 17) throw std::runtime_error("17");
    });
  } catch (const std::runtime_error& error) {
    thrown = std::strcmp(error.what(), "17") == 0;
  }
  CHECK(thrown);
  std::atomic<int> after{0};
  parallel_for(3, 10, [&](int64_t, int) { ++after; });
  CHECK(after == 10);
  // A thread that is done takes what others have left: the tasks after the first one of a share do
  // not wait for it.
  for (int n_tasks : {2, 3, 10, 1000}) {
    if (!has_threads()) break;
    std::atomic<int> n_done{0};
    parallel_for(2, n_tasks, [&](int64_t task, int) {
      while (task == 0 && n_done < n_tasks - 1) std::this_thread::yield();
      ++n_done;
    });
    CHECK(n_done == n_tasks);
  }
  // Threads that arrive late find a finished job: they must not touch it, and no task is lost.
  for (int job = 0; job < 5000; ++job) {
    std::vector<int> ran(3, 0);
    parallel_for(4, 3, [&](int64_t task, int) { ++ran[task]; });
    CHECK(ran[0] == 1 && ran[1] == 1 && ran[2] == 1);
  }
}

}  // namespace polyleaf::tests
