#include "base/parallel.h"

#include <algorithm>
#include <atomic>
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
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace polyleaf {
namespace {

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

POLYLEAF_THREAD_LOCAL bool inside_task = false;

// One call of run_tasks. It lives on the caller's stack; workers hold it only between `join` and
// `leave`.
struct Job {
  TaskFunction function;
  void* closure;
  int64_t n_tasks;
  std::atomic<int64_t> next{0};
  std::mutex error_mutex;
  std::exception_ptr error;

  void work(int thread) {
    inside_task = true;
    for (;;) {
      const int64_t task = next.fetch_add(1, std::memory_order_relaxed);
      if (task >= n_tasks) break;
      try {
        function(closure, task, thread);
      } catch (...) {
        std::lock_guard<std::mutex> lock(error_mutex);
        if (!error) error = std::current_exception();
        next.store(n_tasks, std::memory_order_relaxed);
      }
    }
    inside_task = false;
  }
};

class ThreadPool {
 public:
  // Workers spin this often before they sleep: long enough to span the serial gaps inside one tree.
  static constexpr int kSpins = 2000;

  void run(int n_threads, Job& job) {
    std::lock_guard<std::mutex> one_job(run_mutex_);
    n_threads = 1 + grow(n_threads - 1);
    left_.store(0, std::memory_order_relaxed);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      job_ = &job;
      active_ = n_threads - 1;
      joined_ = 0;
      generation_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    job.work(0);
    // No task is left. Workers that have not joined by now, because the machine is busy with other
    // programs, are not waited for: each wait would cost a time slice of the system, many times per
    // tree.
    int joined = 0;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      job_ = nullptr;
      joined = joined_;
    }
    int spins = 0;
    while (left_.load(std::memory_order_acquire) != joined) {
      if (++spins < kSpins)
        relax();
      else
        std::this_thread::yield();
    }
  }

 private:
  // Create threads up to `n_workers`; return how many there are. If the system refuses, the results
  // do not change.
  int grow(int n_workers) {
    try {
      while (static_cast<int>(workers_.size()) < n_workers) {
        const int index = static_cast<int>(workers_.size());
        const uint64_t seen = generation_.load(std::memory_order_relaxed);
        workers_.emplace_back([this, index, seen] { loop(index, seen); });
        workers_.back().detach();
      }
    } catch (const std::system_error&) {
    }
    return std::min(n_workers, static_cast<int>(workers_.size()));
  }

  void loop(int index, uint64_t seen) {
    for (;;) {
      for (int spins = 0; spins < kSpins && generation_.load(std::memory_order_acquire) == seen;
           ++spins)
        relax();
      Job* job = nullptr;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return generation_.load(std::memory_order_relaxed) != seen; });
        seen = generation_.load(std::memory_order_relaxed);
        if (index < active_) job = job_;
        joined_ += job != nullptr;
      }
      if (job != nullptr) {
        job->work(index + 1);
        left_.fetch_add(1, std::memory_order_release);
      }
    }
  }

  std::mutex
      run_mutex_;  // one job at a time: concurrent fits from several Python threads take turns
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
  std::atomic<uint64_t> generation_{0};
  std::atomic<int> left_{0};  // workers that have finished the job
  Job* job_ = nullptr;        // nullptr: no worker may join any more
  int active_ = 0;
  int joined_ = 0;
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
  Job job{function, closure, n_tasks, {}, {}, nullptr};
  const int n_threads = context.limit_threads(n_tasks).n_threads;
  if (inside_task) {
    for (int64_t task = 0; task < n_tasks; ++task) function(closure, task, 0);
    return;
  }
  if (n_threads <= 1)
    job.work(0);
  else
    pool().run(n_threads, job);
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace polyleaf
