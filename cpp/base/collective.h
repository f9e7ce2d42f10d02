// Who else grows trees on rows of the same data: the few numbers that depend on the rows of all
// ranks. Sums are of integers only, so that it does not show who holds which row.
//
// All ranks call the same verbs in the same order, from the thread that was called, never from a
// task.
//
// Must not know: what the numbers mean, how they travel.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace polyleaf {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // In place, over all ranks.
  virtual void sum(std::span<int64_t> numbers) = 0;
  // In place; NaN where a rank has NaN.
  virtual void largest(std::span<double> numbers) = 0;
  // Share r is numbers begin[r] .. begin[r + 1] - 1, on all ranks. Those of all ranks, added, go to
  // rank r, which finds them in place of its own. Its other shares stay, and are to stay until the
  // next call has returned: they are read where they lie, in memory that `owner` holds.
  virtual void sum_shares(std::span<int32_t> numbers, std::span<const int64_t> begin,
                          const std::shared_ptr<const void>& owner) = 0;
  // Block r goes to rank r; what each rank has handed to this one, in order of rank.
  virtual std::vector<std::vector<std::byte>> exchange(
      const std::vector<std::vector<std::byte>>& blocks) = 0;
  // What every rank gives, in order of rank.
  virtual std::vector<std::vector<std::byte>> gather(std::span<const std::byte> data) = 0;
};

}  // namespace polyleaf
