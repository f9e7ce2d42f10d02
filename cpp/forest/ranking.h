// The k best outputs of one row: higher scores first, ties by output. NaN never ranks.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/check.h"
#include "forest/kernels/ranking_kernels.h"
#include "forest/score_transform.h"

namespace polyleaf {

class Ranking {
 public:
  explicit Ranking(int32_t k) : k_(k), scores_(kRankChunk), positions_(kRankChunk) {
    POLYLEAF_DCHECK(k >= 1);
    best_.reserve(k);
  }

  // Offer a score; return whether it is among the k best so far.
  bool offer(int32_t output, double score) {
    if (!(score >= threshold_)) return false;
    const Entry entry{score, output};
    if (static_cast<int32_t>(best_.size()) == k_) {
      if (!better(entry, best_.front())) return false;
      std::pop_heap(best_.begin(), best_.end(), better);
      best_.back() = entry;
    } else {
      best_.push_back(entry);
    }
    std::push_heap(best_.begin(), best_.end(), better);
    if (static_cast<int32_t>(best_.size()) == k_) threshold_ = best_.front().score;
    return true;
  }
  // Offer n sums of `outputs` or (null) of outputs 0 .. n - 1; skip_none: a sum -0 is absent.
  void offer(const float* sums, const int32_t* outputs, int32_t n, const ScoreTransform& transform,
             bool skip_none) {
    const RankingKernels& kernels = POLYLEAF_SELECT(ranking_kernels);
    for (int32_t at = 0; at < n; at += kRankChunk) {
      const int32_t skipped = outputs == nullptr ? at : 0;
      const auto from = [&](const double* numbers) {
        return numbers == nullptr ? nullptr : numbers + skipped;
      };
      const RankInput input{sums + at,
                            outputs == nullptr ? nullptr : outputs + at,
                            from(transform.base),
                            from(transform.scale),
                            from(transform.offset),
                            std::min(kRankChunk, n - at),
                            skip_none};
      const int32_t found =
          kernels.candidates(input, k_, threshold_, scores_.data(), positions_.data());
      for (int32_t i = 0; i < found; ++i) {
        const int32_t position = positions_[i];
        offer(outputs == nullptr ? at + position : outputs[at + position], scores_[position]);
      }
    }
  }
  // Write k outputs and scores (-1 and -inf if there are fewer) and reset.
  void take(int32_t* outputs, double* scores) {
    std::sort_heap(best_.begin(), best_.end(), better);
    for (int32_t i = 0; i < k_; ++i) {
      const bool is_filled = i < static_cast<int32_t>(best_.size());
      outputs[i] = is_filled ? best_[i].output : -1;
      scores[i] = is_filled ? best_[i].score : -kInfinity;
    }
    best_.clear();
    threshold_ = -kInfinity;
  }

 private:
  struct Entry {
    double score;
    int32_t output;
  };
  static bool better(const Entry& a, const Entry& b) {
    return a.score > b.score || (a.score == b.score && a.output < b.output);
  }
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  int32_t k_;
  double threshold_ = -kInfinity;  // smallest score of k entries
  std::vector<Entry> best_;        // a heap with the worst entry at the front
  std::vector<double> scores_;
  std::vector<int32_t> positions_;
};

}  // namespace polyleaf
