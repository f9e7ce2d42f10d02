// Prediction kernels: from bin codes to leaf ids.
#include "forest/kernels/predict_kernels.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "base/kernels/lanes.h"

namespace polyleaf::POLYLEAF_ISA_NAMESPACE {
namespace {

#if defined(__AVX512BW__)
constexpr int kBytes = 64;
#elif defined(__AVX2__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif

typedef uint8_t Codes __attribute__((vector_size(kBytes)));
typedef int8_t Mask __attribute__((vector_size(kBytes)));

// Test which codes are in a category set (256 bits): look up the byte of the set by code / 8, then
// its bit by code % 8.
inline Mask is_in_set(const uint64_t* set, Codes codes) {
#if defined(__AVX512BW__)
  constexpr __mmask16 kAll = 0xffff;  // the unmasked form triggers a false warning in GCC
  const __m512i code = (__m512i)codes;
  const __m512i low = _mm512_maskz_broadcast_i32x4(kAll, _mm_loadu_si128((const __m128i*)set));
  const __m512i high =
      _mm512_maskz_broadcast_i32x4(kAll, _mm_loadu_si128((const __m128i*)(set + 2)));
  const __m512i bits = _mm512_set1_epi64((long long)0x8040201008040201ull);
  const __m512i byte = _mm512_and_si512(_mm512_srli_epi16(code, 3), _mm512_set1_epi8(15));
  const __m512i word = _mm512_mask_shuffle_epi8(_mm512_shuffle_epi8(low, byte),
                                                _mm512_movepi8_mask(code), high, byte);
  const __m512i bit = _mm512_shuffle_epi8(bits, _mm512_and_si512(code, _mm512_set1_epi8(7)));
  return (Mask)_mm512_movm_epi8(_mm512_test_epi8_mask(word, bit));
#elif defined(__AVX2__)
  const __m256i code = (__m256i)codes;
  const __m256i low = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)set));
  const __m256i high = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)(set + 2)));
  const __m256i bits = _mm256_set1_epi64x((long long)0x8040201008040201ull);
  const __m256i byte = _mm256_and_si256(_mm256_srli_epi16(code, 3), _mm256_set1_epi8(15));
  const __m256i word =
      _mm256_blendv_epi8(_mm256_shuffle_epi8(low, byte), _mm256_shuffle_epi8(high, byte), code);
  const __m256i bit = _mm256_shuffle_epi8(bits, _mm256_and_si256(code, _mm256_set1_epi8(7)));
  return (Mask)_mm256_cmpeq_epi8(_mm256_and_si256(word, bit), bit);
#else
  Mask mask;
  for (int i = 0; i < kBytes; ++i)
    mask[i] = -static_cast<int8_t>((set[codes[i] >> 6] >> (codes[i] & 63)) & 1);
  return mask;
#endif
}

// Run the top of a tree; slot 0 then contains the exit of each row.
template <int kRows, bool kCategories>
void run_top(const ForestArrays& forest, const CompiledTree& tree, const uint8_t* codes,
             int64_t stride, uint8_t* scratch) {
  const TopNode* node = forest.tops + tree.top_begin;
  for (const TopNode* end = node + tree.n_top; node != end; ++node) {
    const uint8_t* x = codes + static_cast<int64_t>(node->feature) * stride;
    const uint8_t* left = scratch + node->left * 64;
    const uint8_t* right = scratch + node->right * 64;
    uint8_t* result = scratch + node->result * 64;
    // An exit is the same for all rows, so its pointer does not advance.
    const int64_t left_step = (node->left >> 8) * kBytes;
    const int64_t right_step = (node->right >> 8) * kBytes;
    if (kCategories && node->category_set != kNumeric) {
      const uint64_t* set = forest.category_sets + int64_t{4} * node->category_set;
      for (int v = 0; v < kRows / kBytes; ++v) {
        const Mask goes_left = is_in_set(set, load<Codes>(x + v * kBytes));
        store(result + v * kBytes,
              goes_left ? load<Codes>(left + v * left_step) : load<Codes>(right + v * right_step));
      }
      continue;
    }
    const Codes cut = Codes{} + node->cut, shift = Codes{} + node->shift;
#pragma GCC unroll 4
    for (int v = 0; v < kRows / kBytes; ++v) {
      const Mask goes_left = load<Codes>(x + v * kBytes) + shift <= cut;
      store(result + v * kBytes,
            goes_left ? load<Codes>(left + v * left_step) : load<Codes>(right + v * right_step));
    }
  }
}

// Walk kLanes rows or trees in lockstep until all are in a leaf: their loads overlap, and the only
// branch is the loop's.
template <bool kCategories>
inline void walk(const ForestArrays& forest, const uint8_t* codes, int64_t stride, int row_step,
                 uint32_t* at) {
  uint32_t moved;
  do {
    moved = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      const WalkNode node = forest.nodes[at[lane]];
      const uint8_t code = codes[static_cast<int64_t>(node.test >> 10) * stride + lane * row_step];
      uint32_t next = node.child + (static_cast<uint8_t>(code + (node.test >> 8 & 1)) >
                                    static_cast<uint8_t>(node.test));
      if (kCategories && (node.test >> 9 & 1)) {
        const uint64_t* set = forest.category_sets + int64_t{4} * forest.node_data[at[lane]];
        next = node.child + !(set[code >> 6] >> (code & 63) & 1);
      }
      moved |= next ^ at[lane];
      at[lane] = next;
    }
  } while (moved != 0);
  for (int lane = 0; lane < kLanes; ++lane) at[lane] = forest.node_data[at[lane]];
}

template <int kRows>
void find_block_leaves(const ForestArrays& forest, const CompiledTree& tree, const uint8_t* codes,
                       int64_t stride, uint8_t* scratch, uint32_t* leaves) {
  if (tree.n_top == 0) {  // the root is a leaf
    for (int r = 0; r < kRows; ++r) leaves[r] = 0;
    return;
  }
  if (tree.has_categories)
    run_top<kRows, true>(forest, tree, codes, stride, scratch);
  else
    run_top<kRows, false>(forest, tree, codes, stride, scratch);
  const uint8_t* exits = scratch + kExitBytes;
  if (tree.whole) {
    for (int r = 0; r < kRows; ++r) leaves[r] = exits[r];
    return;
  }
  for (int begin = 0; begin < kRows; begin += kLanes) {
    for (int r = begin; r < begin + kLanes; ++r)
      leaves[r] = forest.exits[tree.exit_begin + exits[r]];
    if (tree.has_categories)
      walk<true>(forest, codes + begin, stride, 1, leaves + begin);
    else
      walk<false>(forest, codes + begin, stride, 1, leaves + begin);
  }
}

void find_leaves(const ForestArrays& forest, const CompiledTree& tree, const uint8_t* codes,
                 int64_t stride, int n_rows, uint8_t* scratch, uint32_t* leaves) {
  if (n_rows == kBlockRows)
    find_block_leaves<kBlockRows>(forest, tree, codes, stride, scratch, leaves);
  else
    find_block_leaves<kSliceRows>(forest, tree, codes, stride, scratch, leaves);
}

void find_row_leaves(const ForestArrays& forest, const CompiledTree* trees, int n_trees,
                     const uint8_t* codes, int64_t stride, uint32_t* leaves) {
  bool has_categories = false;
  uint32_t at[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    const CompiledTree& tree = trees[lane < n_trees ? lane : 0];
    at[lane] = tree.root;
    has_categories |= tree.has_categories;
  }
  if (has_categories)
    walk<true>(forest, codes, stride, 0, at);
  else
    walk<false>(forest, codes, stride, 0, at);
  for (int t = 0; t < n_trees; ++t) leaves[t] = at[t];
}

}  // namespace

extern const PredictKernels predict_kernels;
const PredictKernels predict_kernels = {find_leaves, find_row_leaves};

}  // namespace polyleaf::POLYLEAF_ISA_NAMESPACE
