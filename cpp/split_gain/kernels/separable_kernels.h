// Scores whose terms are separate by output: which of them a node asks for, and the terms of one
// candidate. Included by kernels only, inside the namespace of an instruction set.
#pragma once
#include <type_traits>

#include "split_gain/kernels/candidates.h"
#include "split_gain/monotone_score.h"
#include "split_gain/separable_score.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

// Write the score sums over all outputs of the candidates [first, last) of one direction, -inf if a
// child is too light. With one Hessian for all outputs, the scratch then holds the coefficients of
// both sides.
void separable_sums(const ScanNode& node, const ScanFeature& feature, bool missing_left,
                    const Candidates& c, ScanScratch& s, float* sums);

// Return whether candidates are listed with their Hessian.
POLYLEAF_INLINE bool has_hessian_lane(const ChannelLayout& layout) {
  return layout.hessian == HessianKind::shared ||
         (layout.n_outputs == 1 && layout.hessian == HessianKind::diagonal);
}

// True for common scores, which have specialised code for each number of registers; other scores
// are computed out of line.
template <class S>
constexpr bool kUsual = kSpecialised && (std::is_same_v<S, Shared> || std::is_same_v<S, Diagonal>);

// Call f with the score of the node's layout and regularisation. The Hessian of a single output is
// one for all outputs.
template <class F>
auto visit_plain_score(const ScanNode& node, F f) {
  const Regularisation r{node.config->reg_lambda, node.config->reg_alpha,
                         node.config->max_delta_step};
  const bool plain = r.alpha == 0.0f && r.max_delta_step == 0.0f;
  if (node.layout->hessian == HessianKind::diagonal)
    return plain                         ? f(Diagonal{r})
           : node.layout->n_outputs == 1 ? f(Regularised<false>{r})
                                         : f(Regularised<true>{r});
  return plain ? f(Shared{r}) : f(Regularised<false>{r});
}

// Call f with the score of monotone constraints.
template <class F>
auto visit_monotone_score(const ScanNode& node, const F& f) {
  const Regularisation r{node.config->reg_lambda, node.config->reg_alpha,
                         node.config->max_delta_step};
  const float *low = node.bounds->low(), *high = node.bounds->high();
  return node.layout->hessian == HessianKind::diagonal
             ? f(MonotoneScore<true>{r, node.feature_constraints, low, high})
             : f(MonotoneScore<false>{r, node.feature_constraints, low, high});
}

// Call f with the score of the node.
template <class F>
auto visit_score(const ScanNode& node, const F& f) {
  return node.constraints == nullptr ? visit_plain_score(node, f) : visit_monotone_score(node, f);
}

// Terms of one candidate, or of the node itself (left == nullptr), sixteen outputs at a time.
template <class S>
struct Terms {
  const S& score;
  const ScanNode& node;
  const int32_t* left;
  f32x16 left_shared = {}, right_shared = {};

  Terms(const S& score, const ScanNode& node, const int32_t* left, int32_t left_count)
      : score(score), node(node), left(left) {
    const ChannelLayout& layout = *node.layout;
    if (S::kPerOutput && layout.n_outputs > 1) return;
    const bool unit = layout.hessian == HessianKind::unit;
    const float step = unit ? 1.0f : node.hessian_step[0];
    const int32_t total = unit ? node.count : node.totals[layout.hessian_offset];
    const int32_t part = left == nullptr ? total : unit ? left_count : left[layout.hessian_offset];
    left_shared = broadcast(static_cast<float>(part) * step);
    right_shared = broadcast(static_cast<float>(total - part) * step);
  }

  f32x16 hessian(int z, bool right) const {
    const ChannelLayout& layout = *node.layout;
    if (!S::kPerOutput || layout.n_outputs == 1) return right ? right_shared : left_shared;
    const i32x16 total = load<i32x16>(node.totals + layout.hessian_offset + 16 * z);
    const i32x16 l = left == nullptr ? total : load<i32x16>(left + layout.hessian_offset + 16 * z);
    return to_float(right ? total - l : l) * load<f32x16>(node.hessian_step + 16 * z);
  }

  f32x16 gradient(int z, bool right) const {
    const i32x16 total = load<i32x16>(node.totals + 16 * z);
    const i32x16 l = left == nullptr ? total : load<i32x16>(left + 16 * z);
    return to_float(right ? total - l : l) * load<f32x16>(node.gradient_step + 16 * z);
  }

  // Return the tied value of both children; NaN where each has its own.
  f32x16 tied(int z) const {
    const f32x16 cl = score.coefficient(hessian(z, false)),
                 cr = score.coefficient(hessian(z, true));
    return get_block(score, z).tied(gradient(z, false), gradient(z, true), cl, cr);
  }

  f32x16 side(int z, bool right) const {
    return get_block(score, z).single(gradient(z, right), score.coefficient(hessian(z, right)));
  }

  f32x16 operator()(int z) const {
    if (left == nullptr) return side(z, false);
    const f32x16 cl = score.coefficient(hessian(z, false));
    const f32x16 cr = score.coefficient(hessian(z, true));
    return get_block(score, z).pair(gradient(z, false), gradient(z, true), cl, cr);
  }
};

// Return the score sum; -inf if a child is too light.
template <class S>
float compute_sum(const S& score, const ScanNode& node, const int32_t* left, int32_t left_count) {
  const Terms<S> terms(score, node, left, left_count);
  const int blocks = (node.layout->n_outputs + 15) / 16;
  f32x16 v = terms(0), weight_left = terms.hessian(0, false), weight_right = terms.hessian(0, true);
  for (int z = 1; z < blocks; ++z) {
    v += terms(z);
    if (S::kPerOutput) {
      weight_left += terms.hessian(z, false);
      weight_right += terms.hessian(z, true);
    }
  }
  const float min_weight = node.config->min_child_weight;
  if (left != nullptr && min_weight > 0) {
    const bool many = S::kPerOutput && node.layout->n_outputs > 1;
    const float k = static_cast<float>(node.layout->n_outputs);
    const float hl = many ? fold(weight_left) / k : weight_left[0];
    const float hr = many ? fold(weight_right) / k : weight_right[0];
    if (!(hl >= min_weight && hr >= min_weight)) return kNone;
  }
  return fold(v);
}

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
