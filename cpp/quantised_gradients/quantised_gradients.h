// QuantisedGradients: what one row adds to a bin, as small integers
// (docs/development/arithmetic.md. A row's channels are
//   [g_0 .. g_{K-1}] [Hessian: none, 1, K or the lower triangle of K x K, row after row] [1, the
//   count, if a lane is free], padded to 4, 8 or a multiple of 16.
// Whoever sums them need not know what they mean.
//
// Owns: quantisation and its overflow bound. Must not know: features, splits.
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

// The scales that columns of derivatives are quantised by (docs/development/arithmetic.md: 32767 /
// max, halved until no sum over any rows can leave int32.
//
// Must not know: where derivatives lie, how they are quantised.

constexpr float kMinDerivative =
    1e-28f;  // a column whose largest magnitude is below counts as zero

struct Scales {
  std::vector<float> inverse, step;  // of the columns, and zeros behind them

  // largest: magnitude of each column over the rows in use, readable as far as the scales are to
  // be.
  Scales(const std::vector<float>& largest, int n_columns)
      : inverse(largest.size(), 0.0f), step(largest.size(), 0.0f) {
    for (int j = 0; j < n_columns; ++j) {
      if (largest[j] < kMinDerivative) continue;
      inverse[j] = 32767.0f / largest[j];
      step[j] = largest[j] / 32767.0f;
    }
  }

  // size: summed magnitudes of the columns quantised by these scales. False where some had to be
  // made coarser, so that all is to be quantised again.
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

constexpr int kMaxRegressors = 8;  // of a node, that a fully corrective search can solve for

enum class HessianKind { unit = 0, shared = 1, diagonal = 2, full = 3 };

struct ChannelLayout {
  int n_outputs = 1;
  HessianKind hessian = HessianKind::unit;
  int lanes = 4;            // int16 per row, int32 per bin
  int hessian_offset = -1;  // first Hessian lane; -1: none
  int count_lane = -1;      // -1: counts are kept in an array beside the sums
  // Linear leaves (linear_channels.h): products with p regressors z of the node follow the
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
  // Which of the Hessian's lanes is an output's own.
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
  bool linear() const { return regressors >= 0; }
  int first_product() const { return n_outputs + n_hessian(); }
  int second_moments() const { return first_product() + regressors; }
  int gradient_products() const { return second_moments() + packed_size(regressors); }
  // Sums of products with a candidate's feature x: g of every output, h x and h x^2, every h z_i.
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
  void (*largest)(const float* values, int n_columns, const RowSample& sample, int64_t begin,
                  int64_t end, float* largest);
  // channels[row][offset + j] = q = rint(values_ij * multiplier_i * inverse_j); size_j += |q|;
  // total_j += q. Lanes after these may be zeroed; count_lane (-1: none) is set to 1 afterwards.
  // `inverse` has 16 zeros behind it.
  void (*quantise)(const float* values, int n_columns, const RowSample& sample, int64_t begin,
                   int64_t end, const float* inverse, int16_t* channels, int lanes, int offset,
                   int count_lane, int64_t* size, int64_t* total);
};
POLYLEAF_DECLARE_KERNELS(QuantiseKernels, quantise_kernels)

// Throws std::invalid_argument, in a sentence, where the largest of derivatives is not finite.
void check_finite(float largest);

// Largest |value * multiplier| of every column over the sample; zeros behind them, to a multiple of
// 16 and 16 more. Throws std::invalid_argument where a value is not finite.
std::vector<float> compute_max_magnitudes(const float* values, int n_columns,
                                          const RowSample& sample, const Context& context);

class QuantisedGradients {
 public:
  QuantisedGradients() = default;
  QuantisedGradients(const QuantisedGradients&) = delete;
  QuantisedGradients& operator=(const QuantisedGradients&) = delete;

  // g: (n_all, K); h: (n_all, layout().n_hessian()), unused for unit. May be called again
  // for the next tree: buffers are reused.
  void quantise(const float* g, const float* h, int n_outputs, HessianKind hessian,
                const RowSample& sample, const Context& context);

  const ChannelLayout& layout() const { return layout_; }
  const RowSample& sample() const { return sample_; }
  int64_t n_used() const { return n_used_; }  // rows of the samples of all ranks
  const int16_t* row(int64_t i) const { return data_.data() + i * layout_.lanes; }
  // Sums over the sample, one per lane.
  const std::vector<int32_t>& totals() const { return totals_; }
  // Largest magnitude of a row's channel, of every lane; zero past the last.
  const std::vector<int32_t>& largest() const { return largest_; }
  // step of every lane as a float32, zero for lanes past the last; 16 zeros follow.
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
  std::vector<int32_t> totals_, largest_;
};

// What the best order of many categories gains where they say nothing
// (docs/development/arithmetic.md: with gradients that were drawn by chance, the more categories a
// feature has, the more some cut of them explains.
//
// Owns: how much that is. Must not know: candidates, nodes.

// Gradients as numbers drawn by chance.
struct CategoricalOverfit {
  double variance = 0;  // for each unit of Hessian
  double width = 1;     // how many outputs vary; one that varies little counts for little

  // By how much the best cut of so many categories, in the order of their gradients, raises a
  // score's sum above that of a cut without a choice.
  float expected_gain(int64_t n_categories) const;
};

// Of all rows of a tree, those of other ranks among them.
struct GradientSums {
  const ChannelLayout* layout;
  const int32_t* totals;
  int64_t count;
  const float* gradient_step;  // of every output
  const float* hessian_step;   // of every Hessian lane
};
// `squares`: of the gradients' channels.
CategoricalOverfit estimate_categorical_overfit(const GradientSums& sums,
                                                const std::vector<int64_t>& squares);

// Those squares over all rows, of which `sample` lie here; channels of row r lie at r * lanes.
std::vector<int64_t> sum_squares(const ChannelLayout& layout, const int16_t* channels,
                                 const RowSample& sample, const Context& context);

}  // namespace polyleaf
