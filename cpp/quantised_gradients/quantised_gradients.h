// Quantised gradients and Hessians: small integers that are summed in histograms. One integer is a
// channel. The channels of a row are
//   [g_0 .. g_{K-1}] [Hessian: none, 1, K or the lower triangle of K x K, row after row] [1, the
//   count, if a lane is free],
// padded to 4, 8 or a multiple of 16.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/context.h"
#include "base/isa.h"
#include "base/packed.h"
#include "data/sample.h"

namespace polyleaf {

// Scales of quantised columns: 32767 / max, halved until no sum over any rows can overflow int32.

constexpr float kMinDerivative = 1e-28f;  // columns whose largest magnitude is below count as zero

struct Scales {
  std::vector<float> inverse, step;  // of the columns, followed by zeros

  // largest: magnitude of each column over the rows in use, with as many entries as there are to be
  // scales.
  Scales(const std::vector<float>& largest, int n_columns)
      : inverse(largest.size(), 0.0f), step(largest.size(), 0.0f) {
    for (int j = 0; j < n_columns; ++j) {
      if (largest[j] < kMinDerivative) continue;
      inverse[j] = 32767.0f / largest[j];
      step[j] = largest[j] / 32767.0f;
    }
  }

  // Check the sums of magnitudes of the columns quantised by these scales. Return false if some
  // scales had to be made coarser, so that all must be quantised again.
  bool fit(const int64_t* size, int n_columns, int64_t n_used) {
    const int64_t limit = int64_t{INT32_MAX};
    bool fits = true;
    for (int j = 0; j < n_columns; ++j) {
      if (size[j] + n_used <= limit) continue;
      int shift = 1;
      while ((size[j] >> shift) + n_used > limit) ++shift;
      inverse[j] = std::ldexp(inverse[j], -shift);
      step[j] = std::ldexp(step[j], shift);
      fits = false;
    }
    return fits;
  }
};

constexpr int kMaxRegressors = 8;  // of a node with a fully corrective search

enum class HessianKind { unit = 0, shared = 1, diagonal = 2, full = 3 };

struct ChannelLayout {
  int n_outputs = 1;
  HessianKind hessian = HessianKind::unit;
  int lanes = 4;            // int16 per row, int32 per bin
  int hessian_offset = -1;  // first Hessian lane; -1: none
  int count_lane = -1;      // -1: counts are in an array of their own
  // Linear leaves (search/linear_gradients.h): products with p regressors z of the node follow the
  // Hessian: h z_i (p lanes), h z_i z_j (lower triangle), g_k z_i (all outputs of the first
  // regressor first). -1: constant leaves.
  int regressors = -1;

  static ChannelLayout make(int n_outputs, HessianKind hessian, int regressors = -1);
  bool operator==(const ChannelLayout&) const = default;
  int n_hessian() const {
    switch (hessian) {
      case HessianKind::unit:
        return 0;
      case HessianKind::shared:
        return 1;
      case HessianKind::diagonal:
        return n_outputs;
      default:
        return packed_size(n_outputs);
    }
  }
  // Return the Hessian lane of an output.
  int hessian_index(int output) const {
    switch (hessian) {
      case HessianKind::diagonal:
        return output;
      case HessianKind::full:
        return packed(output, output);
      default:
        return 0;
    }
  }
  // Return the number of lanes before those that pad a row.
  int n_used() const { return count_lane >= 0 ? count_lane + 1 : lanes; }
  bool linear() const { return regressors >= 0; }
  int first_product() const { return n_outputs + n_hessian(); }
  int second_moments() const { return first_product() + regressors; }
  int gradient_products() const { return second_moments() + packed_size(regressors); }
  // Return the number of sums of products with a candidate's feature x: g of every output, h x and
  // h x^2, every h z_i.
  int n_regressor_products() const {
    return n_outputs + 2 * (hessian == HessianKind::diagonal ? n_outputs : 1) + regressors;
  }
  int n_products() const {
    return linear() ? regressors + packed_size(regressors) + regressors * n_outputs : 0;
  }
};

struct QuantiseKernels {
  // largest[j] = max(largest[j], max |values_ij * multiplier_i|) over rows i in [begin, end) of the
  // sample
  void (*max_magnitudes)(const float* values, int n_columns, const RowSample& sample, int64_t begin,
                         int64_t end, float* largest);
  // channels[row][offset + j] = q = rint(values_ij * multiplier_i * inverse_j); size_j += |q|;
  // total_j += q. Lanes after these may be zeroed; count_lane (-1: none) is set to 1 afterwards.
  // `inverse` is followed by 16 zeros.
  void (*quantise)(const float* values, int n_columns, const RowSample& sample, int64_t begin,
                   int64_t end, const float* inverse, int16_t* channels, int lanes, int offset,
                   int count_lane, int64_t* size, int64_t* total);
};
POLYLEAF_DECLARE_KERNELS(QuantiseKernels, quantise_kernels)

// Throw std::invalid_argument if the largest derivative is not finite.
void check_finite(float largest);

// Return the largest |value * multiplier| of every column over the sample, padded with zeros to a
// multiple of 16 and 16 more. Throws std::invalid_argument if a value is not finite.
std::vector<float> compute_max_magnitudes(const float* values, int n_columns,
                                          const RowSample& sample, const Context& context);

class QuantisedGradients {
 public:
  QuantisedGradients() = default;
  QuantisedGradients(const QuantisedGradients&) = delete;
  QuantisedGradients& operator=(const QuantisedGradients&) = delete;

  // Quantise g (n_all, K) and h (n_all, layout().n_hessian()), unused for unit. May be called again
  // for the next tree: buffers are reused.
  void quantise(const float* g, const float* h, int n_outputs, HessianKind hessian,
                const RowSample& sample, const Context& context);

  const ChannelLayout& layout() const { return layout_; }
  const RowSample& sample() const { return sample_; }
  int64_t n_used() const { return n_used_; }  // rows of the samples of all ranks
  const int16_t* row(int64_t i) const { return data_.data() + i * layout_.lanes; }
  // Sums over the sample, one per lane.
  const std::vector<int32_t>& totals() const { return totals_; }
  // Largest magnitude of each lane; zero after the last.
  const std::vector<int32_t>& max_magnitudes() const { return max_magnitudes_; }
  // Step of each lane as float32, zero after the last; 16 zeros follow.
  const float* gradient_step() const { return gradient_step_.data(); }
  const float* hessian_step() const { return hessian_step_.data(); }

 private:
  void quantise_part(const float* values, int n_columns, int offset, int count_lane,
                     std::vector<float>& step, const Context& context);
  void clear(const Context& context);

  ChannelLayout layout_;
  RowSample sample_;
  int64_t n_used_ = 0;
  std::vector<uint32_t> rows_;
  std::vector<float> multiplier_;
  Buffer<int16_t> data_;
  std::vector<float> gradient_step_, hessian_step_;
  std::vector<int32_t> totals_, max_magnitudes_;
};

// Correction of the gain of categorical splits: with gradients drawn at random, the best split
// along the sorted categories explains more, the more categories there are.

// Model of the gradients as random numbers.
struct CategoricalOverfit {
  double variance = 0;  // per unit of Hessian
  double width = 1;     // effective number of outputs, by their variance

  // Return by how much the best split of n sorted categories is expected to raise a score sum above
  // that of a fixed split.
  float expected_gain(int64_t n_categories) const;
};

// Sums over all rows of a tree, on all ranks.
struct GradientSums {
  const ChannelLayout* layout;
  const int32_t* totals;
  int64_t count;
  const float* gradient_step;  // of each output
  const float* hessian_step;   // of each Hessian lane
};
// `squares`: sums of squares of the gradients' channels.
CategoricalOverfit estimate_categorical_overfit(const GradientSums& sums,
                                                const std::vector<int64_t>& squares);

// Return sums of squares over the rows of all ranks; the channels of row r begin at r * lanes.
std::vector<int64_t> sum_squares(const ChannelLayout& layout, const int16_t* channels,
                                 const RowSample& sample, const Context& context);

}  // namespace polyleaf
