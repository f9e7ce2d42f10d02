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

// Return the value of a leaf, given its linear function.
template <class V>
POLYLEAF_INLINE V limit(V sum, V constant, V lower, V upper) {
  // The sum is NaN (infinities of both signs): use the leaf's constant.
  const V clipped = clip(sum == sum ? sum : constant, lower, upper);
  return clip(clipped, V{} - kLargest, V{} + kLargest);
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
      store(value + v * kFloats, limit(sums[v], load<V>(view.values + here),
                                       load<V>(view.lower + here), load<V>(view.upper + here)));
    }
    float* out = scores + r * row_step + column;
    if (n_columns == kWidth)
      for (int k = 0; k < kWidth; ++k) out[k] += value[k];
    else
      for (int64_t k = 0; k < n_columns; ++k) out[k] += value[k];
  }
}

// Trees with one output and at most as many regressors in all leaves: computing all leaves of
// each row in registers takes less time than a loop over the regressors of its leaf.
constexpr int kMostRegressors = 4 * kRegister;
constexpr int kRowVectors = 4, kStep = kRowVectors * kRegister;  // rows at once

// Add the leaf values of such a tree; the largest leaf of the rows is `last`, and n_rows is a
// multiple of kStep.
void add_small_tree(const LeafView& view, uint32_t last, const uint32_t* leaves, int64_t n_rows,
                    RowFeatures features, float* scores) {
  using V = typename Floats<kRegister>::type;
  typedef uint32_t Ids __attribute__((vector_size(kRegister * 4)));
  for (int64_t row = 0; row < n_rows; row += kStep) {
    V values[kRowVectors] = {};
    Ids ids[kRowVectors];
    for (int v = 0; v < kRowVectors; ++v) ids[v] = load<Ids>(leaves + row + v * kRegister);
    for (uint32_t leaf = 0; leaf <= last; ++leaf) {
      const V constant = V{} + view.values[leaf];
      V sums[kRowVectors];
      for (int v = 0; v < kRowVectors; ++v) sums[v] = constant;
      for (int64_t e = view.begin[leaf]; e < view.begin[leaf + 1]; ++e) {
        const float* feature = features.data + view.index[e] * features.step + row;
        const V centre = V{} + view.centre[e], weight = V{} + view.weights[e];
        for (int v = 0; v < kRowVectors; ++v) {
          const V x = load<V>(feature + v * kRegister);
          sums[v] += weight * (x == x ? x - centre : V{});
        }
      }
      const V lower = V{} + view.lower[leaf], upper = V{} + view.upper[leaf];
      for (int v = 0; v < kRowVectors; ++v)
        values[v] = ids[v] == leaf ? limit(sums[v], constant, lower, upper) : values[v];
    }
    for (int v = 0; v < kRowVectors; ++v) {
      float* to = scores + row + v * kRegister;
      store(to, load<V>(to) + values[v]);
    }
  }
}

void add(const LeafView& view, const uint32_t* leaves, int64_t n_rows, RowFeatures features,
         float* scores, int64_t row_step) {
  if (view.stride == 1 && row_step == 1 && n_rows >= kStep) {
    uint32_t last = 0;
    for (int64_t i = 0; i < n_rows; ++i) last = leaves[i] > last ? leaves[i] : last;
    if (view.begin[last + 1] <= kMostRegressors) {
      const int64_t n = n_rows / kStep * kStep;
      add_small_tree(view, last, leaves, n, features, scores);
      leaves += n;
      n_rows -= n;
      scores += n;
      if (features.data != nullptr) features.data += n;
    }
  }
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
