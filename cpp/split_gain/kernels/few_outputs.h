// Scores of candidates with few outputs: sixteen candidates fill the lanes, and the terms of the
// outputs are added in the order of the virtual lanes. Included by kernels only, inside the
// namespace of an instruction set.
#pragma once
#include "split_gain/kernels/separable_kernels.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

// With more outputs, lanes that stand for outputs are as fast.
constexpr int kMaxFewOutputs = 8;
constexpr int kMaxFewLanes = 16;

// Return the sum of k <= 16 terms as `fold` adds them in virtual lanes.
POLYLEAF_INLINE f32x16 fold_terms(f32x16* terms, int k) {
  for (int half = 8; half >= 1; half /= 2)
    for (int i = 0; i < half && i + half < k; ++i) terms[i] = terms[i] + terms[i + half];
  return terms[0];
}

// Finds the best of many candidates of a node, sixteen at a time. K: number of outputs, 0 if it is
// above one.
template <class S, int K>
class CandidateLanes {
 public:
  CandidateLanes(const S& score, const ScanNode& node)
      : score_(score),
        node_(node),
        n_outputs_(K > 0 ? K : node.layout->n_outputs),
        offset_(node.layout->hessian_offset),
        min_rows_(node.config->min_child_samples > 1 ? node.config->min_child_samples : 1) {}

  // Return the score sums of sixteen candidates; those whose children are too light become
  // inadmissible.
  template <class Mask>
  POLYLEAF_INLINE_MEMBER f32x16 score(const i32x16* left, const i32x16& count,
                                      Mask& admissible) const {
    if constexpr (kSpecialised)
      return compute(left, count, admissible);
    else
      return compute_apart(left, count, admissible);
  }

  // Compare candidates by the sums of their left child, one vector per channel, and its count.
  // `numbers` are returned of the best; those that are not `allowed` are skipped.
  template <class Mask>
  POLYLEAF_INLINE_MEMBER void add(const i32x16* left, const i32x16& count, const i32x16& numbers,
                                  const Mask& allowed) {
    Mask admissible = allowed & (count >= min_rows_) & (node_.count - count >= min_rows_);
    const f32x16 sum = score(left, count, admissible);
    update(sum, numbers, admissible);
  }

  // Compare candidates of known coefficients of their children, NaN if they are inadmissible.
  template <class Mask>
  POLYLEAF_INLINE_MEMBER void add(const i32x16* left, const f32x16& cl, const f32x16& cr,
                                  const i32x16& numbers, const Mask& allowed) {
    f32x16 terms[kMaxFewOutputs];
    for (int j = 0; j < n_outputs_; ++j) terms[j] = term(left, j, cl, cr);
    update(fold_terms(terms, n_outputs_) + 0.0f, numbers, allowed);
  }

  // Return the coefficients of sixteen numbers of rows on one side, NaN if they are too few.
  POLYLEAF_INLINE_MEMBER f32x16 coefficients(const i32x16& count) const {
    const f32x16 h = to_float(count);
    const auto admissible = (count >= min_rows_) & (h >= node_.config->min_child_weight);
    return select(admissible, score_.coefficient(h), broadcast(__builtin_nanf("")));
  }

  POLYLEAF_INLINE_MEMBER void store_best(float* sum, int32_t* number) const {
    store(sum, largest_);
    store(number, at_);
  }

 private:
  POLYLEAF_INLINE_MEMBER f32x16 term(const i32x16* left, int output, const f32x16& cl,
                                     const f32x16& cr) const {
    const float step = node_.gradient_step[output];
    return get_narrow(score_).pair(to_float(left[output]) * step,
                                   to_float(node_.totals[output] - left[output]) * step, cl, cr);
  }

  template <class Mask>
  POLYLEAF_INLINE_MEMBER void update(const f32x16& sum, const i32x16& numbers,
                                     const Mask& admissible) {
    const Mask better = admissible & (sum > largest_);
    largest_ = select(better, sum, largest_);
    at_ = select(better, numbers, at_);
  }

  POLYLEAF_INLINE_MEMBER f32x16 hessian(const i32x16* left, int output, bool right) const {
    const int lane = offset_ + output;
    const i32x16 sum = right ? node_.totals[lane] - left[lane] : left[lane];
    return to_float(sum) * node_.hessian_step[output];
  }

  template <class Mask>
  POLYLEAF_INLINE_MEMBER f32x16 compute(const i32x16* left, const i32x16& count,
                                        Mask& admissible) const {
    const float min_weight = node_.config->min_child_weight;
    const float k = static_cast<float>(n_outputs_);
    f32x16 terms[kMaxFewOutputs], cl{}, cr{};
    if constexpr (!S::kPerOutput || K == 1) {
      const bool unit = offset_ < 0;
      const f32x16 step = broadcast(unit ? 1.0f : node_.hessian_step[0]);
      const int32_t total = unit ? node_.count : node_.totals[offset_];
      const i32x16& h = unit ? count : left[offset_];
      const f32x16 hl = to_float(h) * step, hr = to_float(total - h) * step;
      admissible = admissible & (hl >= min_weight) & (hr >= min_weight);
      cl = score_.coefficient(hl);
      cr = score_.coefficient(hr);
    } else if (min_weight > 0) {
      f32x16 weights[2][kMaxFewOutputs];
      for (int j = 0; j < n_outputs_; ++j) {
        weights[0][j] = hessian(left, j, false);
        weights[1][j] = hessian(left, j, true);
      }
      admissible = admissible & (fold_terms(weights[0], n_outputs_) / k >= min_weight) &
                   (fold_terms(weights[1], n_outputs_) / k >= min_weight);
    }
    for (int j = 0; j < n_outputs_; ++j) {
      if constexpr (S::kPerOutput && K != 1) {
        cl = score_.coefficient(hessian(left, j, false));
        cr = score_.coefficient(hessian(left, j, true));
      }
      terms[j] = term(left, j, cl, cr);
    }
    return fold_terms(terms, n_outputs_) + 0.0f;  // the other virtual lanes are +0
  }
  template <class Mask>
  __attribute__((noinline)) f32x16 compute_apart(const i32x16* left, const i32x16& count,
                                                 Mask& admissible) const {
    return compute(left, count, admissible);
  }

  const S& score_;
  const ScanNode& node_;
  const int n_outputs_, offset_;
  const int32_t min_rows_;
  f32x16 largest_ = broadcast(kNone);
  i32x16 at_ = {};
};

// Return whether candidates fill the lanes.
POLYLEAF_INLINE bool has_few_outputs(const ScanNode& node) {
  return node.layout->n_outputs <= kMaxFewOutputs && node.layout->lanes <= kMaxFewLanes &&
         node.layout->count_lane >= 0 && node.constraints == nullptr;
}

// Call f(score, lanes, outputs) with the node's score, and with its numbers of lanes and of outputs
// (0: above one) as types.
template <class F>
POLYLEAF_INLINE void visit_few_outputs(const ScanNode& node, const F& f) {
  visit_plain_score(node, [&](const auto& score) {
    const int lanes = node.layout->lanes;
    constexpr std::integral_constant<int, 0> many;
    if constexpr (!std::is_same_v<decltype(score), const Regularised<true>&>)
      if (node.layout->n_outputs == 1)
        return f(score, std::integral_constant<int, 4>(), std::integral_constant<int, 1>());
    if (lanes == 4)
      f(score, std::integral_constant<int, 4>(), many);
    else if (lanes == 8)
      f(score, std::integral_constant<int, 8>(), many);
    else
      f(score, std::integral_constant<int, 16>(), many);
  });
}

// Call f(left, numbers) for rows of LANES sums, sixteen candidates at a time: vectors of their
// channels, and their numbers, which may pass m.
template <int LANES, class F>
POLYLEAF_INLINE void visit_candidates(const int32_t* sums, int m, const F& f) {
  constexpr int kGroups = 16 / LANES;  // candidates of one vector of sums
  int32_t first_of_lane[16];
  for (int j = 0; j < 16; ++j) first_of_lane[j] = j * kGroups;
  for (int first = 0; first < m; first += 16 * kGroups) {
    i32x16 left[16];
    transpose(sums + first * LANES, 16, left);
    for (int group = 0; group < kGroups && first + group < m; ++group)
      f(left + group * LANES, load<i32x16>(first_of_lane) + (first + group));
  }
}

// List the running sums of the value bins, `Sum` each; return how many. Bins that are not touched
// are skipped. Other empty bins repeat the candidate before them, which wins the tie.
template <class Sum>
int list_sums(const ScanFeature& feature, int count_lane, int32_t* sums, int32_t* bins) {
  constexpr int kLanesOfBin = sizeof(Sum) / sizeof(int32_t);
  const int32_t* const first = feature.sums;
  Sum sum = {};
  if (feature.touched == nullptr) {
    const int n_bins = feature.n_bins;
    for (int64_t at = 0; at < int64_t{n_bins} * kLanesOfBin; at += kLanesOfBin) {
      sum += load<Sum>(first + at);
      store(sums + at, sum);
    }
    for (int b = 0; b < n_bins; ++b) bins[b] = b;
    return n_bins;
  }
  int64_t m = 0;
  visit_bins(feature, [&](int b) __attribute__((always_inline)) {
    const int32_t* at = first + static_cast<int64_t>(b) * kLanesOfBin;
    sum += load<Sum>(at);
    store(sums + m * kLanesOfBin, sum);
    bins[m] = b;
    m += (at[count_lane] != 0) | (b == 0);
  });
  return static_cast<int>(m);
}

// Find the best candidate of a histogram with few outputs. LANES: 4, 8 or 16.
template <int LANES, int K, class S>
void scan_few(const S& score, const ScanNode& node, const ScanFeature& feature, ScanScratch& s,
              NumericBest* best) {
  using Sum = std::conditional_t<LANES == 4, i32x4, std::conditional_t<LANES == 8, i32x8, i32x16>>;
  alignas(64) int32_t sums[272 * LANES];
  const int count_lane = node.layout->count_lane;
  const int m = list_sums<Sum>(feature, count_lane, sums, s.bins);
  const int32_t* absent = feature.bin(*node.layout, feature.missing);
  *best = {kNone, -1, 0};
  for (int missing_left = 0; missing_left <= (absent[count_lane] != 0 ? 1 : 0); ++missing_left) {
    CandidateLanes<S, K> lanes(score, node);
    visit_candidates<LANES>(sums, m, [&](i32x16* left, const i32x16& numbers) {
      if (missing_left != 0)
        for (int j = 0; j < LANES; ++j) left[j] += splat(absent[j]);
      lanes.add(left, left[count_lane], numbers, numbers < m);
    });
    float found[16];
    int32_t numbers[16];
    lanes.store_best(found, numbers);
    int at = -1;
    for (int j = 0; j < 16; ++j)
      if (found[j] > kNone &&
          (at < 0 || found[j] > found[at] || (found[j] == found[at] && numbers[j] < numbers[at])))
        at = j;
    if (at < 0) continue;
    const int32_t bin = s.bins[numbers[at]];
    // Candidates are ordered by (bin, missing right before missing left).
    if (found[at] > best->sum || (found[at] == best->sum && bin < best->bin))
      *best = {found[at], bin, missing_left};
  }
}

// Write the score sums of m candidates with few outputs; -inf if a child is too light.
template <int LANES, int K, class S>
void sum_few(const S& score, const ScanNode& node, const int32_t* left_sums, int m, float* sums) {
  const CandidateLanes<S, K> lanes(score, node);
  visit_candidates<LANES>(left_sums, m, [&](i32x16* left, const i32x16& numbers) {
    auto admissible = numbers < m;
    const f32x16 sum = lanes.score(left, left[node.layout->count_lane], admissible);
    float found[16];
    int32_t at[16];
    store(found, select(admissible, sum, broadcast(kNone)));
    store(at, numbers);
    for (int j = 0; j < 16 && at[j] < m; ++j) sums[at[j]] = found[j];
  });
}

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
