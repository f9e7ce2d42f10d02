// Channels: what one row adds to a bin, as small integers (docs/design.md section 4). A row's
// channels are
//   [g_0 .. g_{K-1}] [Hessian: none, 1, K or the lower triangle of K x K, row after row] [1, the
//   count, if a lane is free], padded to 4, 8 or a multiple of 16.
// Whoever sums them need not know what they mean.
//
// Owns: quantisation and its overflow bound. Must not know: features, splits.
#pragma once
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/context.h"
#include "base/isa.h"
#include "base/packed.h"
#include "data/sample.h"
#include "quantised_gradients/scales.h"

namespace polyleaf {

constexpr int kMostRegressors = 8;  // of a node, that a fully corrective search can solve for

enum class Hessian { unit = 0, shared = 1, diagonal = 2, full = 3 };

struct ChannelLayout {
  int n_outputs = 1;
  Hessian hessian = Hessian::unit;
  int lanes = 4;            // int16 per row, int32 per bin
  int hessian_offset = -1;  // first Hessian lane; -1: none
  int count_lane = -1;      // -1: counts are kept in an array beside the sums
  // Linear leaves (linear_channels.h): products with p regressors z of the node follow the
  // Hessian: h z_i (p lanes), h z_i z_j (lower triangle), g_k z_i (all outputs of the first
  // regressor first). -1: constant leaves.
  int regressors = -1;

  static ChannelLayout make(int n_outputs, Hessian hessian, int regressors = -1);
  bool operator==(const ChannelLayout&) const = default;
  int n_hessian() const {
    switch (hessian) {
      case Hessian::unit:
        return 0;
      case Hessian::shared:
        return 1;
      case Hessian::diagonal:
        return n_outputs;
      default:
        return packed_size(n_outputs);
    }
  }
  // Which of the Hessian's lanes is an output's own.
  int hessian_of(int output) const {
    switch (hessian) {
      case Hessian::diagonal:
        return output;
      case Hessian::full:
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
    return n_outputs + 2 * (hessian == Hessian::diagonal ? n_outputs : 1) + regressors;
  }
  int n_products() const {
    return linear() ? regressors + packed_size(regressors) + regressors * n_outputs : 0;
  }
};

struct ChannelKernels {
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
POLYLEAF_DECLARE_KERNELS(ChannelKernels, channel_kernels)

// Throws std::invalid_argument, in a sentence, where the largest of derivatives is not finite.
void check_finite(float largest);

// Largest |value * multiplier| of every column over the sample; zeros behind them, to a multiple of
// 16 and 16 more. Throws std::invalid_argument where a value is not finite.
std::vector<float> largest_magnitudes(const float* values, int n_columns, const RowSample& sample,
                                      const Workers& workers);

class Channels {
 public:
  Channels() = default;
  Channels(const Channels&) = delete;
  Channels& operator=(const Channels&) = delete;

  // g: (n_all, K); h: (n_all, layout().n_hessian()), unused for unit. May be called again
  // for the next tree: buffers are reused.
  void quantise(const float* g, const float* h, int n_outputs, Hessian hessian,
                const RowSample& sample, const Workers& workers);

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
                     std::vector<float>& step, const Workers& workers);
  void clear(const Workers& workers);

  ChannelLayout layout_;
  RowSample sample_;
  int64_t n_used_ = 0;
  std::vector<uint32_t> rows_;
  std::vector<float> multiplier_;
  Buffer<int16_t> data_;
  std::vector<float> gradient_step_, hessian_step_;
  std::vector<int32_t> totals_, largest_;
};

}  // namespace polyleaf
