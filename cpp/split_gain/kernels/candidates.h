// The candidates of a numeric feature, in their order, and the best of them: what every score's
// scan begins and ends with. Included by kernels only, inside the namespace of an instruction set.
#pragma once
#include "base/kernels/lanes.h"
#include "split_gain/score_kernels.h"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

constexpr float kNone = -__builtin_inff();

// Candidates of one direction of missing values: the running sums after each non-empty bin.
struct Candidates {
  int n;
  int first, last;  // contiguous range whose children are large enough
};

// Return the range of the m listed candidates whose children both have enough rows; `shift`: rows
// on the left that the listed counts do not include.
POLYLEAF_INLINE Candidates find_valid_range(const ScanNode& node, int m, const ScanScratch& s,
                                            int32_t shift = 0) {
  const int32_t min_rows = node.config->min_child_samples;
  Candidates c{m, 0, m};
  while (c.first < m && s.count[c.first] + shift < min_rows) ++c.first;
  while (c.last > c.first && node.count - (s.count[c.last - 1] + shift) < min_rows) --c.last;
  return c;
}

// Call add(bin) for the value bins that may hold rows, ascending; always for bin 0.
template <class Add>
POLYLEAF_INLINE void visit_bins(const ScanFeature& feature, const Add& add) {
  const int n_bins = feature.n_bins;
  if (feature.touched == nullptr) {
    for (int b = 0; b < n_bins; ++b) add(b);
    return;
  }
  for (int word = 0; word < 4; ++word) {
    uint64_t bits = feature.touched[word] | (word == 0 ? 1 : 0);
    for (; bits != 0; bits &= bits - 1) {
      const int b = word * 64 + __builtin_ctzll(bits);
      if (b < n_bins) add(b);
    }
  }
}

// Fill scratch.bins, count, hessian (if one lane serves all outputs) and, for one output, gradient.
// Empty bins repeat the candidate before them and are skipped; bin 0 is kept, since with missing
// values on the left it is a candidate even when empty.
template <bool HESSIAN, bool GRADIENT>
static Candidates list_candidates(const ScanNode& node, const ScanFeature& feature,
                                  bool missing_left, ScanScratch& s) {
  const ChannelLayout& layout = *node.layout;
  const int hessian_lane = layout.hessian_offset;
  int32_t count = 0, hessian = 0, gradient = 0;
  int m = 0;
  const auto add = [&](int b) __attribute__((always_inline)) {
    const int32_t c = static_cast<int32_t>(feature.count(layout, b));
    count += c;
    if (HESSIAN) s.hessian[m] = hessian += feature.bin(layout, b)[hessian_lane];
    if (GRADIENT) s.gradient[m] = gradient += feature.bin(layout, b)[0];
    s.bins[m] = b;
    s.count[m] = count;
    m += (c != 0) | (b == 0);
  };
  if (missing_left) {
    add(feature.missing);
    m = 0;
  }
  visit_bins(feature, add);
  return find_valid_range(node, m, s);
}

#ifdef __AVX512F__
// Return running sums of sixteen numbers, starting from `before`, by doubling.
POLYLEAF_INLINE __m512i running_sums(__m512i v, int32_t before) {
  const __m512i zero = _mm512_setzero_si512();
  v = _mm512_add_epi32(v, _mm512_alignr_epi32(v, zero, 15));
  v = _mm512_add_epi32(v, _mm512_alignr_epi32(v, zero, 14));
  v = _mm512_add_epi32(v, _mm512_alignr_epi32(v, zero, 12));
  v = _mm512_add_epi32(v, _mm512_alignr_epi32(v, zero, 8));
  return _mm512_add_epi32(v, _mm512_set1_epi32(before));
}

POLYLEAF_INLINE int32_t last_lane(__m512i v) {
  return _mm_cvtsi128_si32(_mm512_castsi512_si128(_mm512_alignr_epi32(v, v, 15)));
}

// List candidates if only counts are needed and they are contiguous: sixteen bins at once.
static Candidates list_counted(const ScanNode& node, const ScanFeature& feature, bool missing_left,
                               ScanScratch& s) {
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  int32_t before = missing_left ? static_cast<int32_t>(feature.counts[feature.missing]) : 0;
  int m = 0;
  for (int b = 0; b < feature.n_bins; b += 16) {
    const int left = feature.n_bins - b;
    const __mmask16 valid = static_cast<__mmask16>(left >= 16 ? 0xffff : (1u << left) - 1);
    const __m512i count = _mm512_maskz_loadu_epi32(valid, feature.counts + b);
    const __m512i sum = running_sums(count, before);
    __mmask16 kept = _mm512_mask_test_epi32_mask(valid, count, count);
    if (b == 0) kept = static_cast<__mmask16>(kept | 1);
    _mm512_storeu_si512(s.count + m, _mm512_maskz_compress_epi32(kept, sum));
    _mm512_storeu_si512(s.bins + m, _mm512_maskz_compress_epi32(
                                        kept, _mm512_add_epi32(lanes, _mm512_set1_epi32(b))));
    m += __builtin_popcount(kept);
    before = last_lane(sum);
  }
  return find_valid_range(node, m, s);
}
#endif

// in_lane: one Hessian lane serves all outputs; one: there is one output, whose gradient is needed
// too.
POLYLEAF_INLINE Candidates list_candidates(const ScanNode& node, const ScanFeature& feature,
                                           bool missing_left, bool in_lane, bool one,
                                           ScanScratch& s) {
  if (one)
    return in_lane ? list_candidates<true, true>(node, feature, missing_left, s)
                   : list_candidates<false, true>(node, feature, missing_left, s);
#ifdef __AVX512F__
  if (!in_lane && feature.counts != nullptr) return list_counted(node, feature, missing_left, s);
#endif
  return in_lane ? list_candidates<true, false>(node, feature, missing_left, s)
                 : list_candidates<false, false>(node, feature, missing_left, s);
}

// Return the first index of the largest sum in [first, last); -1 if all are -inf or NaN.
static inline int first_largest(float* sums, int first, int last) {
  f32x16 lanes = broadcast(kNone);
  for (int i = last; i < last + 15; ++i) sums[i] = kNone;
  for (int i = first; i < last; i += 16) lanes = max(load<f32x16>(sums + i), lanes);
#ifdef __AVX512F__
  const float best = _mm512_reduce_max_ps((__m512)lanes);
  if (best == kNone) return -1;
  for (int i = first;; i += 16)
    if (const int equal = _mm512_cmpeq_ps_mask(_mm512_loadu_ps(sums + i), _mm512_set1_ps(best)))
      return i + __builtin_ctz(equal);
#else
  float best = kNone;
  for (int j = 0; j < 16; ++j) best = lanes[j] > best ? lanes[j] : best;
  if (best == kNone) return -1;
  for (int i = first;; ++i)
    if (sums[i] == best) return i;
#endif
}

// Update `best` with the candidates of one direction; score(missing_left, candidates, sums) writes
// the score sums of candidates [first, last).
template <class F>
POLYLEAF_INLINE void update_best(const Candidates& c, int missing_left, ScanScratch& s,
                                 NumericBest* best, const F& score) {
  if (c.first >= c.last) return;
  float* sums = s.sums[missing_left];
  score(missing_left != 0, c, sums);
  const int i = first_largest(sums, c.first, c.last);
  if (i < 0) return;
  // Candidates are ordered by (bin, missing right before missing left).
  if (sums[i] > best->sum || (sums[i] == best->sum && s.bins[i] < best->bin))
    *best = {sums[i], s.bins[i], missing_left};
}

// Find the best candidate of both directions of missing values, which are listed anew for each;
// `score` as above.
template <class F>
POLYLEAF_INLINE void scan_both_directions(const ScanNode& node, const ScanFeature& feature,
                                          bool in_lane, bool one, ScanScratch& s, NumericBest* best,
                                          const F& score) {
  *best = {kNone, -1, 0};
  const bool has_missing = feature.count(*node.layout, feature.missing) != 0;
  for (int missing_left = 0; missing_left <= (has_missing ? 1 : 0); ++missing_left)
    update_best(list_candidates(node, feature, missing_left != 0, in_lane, one, s), missing_left, s,
                best, score);
}

// Find the best of m listed candidates, with missing values on neither side in the list.
template <class F>
POLYLEAF_INLINE void scan_listed(const ScanNode& node, const ScanFeature& feature, int m,
                                 ScanScratch& s, NumericBest* best, const F& score) {
  *best = {kNone, -1, 0};
  const int32_t n_absent = static_cast<int32_t>(feature.count(*node.layout, feature.missing));
  for (int missing_left = 0; missing_left <= (n_absent != 0 ? 1 : 0); ++missing_left)
    update_best(find_valid_range(node, m, s, missing_left != 0 ? n_absent : 0), missing_left, s,
                best, score);
}

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
