// Kernel of linear leaves: no sum runs over outputs, and a leaf adds its regressors in order, so
// all instruction sets give the same bits.
#include "base/kernels/lanes.h"
#include "leaves/kernels/leaf_block_kernels.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

constexpr float kLargest = 3.40282347e+38f;  // largest finite float

// Floats per register: GCC splits wider vectors into scalars.
#if defined(__AVX512F__)
constexpr int kRegister = 16;
#elif defined(__AVX2__)
constexpr int kRegister = 8;
#else
constexpr int kRegister = 4;
#endif

template <class V>
POLYLEAF_INLINE V clip(V v, V lower, V upper) {
  v = v < lower ? lower : v;
  return v > upper ? upper : v;
}

// Add columns [column, column + kWidth) of the linear leaf values of all rows.
template <int kWidth>
void add_columns(const LeafView& view, const uint32_t* leaves, int64_t n_rows, RowFeatures features,
                 int64_t column, float* scores, int64_t row_step) {
  constexpr int kFloats = kWidth < kRegister ? kWidth : kRegister, kVectors = kWidth / kFloats;
  using V = typename Floats<kFloats>::type;
  const int64_t n_columns = view.n_columns - column < kWidth ? view.n_columns - column : kWidth;
  for (int64_t r = 0; r < n_rows; ++r) {
    const int64_t at = leaves[r] * view.stride + column;
    V sums[kVectors];
    for (int v = 0; v < kVectors; ++v) sums[v] = load<V>(view.values + at + v * kFloats);
    for (int64_t e = view.begin[leaves[r]], end = view.begin[leaves[r] + 1]; e < end; ++e) {
      const float x = features.data[view.index[e] * features.step + r];
      // a missing value counts as the centre
      const float shift = x == x ? x - view.centre[e] : 0.0f;
      const float* weights = view.weights + e * view.stride + column;
      for (int v = 0; v < kVectors; ++v) sums[v] += load<V>(weights + v * kFloats) * shift;
    }
    float value[kWidth];
    for (int v = 0; v < kVectors; ++v) {
      const int64_t here = at + v * kFloats;
      // The sum is NaN (infinities of both signs): use the leaf's constant.
      const V sum = sums[v] == sums[v] ? sums[v] : load<V>(view.values + here);
      const V clipped = clip(sum, load<V>(view.lower + here), load<V>(view.upper + here));
      store(value + v * kFloats, clip(clipped, V{} - kLargest, V{} + kLargest));
    }
    float* out = scores + r * row_step + column;
    if (n_columns == kWidth)
      for (int k = 0; k < kWidth; ++k) out[k] += value[k];
    else
      for (int64_t k = 0; k < n_columns; ++k) out[k] += value[k];
  }
}

void add(const LeafView& view, const uint32_t* leaves, int64_t n_rows, RowFeatures features,
         float* scores, int64_t row_step) {
  const auto each = [&](auto* columns, int64_t column) {
    columns(view, leaves, n_rows, features, column, scores, row_step);
  };
  if (view.stride == 1) return each(add_columns<1>, 0);
  if (view.stride == 2) return each(add_columns<2>, 0);
  if (view.stride == 4) return each(add_columns<4>, 0);
  if (view.stride == 8) return each(add_columns<8>, 0);
  int64_t done = 0;
  for (; done + 64 <= view.stride; done += 64) each(add_columns<64>, done);
  for (; done + 32 <= view.stride; done += 32) each(add_columns<32>, done);
  for (; done < view.stride; done += 16) each(add_columns<16>, done);
}

}  // namespace

extern const LinearBlockKernels linear_block_kernels;
const LinearBlockKernels linear_block_kernels = {add};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
