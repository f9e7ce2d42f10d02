// Who does the work: so many threads of this machine, and whoever has further rows of the same
// data. Whatever spreads its work is handed this and passes it on.
//
// Must not know: what the work is.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace polyleaf {

// Who else grows trees on rows of the same data: the few numbers that depend on the rows of all
// ranks. Sums are of integers only, so that it does not show who holds which row.
//
// All ranks call the same verbs in the same order, from the thread that was called, never from a
// task.
//
// Must not know: what the numbers mean, how they travel.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // In place, over all ranks.
  virtual void allreduce_sum(std::span<int64_t> numbers) = 0;
  // In place; NaN where a rank has NaN.
  virtual void allreduce_max(std::span<double> numbers) = 0;
  // Share r is numbers begin[r] .. begin[r + 1] - 1, on all ranks. Those of all ranks, added, go to
  // rank r, which finds them in place of its own. Its other shares stay, and are to stay until the
  // next call has returned: they are read where they lie, in memory that `owner` holds.
  virtual void reduce_scatter(std::span<int32_t> numbers, std::span<const int64_t> begin,
                              const std::shared_ptr<const void>& owner) = 0;
  // Block r goes to rank r; what each rank has handed to this one, in order of rank.
  virtual std::vector<std::vector<std::byte>> alltoall(
      const std::vector<std::vector<std::byte>>& blocks) = 0;
  // What every rank gives, in order of rank.
  virtual std::vector<std::vector<std::byte>> allgather(std::span<const std::byte> data) = 0;
};

struct Context {
  // What a thread needs is made for each that is asked for: no number, wherever it comes from, may
  // fill memory.
  static constexpr int kMaxThreads = 256;

  // A number stands for so many threads.
  Context(int n_threads) : n_threads(std::clamp(n_threads, 1, kMaxThreads)) {}
  // As many as there are tasks for.
  Context limit_threads(int64_t n_tasks) const {
    Context fewer = *this;
    if (n_tasks < n_threads) fewer.n_threads = std::max(1, static_cast<int>(n_tasks));
    return fewer;
  }

  bool is_distributed() const { return communicator != nullptr; }
  // Over the rows of all ranks, in place.
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
  std::shared_ptr<Communicator> communicator;  // nullptr: nobody else
};

}  // namespace polyleaf
