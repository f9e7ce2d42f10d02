// Scores of leaves that keep k of many outputs: each child its own outputs (GBDT-MO, Algorithm 3),
// or both the same (Algorithm 4).
//
// Selecting k outputs for every candidate would cost more than its sum over all outputs. That sum
// is an upper bound, so candidates are first summed as if leaves were dense; few blocks of sixteen
// are then scored exactly, in the order of their bounds.
#include "base/kernels/lanes.h"
#include "split_gain/kernels/candidates.h"
#include "split_gain/kernels/separable_kernels.h"
#include "split_gain/score_kernels.h"
#include "split_gain/topk.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

constexpr float kRounding = 1.0f / (1 << 23);  // of one operation, with a margin

// One thread's workspace for a node.
struct Workspace {
  const ScanNode& node;
  const ChannelLayout& layout;
  const int k;
  const bool shared;
  f32x16 *left, *right;  // largest terms of sixteen candidates, k each, of both sides
  // Sums of sixteen candidates, one after the other; sums of the bins so far.
  int32_t *rows, *running;
  float *left_terms, *right_terms;  // of one candidate

  explicit Workspace(const ScanNode& node)
      : node(node),
        layout(*node.layout),
        k(node.config->leaf_k),
        shared(node.config->shared_support) {
    // The workspace is aligned to 64 bytes.
    left = reinterpret_cast<f32x16*>(node.workspace);
    right = left + k;
    rows = reinterpret_cast<int32_t*>(node.workspace + 32 * layout.n_outputs);
    running = rows + 16 * layout.lanes + 16;
    left_terms = node.workspace;
    right_terms = left_terms + 16 * blocks();
  }

  int blocks() const { return (layout.n_outputs + 15) / 16; }
  // Memory for the k largest terms of one side of a single candidate.
  float* largest() const { return reinterpret_cast<float*>(running); }
};

// Running sums of the bins of candidates.
struct RunningSums {
  const Workspace& workspace;
  const ScanFeature& feature;
  const ScanScratch& s;
  const bool missing_left;
  int next = 0;  // candidate whose bin comes next

  RunningSums(const Workspace& workspace, const ScanFeature& feature, const ScanScratch& s,
              bool missing_left)
      : workspace(workspace), feature(feature), s(s), missing_left(missing_left) {
    restart();
  }
  void restart() {
    next = 0;
    std::memset(workspace.running, 0, sizeof(int32_t) * (workspace.layout.lanes + 16));
    if (missing_left) add_bin(feature.missing);
  }
  void add_bin(int b) {
    const int lanes = workspace.layout.lanes;
    int32_t* const running = workspace.running;
    const int32_t* at = feature.bin(workspace.layout, b);
    for (int l = 0; l < lanes; l += 16)
      store(running + l, load<i32x16>(running + l) + load<i32x16>(at + l));
  }
  // Write the sums of `n` candidates from `first` on, as rows; the last one fills up to sixteen.
  void write_rows(int first, int n) {
    if (first < next) restart();
    while (next < first) add_bin(s.bins[next++]);
    for (int j = 0; j < 16; ++j) {
      if (j < n) add_bin(s.bins[next++]);
      std::memcpy(workspace.rows + j * workspace.layout.lanes, workspace.running,
                  sizeof(int32_t) * workspace.layout.lanes);
    }
  }
};

// Return the score sums of the sixteen candidates in workspace.rows; `first` is the first of them.
template <bool SHARED, class S>
f32x16 block_sums(const S& score, const Workspace& workspace, const ScanScratch& s, int first) {
  const ScanNode& node = workspace.node;
  const ChannelLayout& layout = workspace.layout;
  LargestTerms<f32x16> left{workspace.left, workspace.k}, right{workspace.right, workspace.k};
  f32x16 cl = {}, cr = {};
  if constexpr (!S::kPerOutput) {
    cl = load<f32x16>(s.left + first);
    cr = load<f32x16>(s.right + first);
  }
  i32x16 g[16], h[16];
  for (int start = 0; start < layout.n_outputs; start += 16) {
    transpose(workspace.rows + start, layout.lanes, g);
    if constexpr (S::kPerOutput)
      transpose(workspace.rows + layout.hessian_offset + start, layout.lanes, h);
    const int n = layout.n_outputs - start < 16 ? layout.n_outputs - start : 16;
    for (int j = 0; j < n; ++j) {
      const int k = start + j;
      const float step = node.gradient_step[k];
      const f32x16 gl = to_float(g[j]) * step, gr = to_float(splat(node.totals[k]) - g[j]) * step;
      if constexpr (S::kPerOutput) {
        const float h_step = node.hessian_step[k];
        const i32x16 h_total = splat(node.totals[layout.hessian_offset + k]);
        cl = score.coefficient(to_float(h[j]) * h_step);
        cr = score.coefficient(to_float(h_total - h[j]) * h_step);
      }
      if constexpr (SHARED) {
        left.offer(score.pair(gl, gr, cl, cr));
      } else {
        left.offer(score.single(gl, cl));
        right.offer(score.single(gr, cr));
      }
    }
  }
  if constexpr (SHARED) return left.sum();
  return left.sum() + right.sum();
}

POLYLEAF_INLINE float largest_lane(f32x16 v, int n) {
  float largest = kNone;
  for (int j = 0; j < n; ++j) largest = v[j] > largest ? v[j] : largest;
  return largest;
}

f32x16 block_sums(const Workspace& workspace, const ScanScratch& s, int first) {
  return visit_plain_score(workspace.node, [&](const auto& score) {
    return workspace.shared ? block_sums<true>(score, workspace, s, first)
                            : block_sums<false>(score, workspace, s, first);
  });
}

void scan_direction(const Workspace& workspace, const ScanFeature& feature, bool missing_left,
                    const Candidates& c, ScanScratch& s, float* sums) {
  separable_sums(workspace.node, feature, missing_left, c, s, sums);
  const float rounding = kRounding * static_cast<float>(workspace.layout.n_outputs + 64);
  const int n_blocks = (c.last - c.first + 15) / 16;
  const auto size = [&](int b) {
    return c.last - c.first - 16 * b < 16 ? c.last - c.first - 16 * b : 16;
  };
  f32x16 dense[17];
  float bound[17];
  int first = 0;
  for (int b = 0; b < n_blocks; ++b) {
    float* at = sums + c.first + 16 * b;
    dense[b] = load<f32x16>(at);
    const float largest = largest_lane(dense[b], size(b));
    bound[b] = largest == kNone
                   ? kNone
                   : largest * (1.0f + rounding) - workspace.node.prune_bound * (1.0f - rounding);
    if (bound[b] > bound[first]) first = b;
    store(at, broadcast(kNone));
  }
  RunningSums running(workspace, feature, s, missing_left);
  const auto score_block = [&](int b) {
    if (bound[b] == kNone || bound[b] < s.best_so_far) return;
    const int start = c.first + 16 * b;
    running.write_rows(start, size(b));
    const f32x16 found = block_sums(workspace, s, start);
    // Too light candidates are not finite either.
    const i32x16 finite = dense[b] - dense[b] == 0.0f;
    const f32x16 kept = select(finite, found, broadcast(kNone));
    store(sums + start, kept);
    const float largest = largest_lane(kept, size(b));
    if (largest > s.best_so_far) s.best_so_far = largest;
  };
  score_block(first);
  for (int b = 0; b < n_blocks; ++b)
    if (b != first) score_block(b);
}

void scan_numeric(const ScanNode& node, const ScanFeature& feature, ScanScratch& scratch,
                  NumericBest* best) {
  const Workspace workspace(node);
  scan_both_directions(node, feature, has_hessian_lane(*node.layout), false, scratch, best,
                       [&](bool missing_left, const Candidates& c, float* sums) {
                         scan_direction(workspace, feature, missing_left, c, scratch, sums);
                       });
}

// Write the terms of a candidate, or of the node (left == nullptr): of both sides, or all of them
// into `left_terms` if both children share their outputs or there is one side.
void write_terms(const Workspace& workspace, const int32_t* left, int32_t left_count) {
  const bool is_separate = left != nullptr && !workspace.shared;
  visit_plain_score(workspace.node, [&](const auto& score) {
    const Terms terms(score, workspace.node, left, left_count);
    for (int z = 0; z < workspace.blocks(); ++z) {
      store(workspace.left_terms + 16 * z, is_separate ? terms.side(z, false) : terms(z));
      if (is_separate) store(workspace.right_terms + 16 * z, terms.side(z, true));
    }
  });
}

LargestTerms<float> select_largest(const Workspace& workspace, const float* terms, int k) {
  LargestTerms<float> largest{workspace.largest(), k};
  for (int i = 0; i < workspace.layout.n_outputs; ++i) largest.offer(terms[i]);
  return largest;
}

float candidate_sum(const ScanNode& node, const int32_t* left, int32_t left_count) {
  if (!__builtin_isfinite(separable_scores.candidate_sum(node, left, left_count))) return kNone;
  const Workspace workspace(node);
  write_terms(workspace, left, left_count);
  const float sum = select_largest(workspace, workspace.left_terms, workspace.k).sum();
  return workspace.shared
             ? sum
             : sum + select_largest(workspace, workspace.right_terms, workspace.k).sum();
}

float node_sum(const ScanNode& node) {
  const Workspace workspace(node);
  write_terms(workspace, nullptr, 0);
  return select_largest(workspace, workspace.left_terms, workspace.k).sum();
}

float node_hessian(const ScanNode& node) {
  return separable_scores.node_hessian(node);
}

// Set terms to 0 that are not among the k largest, the first ones on ties.
void keep_largest(const Workspace& workspace, float* terms) {
  const LargestTerms<float> largest = select_largest(workspace, terms, workspace.k);
  const float threshold = largest.best[workspace.k - 1];
  int n_ties = 0;
  for (int i = 0; i < workspace.k; ++i) n_ties += largest.best[i] == threshold;
  for (int i = 0; i < workspace.layout.n_outputs; ++i) {
    if (terms[i] > threshold) continue;
    if (terms[i] == threshold && n_ties > 0)
      --n_ties;
    else
      terms[i] = 0.0f;
  }
}

void output_terms(const ScanNode& node, const int32_t* left, int32_t left_count, float* out) {
  const Workspace workspace(node);
  const int n = workspace.layout.n_outputs;
  write_terms(workspace, left, left_count);
  keep_largest(workspace, workspace.left_terms);
  for (int i = 0; i < n; ++i) out[i] = workspace.left_terms[i];
  if (!workspace.shared) {
    keep_largest(workspace, workspace.right_terms);
    for (int i = 0; i < n; ++i) out[i] = out[i] + workspace.right_terms[i];
  }
  write_terms(workspace, nullptr, 0);
  keep_largest(workspace, workspace.left_terms);
  for (int i = 0; i < n; ++i) out[i] = 0.5f * (out[i] - workspace.left_terms[i]);
}

// In every output, two children score at threshold as much as one leaf of all rows with twice the
// penalties. So whatever outputs they keep, the others take at threshold the smallest such scores
// out of the sum over all.
float prune_bound(const ScanNode& node) {
  if (node.layout->hessian != HessianKind::unit && node.config->reg_lambda < 1e-12f) return kNone;
  SplitConfig config = *node.config;
  config.reg_lambda *= 2.0f;
  config.reg_alpha *= 2.0f;
  ScanNode one_leaf = node;
  one_leaf.config = &config;
  const Workspace workspace(one_leaf);
  const int n = workspace.layout.n_outputs, most = workspace.shared ? workspace.k : 2 * workspace.k;
  if (most >= n) return 0.0f;
  write_terms(workspace, nullptr, 0);
  double others = 0;
  for (int i = 0; i < n; ++i) others += static_cast<double>(workspace.left_terms[i]);
  const LargestTerms<float> largest = select_largest(workspace, workspace.left_terms, most);
  for (int i = 0; i < most; ++i) others -= static_cast<double>(largest.best[i]);
  return others > 0 ? static_cast<float>(others) : 0.0f;
}

}  // namespace

const ScoreKernels topk_scores = {scan_numeric, candidate_sum, node_sum,
                                  node_hessian, output_terms,  prune_bound};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
