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

// Add the leaf values of a tree with few regressors and few columns to whole blocks of rows;
// return the number of rows. Computing all leaves of each row in registers takes less time than a
// loop over the regressors of its leaf, whose length processors cannot predict.
template <int kColumns>
int64_t add_small_tree(const LeafView& view, const uint32_t* leaves, int64_t n_rows,
                       RowFeatures features, float* scores, int64_t row_step) {
  constexpr int kVectors = kColumns <= 2 ? 4 : kColumns == 4 ? 2 : 1;
  constexpr int kStep = kVectors * kRegister;
  // Computing a leaf takes 3 operations for each regressor and 2 more for each column.
  constexpr int kMostRegressors = 30 * kRegister / (3 + 2 * kColumns);
  using V = typename Floats<kRegister>::type;
  typedef uint32_t Ids __attribute__((vector_size(kRegister * 4)));
  uint32_t last = 0;
  for (int64_t r = 0; r < n_rows; ++r) last = leaves[r] > last ? leaves[r] : last;
  if (n_rows < kStep || view.begin[last + 1] > kMostRegressors) return 0;
  const int64_t n_used = n_rows / kStep * kStep;
  for (int64_t row = 0; row < n_used; row += kStep) {
    V values[kColumns][kVectors] = {};
    Ids ids[kVectors];
    for (int v = 0; v < kVectors; ++v) ids[v] = load<Ids>(leaves + row + v * kRegister);
    for (uint32_t leaf = 0; leaf <= last; ++leaf) {
      const int64_t at = leaf * kColumns;
      V sums[kColumns][kVectors];
      for (int k = 0; k < kColumns; ++k)
        for (int v = 0; v < kVectors; ++v) sums[k][v] = V{} + view.values[at + k];
      for (int64_t e = view.begin[leaf]; e < view.begin[leaf + 1]; ++e) {
        const float* feature = features.data + view.index[e] * features.step + row;
        const float* weights = view.weights + e * kColumns;
        for (int v = 0; v < kVectors; ++v) {
          const V x = load<V>(feature + v * kRegister);
          const V shift = x == x ? x - view.centre[e] : V{};
          for (int k = 0; k < kColumns; ++k) sums[k][v] += shift * weights[k];
        }
      }
      for (int k = 0; k < kColumns; ++k) {
        const V constant = V{} + view.values[at + k];
        const V lower = V{} + view.lower[at + k], upper = V{} + view.upper[at + k];
        for (int v = 0; v < kVectors; ++v)
          values[k][v] = ids[v] == leaf ? limit(sums[k][v], constant, lower, upper) : values[k][v];
      }
    }
    float rows[kColumns][kStep];
    for (int k = 0; k < kColumns; ++k)
      for (int v = 0; v < kVectors; ++v) store(rows[k] + v * kRegister, values[k][v]);
    float* to = scores + row * row_step;
    for (int r = 0; r < kStep; ++r)
      for (int k = 0; k < view.n_columns; ++k) to[r * row_step + k] += rows[k][r];
  }
  return n_used;
}

void add(const LeafView& view, const uint32_t* leaves, int64_t n_rows, RowFeatures features,
         float* scores, int64_t row_step) {
  const auto add_small = [&](auto* small_tree) {
    return small_tree(view, leaves, n_rows, features, scores, row_step);
  };
  const int64_t n_added = view.stride == 1   ? add_small(add_small_tree<1>)
                          : view.stride == 2 ? add_small(add_small_tree<2>)
                          : view.stride == 4 ? add_small(add_small_tree<4>)
                          : view.stride == 8 ? add_small(add_small_tree<8>)
                                             : 0;
  leaves += n_added;
  n_rows -= n_added;
  scores += n_added * row_step;
  if (features.data != nullptr) features.data += n_added;
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
