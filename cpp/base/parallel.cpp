#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

#include "base/check.h"

namespace polyleaf {
namespace {

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

POLYLEAF_THREAD_LOCAL bool inside_task = false;

// The tasks that a thread has yet to run, first .. end - 1. The thread takes them from the front;
// others steal from the end.
class alignas(64) TaskRange {
 public:
  static constexpr int64_t kMaxTasks = UINT32_MAX;

  void set(int64_t first, int64_t end) {
    range_.store(static_cast<uint64_t>(first) << 32 | static_cast<uint64_t>(end),
                 std::memory_order_relaxed);
  }
  // Take the first task; return -1 if none is left.
  int64_t take() {
    uint64_t range = range_.load(std::memory_order_relaxed);
    while (first(range) < end(range))
      if (range_.compare_exchange_weak(range, range + (uint64_t{1} << 32),
                                       std::memory_order_relaxed))
        return first(range);
    return -1;
  }
  // Move the last half of the tasks, rounded up, to an empty range; return whether there were any.
  bool give_half(TaskRange& to) {
    uint64_t range = range_.load(std::memory_order_relaxed);
    while (first(range) < end(range)) {
      const int64_t middle = first(range) + (end(range) - first(range)) / 2;
      if (!range_.compare_exchange_weak(range, range - static_cast<uint64_t>(end(range) - middle),
                                        std::memory_order_relaxed))
        continue;
      to.set(middle, end(range));
      return true;
    }
    return false;
  }

 private:
  static int64_t first(uint64_t range) { return static_cast<int64_t>(range >> 32); }
  static int64_t end(uint64_t range) { return static_cast<int64_t>(range & UINT32_MAX); }
  std::atomic<uint64_t> range_{0};
};

// One call of run_tasks. It lives on the caller's stack; workers hold it only while they work.
struct Job {
  TaskFunction function = nullptr;
  void* closure = nullptr;
  int n_threads = 0;
  TaskRange* ranges = nullptr;  // of each thread
  std::atomic<bool> has_failed{false};
  std::mutex error_mutex;
  std::exception_ptr error;

  void work(int thread) {
    inside_task = true;
    TaskRange& own = ranges[thread];
    do {
      for (int64_t task; (task = own.take()) >= 0;) run(task, thread);
    } while (steal(own, thread));
    inside_task = false;
  }
  void run(int64_t task, int thread) {
    if (has_failed.load(std::memory_order_relaxed)) return;
    try {
      function(closure, task, thread);
    } catch (...) {
      std::lock_guard<std::mutex> lock(error_mutex);
      if (!error) error = std::current_exception();
      has_failed.store(true, std::memory_order_relaxed);
    }
  }
  bool steal(TaskRange& own, int thread) {
    for (int i = 1; i < n_threads; ++i)
      if (ranges[(thread + i) % n_threads].give_half(own)) return true;
    return false;
  }
};

class ThreadPool {
 public:
  // Waiting threads spin this often before they let others run, and yield this often before they
  // sleep: waking a thread takes longer than most of the serial parts of a tree.
  static constexpr int kSpins = 2000, kYields = 200;

  void run(const Context& context, int64_t n_tasks, Job& job) {
    std::lock_guard<std::mutex> one_job(run_mutex_);
    const int n_workers = grow(context.n_threads - 1);
    job.n_threads = 1 + n_workers;
    job.ranges = ranges_;
    for (int t = 0; t <= n_workers; ++t)
      ranges_[t].set(n_tasks * t / job.n_threads, n_tasks * (t + 1) / job.n_threads);
    job_ = &job;
    n_done_.store(0, std::memory_order_relaxed);
    const uint64_t number = (state_.load(std::memory_order_relaxed) >> 32) + 1;
    state_.store(number << 32 | static_cast<uint64_t>(n_workers) << 16);
    if (n_sleeping_.load() > 0) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
      }
      wake_.notify_all();
    }
    job.work(0);
    // No task is left. Workers that have not joined by now, because the machine is busy with other
    // programs, are not waited for: each wait would cost a time slice of the system, many times per
    // tree.
    const auto n_joined = static_cast<int>(state_.exchange(number << 32) & 0xffff);
    for (int spins = 0; n_done_.load(std::memory_order_acquire) != n_joined; ++spins) wait(spins);
  }

 private:
  static void wait(int spins) {
    if (spins < kSpins)
      relax();
    else
      std::this_thread::yield();
  }

  // Create threads up to `n_workers`; return how many there are. If the system refuses, the results
  // do not change.
  int grow(int n_workers) {
    try {
      while (static_cast<int>(workers_.size()) < n_workers) {
        const int index = static_cast<int>(workers_.size());
        const uint64_t seen = state_.load(std::memory_order_relaxed) >> 32;
        workers_.emplace_back([this, index, seen] { loop(index, seen); });
        workers_.back().detach();
      }
    } catch (const std::system_error&) {
    }
    return std::min(n_workers, static_cast<int>(workers_.size()));
  }

  void loop(int index, uint64_t seen) {
    for (;;) {
      uint64_t state = wait_for_job(seen);
      seen = state >> 32;
      bool has_joined = false;
      while (!has_joined && state >> 32 == seen && index < static_cast<int>(state >> 16 & 0xffff))
        has_joined = state_.compare_exchange_weak(state, state + 1);
      if (!has_joined) continue;
      job_->work(index + 1);
      n_done_.fetch_add(1, std::memory_order_release);
    }
  }

  // Return the state once it is that of another job than `seen`.
  uint64_t wait_for_job(uint64_t seen) {
    for (int spins = 0; spins < kSpins + kYields; ++spins) {
      const uint64_t state = state_.load(std::memory_order_acquire);
      if (state >> 32 != seen) return state;
      wait(spins);
    }
    std::unique_lock<std::mutex> lock(mutex_);
    ++n_sleeping_;
    // `wait` without a limit would bind the wheel to the C++ library of GCC 12 or newer.
    const auto has_job = [&] { return state_.load() >> 32 != seen; };
    while (!wake_.wait_for(lock, std::chrono::hours(1), has_job)) {
    }
    --n_sleeping_;
    return state_.load();
  }

  // One job at a time: concurrent fits from several Python threads take turns.
  std::mutex run_mutex_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
  std::atomic<int> n_sleeping_{0};
  Job* job_ = nullptr;
  // Number of the job (32 bits), how many workers may join (16; 0: none any more), and how many
  // have joined.
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<int> n_done_{0};  // workers that have finished the job
  TaskRange ranges_[Context::kMaxThreads];
};

// Never destroyed: detached workers may outlive static destructors. After a fork the child starts a
// new pool, because threads do not survive it.
ThreadPool* pool_instance = nullptr;
std::once_flag pool_once;

ThreadPool& pool() {
  std::call_once(pool_once, [] {
    pool_instance = new ThreadPool;
#if defined(__unix__) || defined(__APPLE__)
    pthread_atfork(nullptr, nullptr, [] { pool_instance = new ThreadPool; });
#endif
  });
  return *pool_instance;
}

}  // namespace

void run_tasks(const Context& context, int64_t n_tasks, TaskFunction function, void* closure) {
  if (n_tasks <= 0) return;
  POLYLEAF_DCHECK(n_tasks <= TaskRange::kMaxTasks);
  const Context limited = context.limit_threads(n_tasks);
  if (inside_task || limited.n_threads <= 1) {
    for (int64_t task = 0; task < n_tasks; ++task) function(closure, task, 0);
    return;
  }
  Job job;
  job.function = function;
  job.closure = closure;
  pool().run(limited, n_tasks, job);
  if (job.error) std::rethrow_exception(job.error);
}

int64_t PhaseTimer::read_clock() {
  const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
  return now.count();
}

void PhaseTimer::add() {
  const int64_t now = read_clock();
  phase_times.nanoseconds[static_cast<int>(phase_)].fetch_add(now - begin_,
                                                              std::memory_order_relaxed);
  begin_ = now;
}

}  // namespace polyleaf
