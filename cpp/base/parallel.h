// A persistent thread pool that runs numbered tasks. No result may depend on which thread ran a
// task: a task writes only to its own memory, and sums across tasks are integers or are taken in
// task order.
//
// `PhaseTimer` measures the phases of tree building, summed over threads, while timing is on.
#pragma once
#include <atomic>
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
// them; `thread` is in [0, n_threads)). Each thread begins with its own share of consecutive tasks,
// in order, so that the same thread, and its caches, tend to see the same rows or tiles again; then
// it takes half of what others have left. The first exception of a task is rethrown after the
// others have ended. A call from inside a task of several threads runs its tasks on the calling
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

enum class Phase { kHistograms, kSplitFinding, kPartition };
constexpr int kPhases = 3;

struct PhaseTimes {
  std::atomic<bool> is_on{false};
  std::atomic<int64_t> nanoseconds[kPhases] = {};
};
inline PhaseTimes phase_times;

// Adds the time until its end to a phase.
class PhaseTimer {
 public:
  explicit PhaseTimer(Phase phase)
      : phase_(phase), is_on_(phase_times.is_on.load(std::memory_order_relaxed)) {
    if (is_on_) begin_ = read_clock();
  }
  ~PhaseTimer() {
    if (is_on_) add();
  }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

  // End the phase and begin another one.
  void next(Phase phase) {
    if (is_on_) add();
    phase_ = phase;
  }

 private:
  static int64_t read_clock();  // in nanoseconds
  void add();                   // and begin anew

  Phase phase_;
  bool is_on_;
  int64_t begin_;
};

}  // namespace polyleaf
