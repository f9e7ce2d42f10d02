// Exact sums of sparse rows in fixed-point integers, which do not depend on the order of work.
#pragma once
#include <cstdint>
#include <vector>

#include "base/context.h"
#include "data/sample.h"
#include "data/sparse_rows.h"

namespace polyleaf {

// Fixed-point numbers trunc(value * scale) of 31 bits; an integer 1 stands for `unit`. Both are 0
// if all values vanish.
struct FixedPoint {
  float scale = 0;
  double unit = 0;
  // Return the format for values of magnitude at most `largest`.
  static FixedPoint above(float largest);
  int32_t operator()(float value) const { return static_cast<int32_t>(value * scale); }
};

// Return one power of two for all outputs: 2^30 units are the smallest one above every |value *
// multiplier| of the sample, on all ranks. Throws std::invalid_argument if a value is not finite.
FixedPoint fixed_point(const SparseRows& rows, const RowSample& sample, const Context& context);

// Return the format of weights (n_all) of rows; nullptr: 1 times their multiplier.
FixedPoint fixed_point(const float* weight, const RowSample& sample, const Context& context);

// Return the sum of every output over all rows of all ranks.
std::vector<double> sum_sparse_outputs(const SparseRows& rows, const Context& context);

// Outputs that were touched since the last `clear`, in the order of touching.
class TouchedOutputs {
 public:
  void reserve(int64_t n_outputs) { seen_.resize(static_cast<size_t>(n_outputs + 63) / 64, 0); }
  void touch(int32_t output) {
    uint64_t& word = seen_[static_cast<uint32_t>(output) >> 6];
    const uint64_t bit = uint64_t{1} << (output & 63);
    if ((word & bit) != 0) return;
    word |= bit;
    outputs_.push_back(output);
  }
  const std::vector<int32_t>& outputs() const { return outputs_; }
  void clear() {
    for (int32_t output : outputs_) seen_[static_cast<uint32_t>(output) >> 6] = 0;
    outputs_.clear();
  }

 private:
  std::vector<uint64_t> seen_;
  std::vector<int32_t> outputs_;
};

}  // namespace polyleaf
