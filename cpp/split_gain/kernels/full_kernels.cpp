// Scores with a full Hessian: sums of sixteen candidates are laid out by lane, so that one
// elimination (split_gain/full.h) solves for all of them.
#include "base/kernels/lanes.h"
#include "split_gain/full.h"
#include "split_gain/kernels/candidates.h"
#include "split_gain/score_kernels.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

// One thread's workspace for a node, with the equations of sixteen candidates.
struct Equations {
  const ScanNode& node;
  const ChannelLayout& layout;
  int m;                    // outputs solved for
  int32_t* outputs;         // ascending
  f32x16 *A, *y, *inverse;  // of sixteen candidates
  i32x16* by_lane;          // their sums
  int32_t *rows, *running;  // sums of one candidate after the other; sums of the bins so far

  explicit Equations(const ScanNode& node) : node(node), layout(*node.layout) {
    const int64_t k = layout.n_outputs, lanes = layout.lanes;
    // The workspace is aligned to 64 bytes.
    A = reinterpret_cast<f32x16*>(node.workspace);
    y = A + packed_size(k);
    inverse = y + k;
    by_lane = reinterpret_cast<i32x16*>(inverse + k);
    rows = reinterpret_cast<int32_t*>(by_lane + lanes);
    running = rows + 16 * lanes;
    outputs = running + lanes;
    select_outputs();
  }

  // Select the outputs with the largest gradients of the node. Inlining makes scans 2 % slower.
  __attribute__((noinline)) void select_outputs() {
    m = select_solved_outputs(
        layout.n_outputs, node.config->block_size,
        [&](int i) {
          return __builtin_fabsf(static_cast<float>(node.totals[i]) * node.gradient_step[i]);
        },
        outputs);
  }

  // Fill by_lane from sixteen rows of sums.
  void fill_by_lane(const int32_t* from, int stride) const {
    for (int l = 0; l < layout.lanes; l += 16) transpose(from + l, stride, by_lane + l);
  }

  i32x16 sum(int lane, bool right) const {
    return right ? splat(node.totals[lane]) - by_lane[lane] : by_lane[lane];
  }
  f32x16 gradient(int k, bool right) const {
    return to_float(sum(k, right)) * node.gradient_step[k];
  }
  f32x16 hessian(int at, bool right) const {
    return to_float(sum(layout.hessian_offset + at, right)) * node.hessian_step[at];
  }

  // Return g' (H + lambda I)^-1 g of one side, over the outputs solved for.
  f32x16 side_score(bool right) const {
    return compute_side_gain(
        m, node.config->reg_lambda,
        [&](int i) __attribute__((always_inline)) { return gradient(outputs[i], right); },
        [&](int i, int j) __attribute__((always_inline)) {
          return hessian(packed(outputs[i], outputs[j]), right);
        },
        A, y, inverse);
  }

  // Return the mean over outputs of the diagonal, added up as `fold` adds sixteen lanes.
  f32x16 mean_hessian(bool right) const {
    f32x16 lanes[16] = {};
    for (int k = 0; k < layout.n_outputs; ++k) {
      const f32x16 h = hessian(packed(k, k), right);
      lanes[k % 16] = k < 16 ? h : lanes[k % 16] + h;
    }
    for (int half = 8; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
    return lanes[0] / static_cast<float>(layout.n_outputs);
  }

  // Return the score sums of the candidates in by_lane, -inf if a child is too light.
  f32x16 sums() const {
    const f32x16 total = side_score(false) + side_score(true);
    const float min_weight = node.config->min_child_weight;
    if (!(min_weight > 0)) return total;
    const i32x16 heavy = (mean_hessian(false) >= min_weight) & (mean_hessian(true) >= min_weight);
    return select(heavy, total, broadcast(kNone));
  }

  // Fill by_lane with sixteen copies of one candidate, or of the node.
  void repeat(const int32_t* of) const {
    for (int l = 0; l < layout.lanes; ++l) by_lane[l] = splat(of[l]);
  }

  // Add factor * g_k w_k of one side to out.
  void add_terms(bool right, float factor, float* out) const {
    side_score(right);
    substitute(A, m, y, 1, inverse);
    for (int i = 0; i < m; ++i)
      out[outputs[i]] += factor * (gradient(outputs[i], right)[0] * y[i][0]);
  }
};

void scan_direction(const Equations& equations, const ScanFeature& feature, bool missing_left,
                    const Candidates& c, const ScanScratch& s, float* sums) {
  const int lanes = equations.layout.lanes;
  int32_t* const running = equations.running;
  std::memset(running, 0, sizeof(int32_t) * lanes);
  const auto add_bin = [&](int b) __attribute__((always_inline)) {
    const int32_t* at = feature.bin(equations.layout, b);
    for (int l = 0; l < lanes; l += 16)
      store(running + l, load<i32x16>(running + l) + load<i32x16>(at + l));
  };
  if (missing_left) add_bin(feature.missing);
  for (int i = 0; i < c.first; ++i) add_bin(s.bins[i]);
  for (int start = c.first; start < c.last; start += 16) {
    const int n = c.last - start < 16 ? c.last - start : 16;
    for (int j = 0; j < 16; ++j) {
      if (j < n) add_bin(s.bins[start + j]);
      std::memcpy(equations.rows + j * lanes, running, sizeof(int32_t) * lanes);
    }
    equations.fill_by_lane(equations.rows, lanes);
    store(sums + start, equations.sums());
  }
}

void scan_numeric(const ScanNode& node, const ScanFeature& feature, ScanScratch& scratch,
                  NumericBest* best) {
  const Equations equations(node);
  scan_both_directions(node, feature, false, false, scratch, best,
                       [&](bool missing_left, const Candidates& c, float* sums) {
                         scan_direction(equations, feature, missing_left, c, scratch, sums);
                       });
}

float candidate_sum(const ScanNode& node, const int32_t* left, int32_t) {
  const Equations equations(node);
  equations.repeat(left);
  return equations.sums()[0];
}

float node_sum(const ScanNode& node) {
  const Equations equations(node);
  equations.repeat(node.totals);
  return equations.side_score(false)[0];
}

float node_hessian(const ScanNode& node) {
  const Equations equations(node);
  equations.repeat(node.totals);
  return equations.mean_hessian(false)[0];
}

void output_terms(const ScanNode& node, const int32_t* left, int32_t, float* out) {
  const Equations equations(node);
  const int k = node.layout->n_outputs;
  float* before = reinterpret_cast<float*>(equations.rows);
  for (int i = 0; i < k; ++i) out[i] = before[i] = 0.0f;
  equations.repeat(node.totals);
  equations.add_terms(false, 1.0f, before);
  equations.repeat(left);
  equations.add_terms(false, 1.0f, out);
  equations.add_terms(true, 1.0f, out);
  for (int i = 0; i < k; ++i) out[i] = 0.5f * (out[i] - before[i]);
}

}  // namespace

const ScoreKernels full_scores = {scan_numeric, candidate_sum, node_sum, node_hessian,
                                  output_terms};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
