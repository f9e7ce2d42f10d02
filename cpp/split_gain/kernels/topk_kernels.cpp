// Scores of leaves that keep k of many outputs (score_kernels.h): each child its own (GBDT-MO,
// Algorithm 3) or both the same (Algorithm 4).
//
// Choosing k outputs for every candidate would cost more than its sum over all of them. That sum
// bounds it (docs/development/decisions.md, so candidates are first summed as if leaves were dense;
// few blocks of sixteen are then looked at closely, those of the largest bound first.
#include "base/kernels/lanes.h"
#include "split_gain/kernels/candidates.h"
#include "split_gain/kernels/separable_kernels.h"
#include "split_gain/score_kernels.h"
#include "split_gain/topk.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

constexpr float kRounding = 1.0f / (1 << 23);  // of one operation, with room to spare

// One thread's memory for one node, and what its leaves keep.
struct Room {
  const ScanNode& node;
  const ChannelLayout& layout;
  const int k;
  const bool shared;
  f32x16 *left, *right;     // the largest terms of sixteen candidates, k each; of both sides
  int32_t *rows, *running;  // sums of sixteen candidates, one after the other; of the bins so far
  float *left_terms, *right_terms;  // of one candidate

  explicit Room(const ScanNode& node)
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
  // Of one candidate's terms, which are in the memory of the terms of sixteen; k of one side at a
  // time.
  float* largest() const { return reinterpret_cast<float*>(running); }
};

// Sums of the bins of candidates, as far as they have been read.
struct RunningSums {
  const Room& room;
  const ScanFeature& feature;
  const ScanScratch& s;
  const bool missing_left;
  int next = 0;  // candidate whose bin comes next

  RunningSums(const Room& room, const ScanFeature& feature, const ScanScratch& s, bool missing_left)
      : room(room), feature(feature), s(s), missing_left(missing_left) {
    restart();
  }
  void restart() {
    next = 0;
    std::memset(room.running, 0, sizeof(int32_t) * (room.layout.lanes + 16));
    if (missing_left) add_bin(feature.missing);
  }
  void add_bin(int b) {
    const int lanes = room.layout.lanes;
    int32_t* const running = room.running;
    if (feature.rows != nullptr) {  // there is no histogram
      const RowsByBin& rows = *feature.rows;
      for (uint32_t i = rows.start[b]; i < rows.start[b] + feature.counts[b]; ++i) {
        const int16_t* at = rows.channels + static_cast<int64_t>(rows.order[i]) * lanes;
        for (int l = 0; l < lanes; l += 16)
          store(running + l, load<i32x16>(running + l) + convert<i32x16>(load<i16x16>(at + l)));
      }
    } else {
      const int32_t* at = feature.bin(room.layout, b);
      for (int l = 0; l < lanes; l += 16)
        store(running + l, load<i32x16>(running + l) + load<i32x16>(at + l));
    }
  }
  // The sums of `n` candidates from `first` on, as rows; the last one fills sixteen.
  void write_rows(int first, int n) {
    if (first < next) restart();
    while (next < first) add_bin(s.bins[next++]);
    for (int j = 0; j < 16; ++j) {
      if (j < n) add_bin(s.bins[next++]);
      std::memcpy(room.rows + j * room.layout.lanes, room.running,
                  sizeof(int32_t) * room.layout.lanes);
    }
  }
};

// Score sums of the sixteen candidates whose sums are in room.rows; `first` is the first of them.
template <bool SHARED, class S>
f32x16 block_sums(const S& score, const Room& room, const ScanScratch& s, int first) {
  const ScanNode& node = room.node;
  const ChannelLayout& layout = room.layout;
  LargestTerms<f32x16> left{room.left, room.k}, right{room.right, room.k};
  f32x16 cl = {}, cr = {};
  if constexpr (!S::kPerOutput) {
    cl = load<f32x16>(s.left + first);
    cr = load<f32x16>(s.right + first);
  }
  i32x16 g[16], h[16];
  for (int start = 0; start < layout.n_outputs; start += 16) {
    transpose(room.rows + start, layout.lanes, g);
    if constexpr (S::kPerOutput)
      transpose(room.rows + layout.hessian_offset + start, layout.lanes, h);
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

template <bool SHARED, class S>
void scan_direction(const S& score, const Room& room, const ScanFeature& feature, bool missing_left,
                    const Candidates& c, ScanScratch& s, float* sums) {
  separable_sums(room.node, feature, missing_left, c, s, sums);
  const float rounding = kRounding * static_cast<float>(room.layout.n_outputs + 64);
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
                   : largest * (1.0f + rounding) - room.node.prune_bound * (1.0f - rounding);
    if (bound[b] > bound[first]) first = b;
    store(at, broadcast(kNone));
  }
  RunningSums running(room, feature, s, missing_left);
  const auto look_closely = [&](int b) {
    if (bound[b] == kNone || bound[b] < s.floor) return;
    const int start = c.first + 16 * b;
    running.write_rows(start, size(b));
    const f32x16 found = block_sums<SHARED>(score, room, s, start);
    const i32x16 finite = dense[b] - dense[b] == 0.0f;  // those too light are not, either
    const f32x16 kept = select(finite, found, broadcast(kNone));
    store(sums + start, kept);
    const float largest = largest_lane(kept, size(b));
    if (largest > s.floor) s.floor = largest;
  };
  look_closely(first);
  for (int b = 0; b < n_blocks; ++b)
    if (b != first) look_closely(b);
}

void scan_numeric(const ScanNode& node, const ScanFeature& feature, ScanScratch& scratch,
                  NumericBest* best) {
  const Room room(node);
  scan_both_ways(node, feature, hessian_in_lane(*node.layout), false, scratch, best,
                 [&](bool missing_left, const Candidates& c, float* sums) {
                   visit_plain_score(node, [&](const auto& score) {
                     if (room.shared)
                       scan_direction<true>(score, room, feature, missing_left, c, scratch, sums);
                     else
                       scan_direction<false>(score, room, feature, missing_left, c, scratch, sums);
                   });
                 });
}

// Writes the terms of a candidate, or of the node (left == nullptr): of both sides, or, where one
// choice is made for both or there is one side, all of them into `left_terms`.
template <class S>
void write_terms(const Terms<S>& terms, const Room& room) {
  const bool apart = terms.left != nullptr && !room.shared;
  for (int z = 0; z < room.blocks(); ++z) {
    store(room.left_terms + 16 * z, apart ? terms.side(z, false) : terms(z));
    if (apart) store(room.right_terms + 16 * z, terms.side(z, true));
  }
}

LargestTerms<float> select_largest(const Room& room, const float* terms, int k) {
  LargestTerms<float> largest{room.largest(), k};
  for (int i = 0; i < room.layout.n_outputs; ++i) largest.offer(terms[i]);
  return largest;
}

float candidate_sum(const ScanNode& node, const int32_t* left, int32_t left_count) {
  const Room room(node);
  return visit_plain_score(node, [&](const auto& score) {
    if (!__builtin_isfinite(compute_sum(score, node, left, left_count))) return kNone;
    write_terms(Terms(score, node, left, left_count), room);
    const float sum = select_largest(room, room.left_terms, room.k).sum();
    return room.shared ? sum : sum + select_largest(room, room.right_terms, room.k).sum();
  });
}

float node_sum(const ScanNode& node) {
  const Room room(node);
  return visit_plain_score(node, [&](const auto& score) {
    write_terms(Terms(score, node, nullptr, 0), room);
    return select_largest(room, room.left_terms, room.k).sum();
  });
}

float node_hessian(const ScanNode& node) {
  return separable_scores.node_hessian(node);
}

// Terms that are not among the k largest, the first ones on ties, become 0.
void drop_others(const Room& room, float* terms) {
  const LargestTerms<float> largest = select_largest(room, terms, room.k);
  const float least = largest.best[room.k - 1];
  int n_least = 0;
  for (int i = 0; i < room.k; ++i) n_least += largest.best[i] == least;
  for (int i = 0; i < room.layout.n_outputs; ++i) {
    if (terms[i] > least) continue;
    if (terms[i] == least && n_least > 0)
      --n_least;
    else
      terms[i] = 0.0f;
  }
}

void output_terms(const ScanNode& node, const int32_t* left, int32_t left_count, float* out) {
  const Room room(node);
  const int n = room.layout.n_outputs;
  visit_plain_score(node, [&](const auto& score) {
    write_terms(Terms(score, node, left, left_count), room);
    drop_others(room, room.left_terms);
    for (int i = 0; i < n; ++i) out[i] = room.left_terms[i];
    if (!room.shared) {
      drop_others(room, room.right_terms);
      for (int i = 0; i < n; ++i) out[i] = out[i] + room.right_terms[i];
    }
    write_terms(Terms(score, node, nullptr, 0), room);
    drop_others(room, room.left_terms);
    for (int i = 0; i < n; ++i) out[i] = 0.5f * (out[i] - room.left_terms[i]);
  });
}

// Two children are worth, in every output, at least what one leaf of all rows with their two
// penalties would be. So whatever outputs they keep, the others take at least the smallest such
// worths out of the sum over all.
float prune_bound(const ScanNode& node) {
  if (node.layout->hessian != HessianKind::unit && node.config->reg_lambda < 1e-12f) return kNone;
  SplitConfig config = *node.config;
  config.reg_lambda *= 2.0f;
  config.reg_alpha *= 2.0f;
  ScanNode one_leaf = node;
  one_leaf.config = &config;
  const Room room(one_leaf);
  const int n = room.layout.n_outputs, most = room.shared ? room.k : 2 * room.k;
  if (most >= n) return 0.0f;
  return visit_plain_score(one_leaf, [&](const auto& score) {
    write_terms(Terms(score, one_leaf, nullptr, 0), room);
    double others = 0;
    for (int i = 0; i < n; ++i) others += static_cast<double>(room.left_terms[i]);
    const LargestTerms<float> largest = select_largest(room, room.left_terms, most);
    for (int i = 0; i < most; ++i) others -= static_cast<double>(largest.best[i]);
    return others > 0 ? static_cast<float>(others) : 0.0f;
  });
}

}  // namespace

const ScoreKernels topk_scores = {scan_numeric, candidate_sum, node_sum,
                                  node_hessian, output_terms,  prune_bound};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
