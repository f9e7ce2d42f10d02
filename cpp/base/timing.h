// Seconds of the phases of tree building, summed over threads while timing is on.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

namespace polyleaf {

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
    if (is_on_) begin_ = Clock::now();
  }
  ~PhaseTimer() {
    if (is_on_) add();
  }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

  // End the phase and begin another one.
  void next(Phase phase) {
    if (is_on_) {
      add();
      begin_ = Clock::now();
    }
    phase_ = phase;
  }

 private:
  using Clock = std::chrono::steady_clock;
  void add() {
    const std::chrono::nanoseconds passed = Clock::now() - begin_;
    phase_times.nanoseconds[static_cast<int>(phase_)].fetch_add(passed.count(),
                                                                std::memory_order_relaxed);
  }
  Phase phase_;
  bool is_on_;
  Clock::time_point begin_;
};

}  // namespace polyleaf
