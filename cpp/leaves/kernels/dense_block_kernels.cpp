// Kernels of dense leaves: every sum runs over the trees in order, so all instruction sets give the
// same bits.
#include "base/kernels/lanes.h"
#include "leaves/kernels/leaf_block_kernels.h"

namespace polyleaf::POLYLEAF_ISA_NAMESPACE {
namespace {

#if defined(__AVX512BW__)
constexpr int kFloatsOfRegister = 16;
constexpr int kSums = 16;  // vector accumulators kept in registers
#elif defined(__AVX2__)
constexpr int kFloatsOfRegister = 8;
constexpr int kSums = 8;
#else
constexpr int kFloatsOfRegister = 4;
constexpr int kSums = 8;
#endif

// Single-output trees whose scores are contiguous.
void add_numbers(const float* values, const uint32_t* leaf_of_row, int64_t n, float* scores) {
  for (int64_t r = 0; r < n; ++r) scores[r] += values[leaf_of_row[r]];
}

void add(const LeafView& leaves, const uint32_t* leaf_of_row, int64_t n, RowFeatures, float* scores,
         int64_t row_step) {
  if (leaves.stride == 1 && row_step == 1)
    return add_numbers(leaves.values, leaf_of_row, n, scores);
  if (leaves.n_columns == 1) {
    for (int64_t r = 0; r < n; ++r)
      scores[r * row_step] += leaves.values[leaf_of_row[r] * leaves.stride];
    return;
  }
  for (int64_t r = 0; r < n; ++r) {
    const float* v = leaves.values + leaf_of_row[r] * leaves.stride;
    float* out = scores + r * row_step;
    for (int32_t k = 0; k < leaves.n_columns; ++k) out[k] += v[k];
  }
}

constexpr int min(int a, int b) {
  return a < b ? a : b;
}

// Add kWidth outputs (a chunk of a leaf vector) of all trees, with the sums of some rows in
// registers.
template <int kWidth>
void add_chunk(const LeafTarget* trees, int n_trees, const uint32_t* leaf_of_row, int64_t leaf_step,
               int n_rows, int64_t stride, int64_t offset, float* scores) {
  constexpr int kFloats = min(kWidth, kFloatsOfRegister);
  constexpr int kVectors = kWidth / kFloats;
  constexpr int kRows = min(kPadRows, kSums > kVectors ? kSums / kVectors : 1);
  using V = typename Floats<kFloats>::type;
  for (int row = 0; row < n_rows; row += kRows) {
    V sums[kRows][kVectors];
    float* to = scores + row * stride + offset;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[r][v] = load<V>(to + r * stride + v * kFloats);
    const uint32_t* leaf = leaf_of_row + row;
    for (int t = 0; t < n_trees; ++t, leaf += leaf_step) {
      const float* vectors = trees[t].leaves->values + offset;
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const float* vector = vectors + leaf[r] * stride;
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) sums[r][v] += load<V>(vector + v * kFloats);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) store(to + r * stride + v * kFloats, sums[r][v]);
  }
}

void add_trees(const LeafTarget* trees, int n_trees, const uint32_t* leaf_of_row, int64_t leaf_step,
               int n_rows, int width, float* scores) {
  const auto each = [&](auto* chunk, int stride, int offset) {
    chunk(trees, n_trees, leaf_of_row, leaf_step, n_rows, stride, offset, scores);
  };
  if (width == 2) return each(add_chunk<2>, 2, 0);
  if (width == 4) return each(add_chunk<4>, 4, 0);
  if (width == 8) return each(add_chunk<8>, 8, 0);
  int done = 0;
  for (; done + 64 <= width; done += 64) each(add_chunk<64>, width, done);
  for (; done + 32 <= width; done += 32) each(add_chunk<32>, width, done);
  for (; done + 16 <= width; done += 16) each(add_chunk<16>, width, done);
}

}  // namespace

extern const DenseBlockKernels dense_block_kernels;
const DenseBlockKernels dense_block_kernels = {add, add_trees};

}  // namespace polyleaf::POLYLEAF_ISA_NAMESPACE
