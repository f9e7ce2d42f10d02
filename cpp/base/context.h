// Number of threads, and communication between the ranks of distributed training. Everything that
// runs in parallel takes a Context and passes it on.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace polyleaf {

// Communication between ranks that grow trees on rows of the same data. Sums are of integers only,
// so that results do not depend on how rows are distributed.
//
// All ranks call the same functions in the same order, from the calling thread, never from a task.
class Communicator {
 public:
  // Bytes in memory that `owner` holds.
  struct Block {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner;
  };

  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Sum over all ranks, in place.
  virtual void allreduce_sum(std::span<int64_t> numbers) = 0;
  // Maximum over all ranks, in place; NaN if a rank has NaN.
  virtual void allreduce_max(std::span<double> numbers) = 0;
  // Send block r to rank r; return what each rank has sent to this one, in order of rank, at
  // addresses of int32. The blocks must not change until the next call has returned.
  virtual std::vector<Block> alltoall(std::span<const Block> blocks) = 0;
  // Return what every rank passes, in order of rank.
  virtual std::vector<std::vector<std::byte>> allgather(std::span<const std::byte> data) = 0;
};

struct Context {
  // Memory is allocated per thread: no number from outside may exhaust it.
  static constexpr int kMaxThreads = 256;
  static constexpr int64_t kThreadOperations = 1 << 14;  // minimum of a thread

  // Implicit, so that a number of threads can be passed as a Context.
  Context(int n_threads) : n_threads(std::clamp(n_threads, 1, kMaxThreads)) {}
  // Return a context with at most one thread per task.
  Context limit_threads(int64_t n_tasks) const {
    Context fewer = *this;
    if (n_tasks < n_threads) fewer.n_threads = std::max(1, static_cast<int>(n_tasks));
    return fewer;
  }
  // Return a context for so many elementary operations, of about a nanosecond each: waking a thread
  // takes as long as a few thousand of them.
  Context limit_operations(int64_t n_operations) const {
    return limit_threads(n_operations / kThreadOperations);
  }

  bool is_distributed() const { return communicator != nullptr; }
  // Reductions over all ranks, in place.
  void allreduce_sum(std::span<int64_t> numbers) const {
    if (is_distributed()) communicator->allreduce_sum(numbers);
  }
  int64_t allreduce_sum(int64_t number) const {
    allreduce_sum({&number, 1});
    return number;
  }
  void allreduce_max(std::span<double> numbers) const {
    if (is_distributed()) communicator->allreduce_max(numbers);
  }

  int n_threads;                               // 1 to kMaxThreads
  std::shared_ptr<Communicator> communicator;  // nullptr: a single process
};

}  // namespace polyleaf
