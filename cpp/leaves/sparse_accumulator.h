// Sparse accumulator: the sums of one row's sparse leaf values by output.
//
// Trees are added in order in float32, so a sum has the bits of a dense sum. The strategy that was
// measured to be fastest is chosen:
//
// scan  one float an output, all of them read at the end: rows hold most outputs
// list  one float an output, and a list of those that were touched
// hash  open addressing: very many outputs, or too few rows to pay for clearing one float an output
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/check.h"

namespace polyleaf {

class SparseAccumulator {
 public:
  enum class Strategy { scan, list, hash };

  // Choose the strategy. entries: mean and maximum entries of one row's leaves; n_rows: rows per
  // thread.
  static Strategy choose(int64_t n_outputs, int64_t entries, int64_t max_entries, int64_t n_rows) {
    const bool pays = n_outputs <= kMaxDenseOutputs && n_outputs <= 8 * entries * n_rows;
    if (!pays && n_outputs > 4 * max_entries) return Strategy::hash;
    return n_outputs <= 2 * entries ? Strategy::scan : Strategy::list;
  }

  SparseAccumulator(Strategy strategy, int64_t n_outputs, int64_t max_entries)
      : strategy_(strategy), n_outputs_(n_outputs) {
    const int64_t capacity_limit = std::min(max_entries, n_outputs);
    if (strategy != Strategy::scan)
      for (Buffer<int32_t>* buffer : {&touched_, &outputs_})
        buffer->reserve(static_cast<size_t>(capacity_limit) + 1);
    if (strategy != Strategy::scan) values_.reserve(static_cast<size_t>(capacity_limit));
    if (strategy == Strategy::hash) {
      const auto capacity = std::bit_ceil(static_cast<uint64_t>(2 * capacity_limit + 2));
      shift_ = 64 - std::countr_zero(capacity);
      slots_.assign(capacity, {-1, kNone});
      return;
    }
    sums_.reserve(static_cast<size_t>(n_outputs));
    std::fill_n(sums_.data(), n_outputs, kNone);
  }

  // Add n values of ascending outputs; no value is -0.
  void add(const int32_t* outputs, const float* values, int64_t n) {
    POLYLEAF_DCHECK(std::all_of(values, values + n, is_sum));
    POLYLEAF_DCHECK(std::is_sorted(outputs, outputs + n, std::less_equal<>()));
    POLYLEAF_DCHECK(n == 0 || (outputs[0] >= 0 && outputs[n - 1] < n_outputs_));
    float* sums = sums_.data();
    if (strategy_ == Strategy::scan)
      for (int64_t i = 0; i < n; ++i) sums[outputs[i]] += values[i];
    else if (strategy_ == Strategy::list)
      n_touched_ = add_listed(outputs, values, n, sums, touched_.data(), n_touched_);
    else
      for (int64_t i = 0; i < n; ++i) add_hashed(outputs[i], values[i]);
  }
  // Add one value; -0 counts as +0.
  void add(int32_t output, float value) {
    value += 0.0f;
    add(&output, &value, 1);
  }

  // Call visit(sums, outputs, n) once. outputs null: outputs 0 .. n - 1, where a sum -0 marks an
  // absent output.
  template <class Visit>
  void visit_all(const Visit& visit) {
    if (strategy_ == Strategy::scan)
      return visit(sums_.data(), nullptr, static_cast<int32_t>(n_outputs_));
    for (int32_t i = 0; i < n_touched_; ++i) {
      const int32_t at = touched_[i];
      outputs_[i] = strategy_ == Strategy::list ? at : slots_[at].output;
      values_[i] = strategy_ == Strategy::list ? sums_[at] : slots_[at].sum;
    }
    visit(values_.data(), outputs_.data(), n_touched_);
  }
  // Call visit(output, sum) for each present output, ascending.
  template <class Visit>
  void visit_ascending(const Visit& visit) {
    if (strategy_ == Strategy::scan) {
      for (int32_t k = 0; k < n_outputs_; ++k)
        if (is_sum(sums_[k])) visit(k, sums_[k]);
      return;
    }
    if (strategy_ == Strategy::hash) {
      const auto by_output = [this](int32_t a, int32_t b) {
        return slots_[a].output < slots_[b].output;
      };
      std::sort(touched_.data(), touched_.data() + n_touched_, by_output);
    } else {
      std::sort(touched_.data(), touched_.data() + n_touched_);
    }
    for (int32_t i = 0; i < n_touched_; ++i) {
      const int32_t at = touched_[i];
      if (strategy_ == Strategy::list)
        visit(at, sums_[at]);
      else
        visit(slots_[at].output, slots_[at].sum);
    }
  }
  bool contains(int32_t output) const {
    return strategy_ == Strategy::hash ? slots_[find_slot(output)].output == output
                                       : is_sum(sums_[output]);
  }
  void clear() {
    if (strategy_ == Strategy::scan) std::fill_n(sums_.data(), n_outputs_, kNone);
    for (int32_t i = 0; i < n_touched_; ++i)
      if (strategy_ == Strategy::list)
        sums_[touched_[i]] = kNone;
      else
        slots_[touched_[i]] = {-1, kNone};
    n_touched_ = 0;
  }

 private:
  // Maximum number of outputs for which one float each is affordable (16 MiB per thread).
  static constexpr int64_t kMaxDenseOutputs = int64_t{1} << 22;
  // Marks an output without a value. Leaf values are never -0, and adding to -0 returns the other
  // operand, so no sum is -0.
  static constexpr float kNone = -0.0f;
  static bool is_sum(float x) {
    return __builtin_bit_cast(uint32_t, x) != __builtin_bit_cast(uint32_t, kNone);
  }

  struct Slot {
    int32_t output;  // -1: free slot
    float sum;
  };
  size_t find_slot(int32_t output) const {
    size_t at = (static_cast<uint64_t>(output) * 0x9E3779B97F4A7C15u) >> shift_;
    while (slots_[at].output != output && slots_[at].output >= 0)
      at = (at + 1) & (slots_.size() - 1);
    return at;
  }
  // Branch-free: an output is listed where it was first touched.
  static int32_t add_listed(const int32_t* outputs, const float* values, int64_t n, float* sums,
                            int32_t* touched, int32_t n_touched) {
    for (int64_t i = 0; i < n; ++i) {
      const int32_t output = outputs[i];
      const float sum = sums[output];
      touched[n_touched] = output;
      n_touched += !is_sum(sum);
      sums[output] = sum + values[i];
    }
    return n_touched;
  }
  void add_hashed(int32_t output, float value) {
    const size_t at = find_slot(output);
    if (slots_[at].output < 0) {
      slots_[at].output = output;
      touched_[n_touched_++] = static_cast<int32_t>(at);
    }
    slots_[at].sum += value;
  }

  Strategy strategy_;
  int64_t n_outputs_;
  int32_t n_touched_ = 0;
  int shift_ = 0;
  Buffer<float> sums_;
  Buffer<int32_t> touched_;  // touched outputs or slots
  Buffer<int32_t> outputs_;  // scratch of visit_all()
  Buffer<float> values_;
  std::vector<Slot> slots_;
};

}  // namespace polyleaf
