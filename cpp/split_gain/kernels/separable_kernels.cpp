// Scores that are separable by output: prefix sums in integers, scores in sixteen float lanes.
#include "split_gain/kernels/separable_kernels.h"

#include <type_traits>

#include "base/kernels/lanes.h"
#include "split_gain/kernels/candidates.h"
#include "split_gain/kernels/few_outputs.h"
#include "split_gain/score_kernels.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

// Return the lane sums of sixteen vectors, each folded exactly as `fold` does.
POLYLEAF_INLINE f32x16 fold_sixteen(const f32x16* v) {
#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
  const i32x16 low8 = {0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23};
  const i32x16 low4 = {0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27};
  const i32x16 low2 = {0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29};
  const i32x16 low1 = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};
  f32x16 eight[8], four[4], two[2];
  for (int i = 0; i < 8; ++i)
    eight[i] = __builtin_shuffle(v[2 * i], v[2 * i + 1], low8) +
               __builtin_shuffle(v[2 * i], v[2 * i + 1], low8 + 8);
  for (int i = 0; i < 4; ++i)
    four[i] = __builtin_shuffle(eight[2 * i], eight[2 * i + 1], low4) +
              __builtin_shuffle(eight[2 * i], eight[2 * i + 1], low4 + 4);
  for (int i = 0; i < 2; ++i)
    two[i] = __builtin_shuffle(four[2 * i], four[2 * i + 1], low2) +
             __builtin_shuffle(four[2 * i], four[2 * i + 1], low2 + 2);
  return __builtin_shuffle(two[0], two[1], low1) + __builtin_shuffle(two[0], two[1], low1 + 1);
#elif defined(__AVX2__) && defined(__GNUC__) && !defined(__clang__)
  // Each half of a register holds sums of other vectors: v[0] and v[8] share one, and so on.
  const i32x8 low4 = {0, 1, 2, 3, 8, 9, 10, 11}, low2 = {0, 1, 8, 9, 4, 5, 12, 13};
  const i32x8 low1 = {0, 2, 8, 10, 4, 6, 12, 14};
  f32x8 four[8], two[4], one[2];
  for (int i = 0; i < 8; ++i) {
    const f32x8 a = v[i].low + v[i].high, b = v[i + 8].low + v[i + 8].high;
    four[i] = __builtin_shuffle(a, b, low4) + __builtin_shuffle(a, b, low4 + 4);
  }
  for (int i = 0; i < 4; ++i)
    two[i] = __builtin_shuffle(four[2 * i], four[2 * i + 1], low2) +
             __builtin_shuffle(four[2 * i], four[2 * i + 1], low2 + 2);
  for (int i = 0; i < 2; ++i)
    one[i] = __builtin_shuffle(two[2 * i], two[2 * i + 1], low1) +
             __builtin_shuffle(two[2 * i], two[2 * i + 1], low1 + 1);
  return {__builtin_shuffle(one[0], one[1], low4), __builtin_shuffle(one[0], one[1], low4 + 4)};
#else
  float sums[16];
  for (int i = 0; i < 16; ++i) sums[i] = fold(v[i]);
  return load<f32x16>(sums);
#endif
}

// Compute the coefficients of both sides for candidates [first, last) with one Hessian for all
// outputs, and add -inf to the sums of candidates whose children are too light.
template <class S>
void shared_coefficients(const S& score, const ScanNode& node, const Candidates& c, ScanScratch& s,
                         float* penalty) {
  const bool unit = node.layout->hessian == HessianKind::unit;
  const float step = unit ? 1.0f : node.hessian_step[0];
  const int32_t total = unit ? node.count : node.totals[node.layout->hessian_offset];
  const int32_t* left = unit ? s.count : s.hessian;
  const f32x16 min_weight = broadcast(node.config->min_child_weight);
  for (int i = c.first; i < c.last; i += 16) {
    const i32x16 l = load<i32x16>(left + i);
    const f32x16 hl = to_float(l) * step, hr = to_float(splat(total) - l) * step;
    store(s.left + i, score.coefficient(hl));
    store(s.right + i, score.coefficient(hr));
    const i32x16 heavy = (hl >= min_weight) & (hr >= min_weight);
    store(penalty + i, select(heavy, f32x16{}, broadcast(kNone)));
  }
}

// One output: sixteen candidates per vector.
template <class S>
void scan_narrow(const S& score, const ScanNode& node, const Candidates& c, ScanScratch& s,
                 float* sums) {
  shared_coefficients(score, node, c, s, sums);
  const float step = node.gradient_step[0];
  const i32x16 total = splat(node.totals[0]);
  for (int i = c.first; i < c.last; i += 16) {
    const i32x16 l = load<i32x16>(s.gradient + i);
    const f32x16 gl = to_float(l) * step, gr = to_float(total - l) * step;
    const f32x16 term =
        get_narrow(score).pair(gl, gr, load<f32x16>(s.left + i), load<f32x16>(s.right + i));
    store(sums + i, term + load<f32x16>(sums + i));
  }
}

// Many outputs: sixteen outputs per vector, Z vectors in registers (Z = 0: any number, in memory).
template <class S, int Z>
void scan_wide(const S& score, const ScanNode& node, const ScanFeature& feature, bool missing_left,
               const Candidates& c, ScanScratch& s, float* sums) {
  const ChannelLayout& layout = *node.layout;
  const int blocks = Z > 0 ? Z : (layout.n_outputs + 15) / 16;
  const int offset = layout.hessian_offset;
  i32x16 g_fixed[Z > 0 ? Z : 1] = {}, h_fixed[Z > 0 && S::kPerOutput ? Z : 1] = {};
  int32_t* const memory = s.lanes;  // Z = 0: 16 * blocks gradient sums, then as many Hessian sums
  const auto g_at = [&](int z) { return Z > 0 ? g_fixed[z] : load<i32x16>(memory + 16 * z); };
  const auto h_at = [&](int z) {
    return Z > 0 ? h_fixed[z] : load<i32x16>(memory + 16 * (blocks + z));
  };
  const auto add_bin = [&](int b) __attribute__((always_inline)) {
    const int32_t* at = feature.bin(layout, b);
    for (int z = 0; z < blocks; ++z) {
      const i32x16 gradient = load<i32x16>(at + 16 * z);
      if (Z > 0)
        g_fixed[z] += gradient;
      else
        store(memory + 16 * z, g_at(z) + gradient);
      if constexpr (S::kPerOutput) {
        const i32x16 hessian = load<i32x16>(at + offset + 16 * z);
        if (Z > 0)
          h_fixed[z] += hessian;
        else
          store(memory + 16 * (blocks + z), h_at(z) + hessian);
      }
    }
  };
  if (Z == 0) std::memset(memory, 0, sizeof(int32_t) * 32 * blocks);
  if (missing_left) add_bin(feature.missing);
  for (int i = 0; i < c.first; ++i) add_bin(s.bins[i]);
  if constexpr (!S::kPerOutput) shared_coefficients(score, node, c, s, sums);
  const float min_weight = node.config->min_child_weight;
  f32x16 terms[16];
  for (int start = c.first; start < c.last; start += 16) {
    const int m = c.last - start < 16 ? c.last - start : 16;
    for (int j = 0; j < m; ++j) {
      const int i = start + j;
      add_bin(s.bins[i]);
      f32x16 v = {}, weight_left = {}, weight_right = {};
      for (int z = 0; z < blocks; ++z) {
        const f32x16 step = load<f32x16>(node.gradient_step + 16 * z);
        const f32x16 gl = to_float(g_at(z)) * step;
        const f32x16 gr = to_float(load<i32x16>(node.totals + 16 * z) - g_at(z)) * step;
        f32x16 cl, cr;
        if constexpr (S::kPerOutput) {
          const f32x16 h_step = load<f32x16>(node.hessian_step + 16 * z);
          const f32x16 hl = to_float(h_at(z)) * h_step;
          const f32x16 hr =
              to_float(load<i32x16>(node.totals + offset + 16 * z) - h_at(z)) * h_step;
          weight_left = z == 0 ? hl : weight_left + hl;
          weight_right = z == 0 ? hr : weight_right + hr;
          cl = score.coefficient(hl);
          cr = score.coefficient(hr);
        } else {
          cl = broadcast(s.left[i]);
          cr = broadcast(s.right[i]);
        }
        const f32x16 term = get_block(score, z).pair(gl, gr, cl, cr);
        v = z == 0 ? term : v + term;
      }
      terms[j] = v;
      if constexpr (S::kPerOutput) {
        const float k = static_cast<float>(layout.n_outputs);
        const bool heavy = min_weight <= 0 || (fold(weight_left) / k >= min_weight &&
                                               fold(weight_right) / k >= min_weight);
        sums[i] = heavy ? 0.0f : kNone;
      }
    }
    for (int j = m; j < 16; ++j) terms[j] = f32x16{};
    store(sums + start, fold_sixteen(terms) + load<f32x16>(sums + start));
  }
}

template <class S>
void scan_direction(const S& score, const ScanNode& node, const ScanFeature& feature,
                    bool missing_left, const Candidates& c, ScanScratch& s, float* sums) {
  const int blocks = (node.layout->n_outputs + 15) / 16;
  if constexpr (kUsual<S>) {
    switch (blocks) {
      case 1:
        return scan_wide<S, 1>(score, node, feature, missing_left, c, s, sums);
      case 2:
        return scan_wide<S, 2>(score, node, feature, missing_left, c, s, sums);
      case 3:
        return scan_wide<S, 3>(score, node, feature, missing_left, c, s, sums);
      case 4:
        return scan_wide<S, 4>(score, node, feature, missing_left, c, s, sums);
      case 7:
        return scan_wide<S, 7>(score, node, feature, missing_left, c, s, sums);
    }
  } else if (blocks == 1) {
    return scan_wide<S, 1>(score, node, feature, missing_left, c, s, sums);
  }
  scan_wide<S, 0>(score, node, feature, missing_left, c, s, sums);
}

template <class S>
void write_output_terms(const S& score, const ScanNode& node, const int32_t* left,
                        int32_t left_count, float* out) {
  const Terms<S> after(score, node, left, left_count), before(score, node, nullptr, 0);
  for (int k = 0; k < node.layout->n_outputs; k += 16) {
    const f32x16 gain = 0.5f * (after(k / 16) - before(k / 16));
    for (int j = 0; j < 16 && k + j < node.layout->n_outputs; ++j) out[k + j] = gain[j];
  }
}

// Score the last candidate, which has only missing values on the right, without monotone
// constraints: a missing value is neither above nor below others.
void score_separated_missing(const ScanNode& node, const ScanFeature& feature, const Candidates& c,
                             ScanScratch& s, float* sums) {
  separable_sums(node.unconstrained(), feature, false, {c.n, c.last - 1, c.last}, s, sums);
  s.bins[c.last - 1] = feature.n_bins - 1;
}

void scan_numeric(const ScanNode& node, const ScanFeature& feature, ScanScratch& scratch,
                  NumericBest* best) {
  if (has_few_outputs(node) && feature.counts == nullptr)
    return visit_few_outputs(node, [&](const auto& score, auto lanes, auto outputs) {
      scan_few<lanes(), outputs()>(score, node, feature, scratch, best);
    });
  scan_both_directions(node, feature, has_hessian_lane(*node.layout), node.layout->n_outputs == 1,
                       scratch, best, [&](bool missing_left, const Candidates& c, float* sums) {
                         separable_sums(node, feature, missing_left, c, scratch, sums);
                         if (node.constraints != nullptr && !missing_left && c.last == c.n)
                           score_separated_missing(node, feature, c, scratch, sums);
                       });
}

float candidate_sum(const ScanNode& node, const int32_t* left, int32_t left_count) {
  return visit_score(node,
                     [&](const auto& score) { return compute_sum(score, node, left, left_count); });
}

void candidate_sums(const ScanNode& node, const int32_t* left, const int32_t* left_counts, int n,
                    float* sums) {
  if (has_few_outputs(node))
    return visit_few_outputs(node, [&](const auto& score, auto lanes, auto outputs) {
      sum_few<lanes(), outputs()>(score, node, left, n, sums);
    });
  visit_score(node, [&](const auto& score) {
    for (int i = 0; i < n; ++i)
      sums[i] = compute_sum(score, node, left + static_cast<int64_t>(i) * node.layout->lanes,
                            left_counts[i]);
  });
}

float node_sum(const ScanNode& node) {
  return visit_score(node, [&](const auto& score) { return compute_sum(score, node, nullptr, 0); });
}

float node_hessian(const ScanNode& node) {
  return visit_plain_score(node, [&](const auto& score) {
    using S = std::decay_t<decltype(score)>;
    const Terms<S> terms(score, node, nullptr, 0);
    f32x16 h = terms.hessian(0, false);
    if (!S::kPerOutput || node.layout->n_outputs == 1) return h[0];
    for (int z = 1; z < (node.layout->n_outputs + 15) / 16; ++z) h += terms.hessian(z, false);
    return fold(h) / static_cast<float>(node.layout->n_outputs);
  });
}

void output_terms(const ScanNode& node, const int32_t* left, int32_t left_count, float* out) {
  visit_score(node,
              [&](const auto& score) { write_output_terms(score, node, left, left_count, out); });
}

void tied_values(const ScanNode& node, const int32_t* left, int32_t left_count, float* out) {
  visit_monotone_score(node, [&](const auto& score) {
    const Terms terms(score, node, left, left_count);
    for (int z = 0; 16 * z < node.layout->n_outputs; ++z) store(out + 16 * z, terms.tied(z));
  });
}

}  // namespace

void separable_sums(const ScanNode& node, const ScanFeature& feature, bool missing_left,
                    const Candidates& c, ScanScratch& s, float* sums) {
  visit_score(node, [&](const auto& score) {
    if (node.layout->n_outputs == 1)
      scan_narrow(score, node, c, s, sums);
    else
      scan_direction(score, node, feature, missing_left, c, s, sums);
  });
}

const ScoreKernels separable_scores = {scan_numeric, candidate_sum, node_sum,    node_hessian,
                                       output_terms, nullptr,       tied_values, candidate_sums};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
