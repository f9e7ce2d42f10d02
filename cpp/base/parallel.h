// A persistent thread pool that runs numbered tasks. No result may depend on which thread ran a
// task: a task writes only to its own memory, and sums across tasks are integers or are taken in
// task order.
#pragma once
#include <cstdint>
#include <type_traits>

#include "base/context.h"

// Specifies a variable of each thread. glibc allocates it when the thread is created, which may
// fail, and not at its first use, where a lack of memory would abort the process.
#if defined(__GLIBC__)
#define POLYLEAF_THREAD_LOCAL __attribute__((tls_model("initial-exec"))) thread_local
#else
#define POLYLEAF_THREAD_LOCAL thread_local
#endif

namespace polyleaf {

using TaskFunction = void (*)(void* closure, int64_t task, int thread);

// Run tasks 0 .. n_tasks - 1, each once, on at most context.n_threads threads (the caller is one of
// them; `thread` is in [0, n_threads)). Tasks start in order. The first exception of a task is
// rethrown after the others have ended. A call from inside a task runs its tasks on the calling
// thread.
void run_tasks(const Context& context, int64_t n_tasks, TaskFunction function, void* closure);

template <class F>
void parallel_for(const Context& context, int64_t n_tasks, F&& f) {
  using Body = std::remove_reference_t<F>;
  run_tasks(
      context, n_tasks,
      [](void* closure, int64_t task, int thread) { (*static_cast<Body*>(closure))(task, thread); },
      const_cast<void*>(static_cast<const void*>(&f)));
}

// Rows [begin, end) of block `task` when n items are split into blocks of `size`.
struct Block {
  int64_t begin, end;
  Block(int64_t n, int64_t size, int64_t task)
      : begin(task * size), end((task + 1) * size < n ? (task + 1) * size : n) {}
  static int64_t count(int64_t n, int64_t size) { return (n + size - 1) / size; }
};

}  // namespace polyleaf
