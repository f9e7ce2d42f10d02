"""C code of the exported header; NAME stands for the prefix of its functions and tables."""

from __future__ import annotations

TOP = """\
#ifndef NAME_POLYLEAF_H
#define NAME_POLYLEAF_H

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "This header needs NaN and exact sums: compile it without -ffast-math \
and -ffinite-math-only."
#endif
#if defined(FLT_EVAL_METHOD) && (FLT_EVAL_METHOD == 1 || FLT_EVAL_METHOD == 2)
#error "This header needs float arithmetic in float: compile it with SSE (-mfpmath=sse)."
#endif

/* Products and sums are rounded separately, as in training. */
#if defined(__clang__)
#define NAME_EXACT _Pragma("STDC FP_CONTRACT OFF")
#elif defined(_MSC_VER)
#define NAME_EXACT
#pragma fp_contract(off)
#else
#define NAME_EXACT
#if defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif
#endif
"""

BOTTOM = """\
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
#undef NAME_EXACT
#undef NAME_STEP
#undef NAME_KEPT
#undef NAME_ADD
#endif
"""

PREPARE = """\
/* Convert a row to the keys and category codes that tree traversal reads. */
static inline void NAME_prepare(const NAME_input *x, uint32_t *keys, unsigned char *codes) {
  int i;
  (void)x, (void)codes;
  keys[0] = 0;
#if NAME_N_NUMBERS > 0
  for (i = 0; i < NAME_N_NUMBERS; ++i) {
    const NAME_input v = x[NAME_number[i]];
    const uint32_t key = NAME_key(v, i);
    keys[1 + i] = v == v ? key : 0xffffffffu;
    keys[1 + NAME_N_NUMBERS + i] = v == v ? key : 0;
  }
#endif
#if NAME_N_CODES > 0
  for (i = 0; i < NAME_N_CODES; ++i) {
    const NAME_input v = x[NAME_code_feature[i]];
    codes[i] = v >= 0 && v < NAME_code_count[i] ? (unsigned char)v : 255;
  }
#endif
  (void)i;
}
"""

KEY_OF_FLOAT = """\
/* Convert a number to an integer of the same order; both zeros are equal. */
static inline uint32_t NAME_key_of(float v) {
  uint32_t bits;
  memcpy(&bits, &v, 4);
  bits = bits == 0x80000000u ? 0 : bits;
  return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}
"""

DOUBLE_KEYS = """\
/* Round to float; larger numbers become the largest float. */
static inline float NAME_narrow(double v) {
  return v > FLT_MAX ? FLT_MAX : v < -FLT_MAX ? -FLT_MAX : (float)v;
}

/* The key of a feature that needs double is its rank among the thresholds. */
static inline uint32_t NAME_key(double v, int i) {
  uint32_t low = NAME_rank_begin[i], high = NAME_rank_begin[i + 1];
  if (low == high) return NAME_key_of(NAME_narrow(v));
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (v > NAME_rank_threshold[middle]) low = middle + 1;
    else high = middle;
  }
  return low - NAME_rank_begin[i];
}
"""

FLOAT_KEYS = """\
static inline float NAME_narrow(float v) { return v; }
static inline uint32_t NAME_key(float v, int i) { return (void)i, NAME_key_of(v); }
"""

REGRESSOR = """\
static inline float NAME_regressor(const NAME_input *x, uint32_t i) { return NAME_narrow(x[i]); }
"""

TRANSFORMED_REGRESSOR = """\
/* Codes for missing values are limited, and large numbers are centred. */
static inline float NAME_regressor(const NAME_input *x, uint32_t i) {
  double v = x[i];
  v = v < NAME_regressor_low[i] ? NAME_regressor_low[i] : v;
  v = v > NAME_regressor_high[i] ? NAME_regressor_high[i] : v;
  v -= NAME_regressor_centre[i];
  return v > FLT_MAX ? FLT_MAX : v < -FLT_MAX ? -FLT_MAX : (float)v;
}
"""

FIND_LEAVES = """\
/* Keep GCC from loading the next nodes ahead of time, which takes too many registers. */
#if defined(__GNUC__)
#define NAME_KEPT(a) __asm__("" : "+r"(a));
#else
#define NAME_KEPT(a)
#endif

/* Find the leaf of each tree. Trees of similar depth are traversed in step. */
static inline void NAME_leaves(const NAME_input *x, uint32_t *leaf) {
  uint32_t keys[2 * NAME_N_NUMBERS + 1];
  unsigned char codes[NAME_N_CODES + 1];
  int g, d;
  codes[0] = 255;
  NAME_prepare(x, keys, codes);
  for (g = 0; g < NAME_N_GROUPS; ++g) {
    const NAME_tree *t = NAME_order + 8 * g;
    const uint32_t *root = NAME_root + 8 * g;
    size_t a0 = root[0], a1 = root[1], a2 = root[2], a3 = root[3];
    size_t a4 = root[4], a5 = root[5], a6 = root[6], a7 = root[7];
    for (d = NAME_steps[g]; d > 0; --d) {
      NAME_STEP(a0) NAME_STEP(a1) NAME_STEP(a2) NAME_STEP(a3)
      NAME_STEP(a4) NAME_STEP(a5) NAME_STEP(a6) NAME_STEP(a7)
    }
    NAME_KEPT(a0) NAME_KEPT(a1) NAME_KEPT(a2) NAME_KEPT(a3)
    NAME_KEPT(a4) NAME_KEPT(a5) NAME_KEPT(a6) NAME_KEPT(a7)
    leaf[t[0]] = NAME_nodes[a0].key, leaf[t[1]] = NAME_nodes[a1].key;
    leaf[t[2]] = NAME_nodes[a2].key, leaf[t[3]] = NAME_nodes[a3].key;
    leaf[t[4]] = NAME_nodes[a4].key, leaf[t[5]] = NAME_nodes[a5].key;
    leaf[t[6]] = NAME_nodes[a6].key, leaf[t[7]] = NAME_nodes[a7].key;
  }
}
"""

STEP = """\
#define NAME_STEP(a) a += (size_t)NAME_nodes[a].step \
+ (keys[NAME_nodes[a].slot] > NAME_nodes[a].key);
"""

STEP_WITH_CATEGORIES = """\
#define NAME_STEP(a) \\
  { \\
    const NAME_node n = NAME_nodes[a]; \\
    const uint32_t set = NAME_set_of[a]; \\
    if (set == 0) \\
      a += (size_t)n.step + (keys[n.slot] > n.key); \\
    else \\
      a += (size_t)n.step + \\
           !(NAME_sets[8 * (set - 1) + (codes[n.slot] >> 5)] >> (codes[n.slot] & 31) & 1); \\
  }
"""

ADD_LEAVES = {
    "dense_rows": "  NAME_add_dense_rows(leaf + {first}, leaf + {last}, sum);",
    "dense_column": """\
  for (t = {first}; t < {last}; ++t) sum[NAME_output[t]] += NAME_dense_column[leaf[t]];""",
    "sparse_rows": """\
  for (t = {first}; t < {last}; ++t)
    for (e = NAME_sparse_rows_begin[leaf[t]]; e < NAME_sparse_rows_begin[leaf[t] + 1]; ++e)
      sum[NAME_sparse_rows_entry[e]] += NAME_sparse_rows[e];""",
    "linear_rows": "  for (t = {first}; t < {last}; ++t) NAME_add_linear_rows(x, leaf[t], sum);",
    "linear_column": """\
  for (t = {first}; t < {last}; ++t) NAME_add_linear_column(x, leaf[t], sum + NAME_output[t]);""",
}

FOUR_SUMS = """\
/* Four sums at a time, which compilers keep in a register. */
#if defined(__GNUC__)
typedef float NAME_four __attribute__((vector_size(16)));
typedef float NAME_any_four __attribute__((vector_size(16), aligned(4), may_alias));
#define NAME_ADD(s, v) s += *(const NAME_any_four *)(v);
#else
typedef struct { float v[4]; } NAME_four;
#define NAME_ADD(s, p) s.v[0] += (p)[0], s.v[1] += (p)[1], s.v[2] += (p)[2], s.v[3] += (p)[3];
#endif
"""

ADD_LINEAR_LEAF = """\
static inline void NAME_add_WHICH(const NAME_input *x, uint32_t leaf, float *sum) {
  NAME_EXACT
  float v[COLUMNS];
  uint32_t e, k;
  for (k = 0; k < COLUMNS; ++k) v[k] = NAME_WHICH_intercept[COLUMNS * leaf + k];
  for (e = NAME_WHICH_begin[leaf]; e < NAME_WHICH_begin[leaf + 1]; ++e) {
    const float z = NAME_regressor(x, NAME_WHICH_entry[e]);
    const float shift = z == z ? z - NAME_WHICH_centre[e] : 0.0f;
    for (k = 0; k < COLUMNS; ++k) v[k] += NAME_WHICH_weights[COLUMNS * e + k] * shift;
  }
  for (k = 0; k < COLUMNS; ++k) {
    const uint32_t at = COLUMNS * leaf + k;
    float p = v[k] == v[k] ? v[k] : NAME_WHICH_intercept[at];
    p = p < NAME_WHICH_lower[at] ? NAME_WHICH_lower[at] : p;
    p = p > NAME_WHICH_upper[at] ? NAME_WHICH_upper[at] : p;
    sum[k] += p < -FLT_MAX ? -FLT_MAX : p > FLT_MAX ? FLT_MAX : p;
  }
}
"""

LINKS = {
    "identity": "  (void)k;",
    "logistic": """\
  for (k = 0; k < NAME_N_OUTPUTS; ++k) {
    const double small = exp(-fabs(out[k]));
    out[k] = (out[k] >= 0.0 ? 1.0 : small) / (1.0 + small);
  }""",
    "softmax": """\
  {
    double largest = out[0], total = 0.0;
    for (k = 1; k < NAME_N_OUTPUTS; ++k) largest = out[k] > largest ? out[k] : largest;
    for (k = 0; k < NAME_N_OUTPUTS; ++k) total += out[k] = exp(out[k] - largest);
    for (k = 0; k < NAME_N_OUTPUTS; ++k) out[k] /= total;
  }""",
    "exponential": """\
  for (k = 0; k < NAME_N_OUTPUTS; ++k) {
    const double mean = exp(out[k]);
    out[k] = mean > DBL_MAX ? DBL_MAX : mean;
  }""",
    "sorted_levels": """\
  for (k = 0; k < NAME_N_OUTPUTS; k += NAME_N_LEVELS) {
    double v[NAME_N_LEVELS];
    int i, j;
    for (i = 0; i < NAME_N_LEVELS; ++i) {
      const double value = out[k + i];
      for (j = i; j > 0 && v[j - 1] > value; --j) v[j] = v[j - 1];
      v[j] = value;
    }
    for (i = 0; i < NAME_N_LEVELS; ++i) out[k + NAME_level[i]] = v[i];
  }""",
}

NORMALISE = """\
  {
    double total = 0.0;
    for (k = 0; k < NAME_N_OUTPUTS; ++k) total += out[k];
    for (k = 0; k < NAME_N_OUTPUTS; ++k) \
out[k] = total > 0.0 ? out[k] / total : 1.0 / NAME_N_OUTPUTS;
  }"""

ADD_LINEAR_MODEL = """\
/* Add the scores of a linear model of the features. */
static inline void NAME_add_linear_model(const NAME_input *x, double *out) {
  NAME_EXACT
  int f, k;
  for (k = 0; k < NAME_N_OUTPUTS; ++k) {
    double sum = 0.0;
    for (f = 0; f < NAME_N_FEATURES; ++f) {
      const double value = x[f] != x[f] ? NAME_fill[f] : (double)x[f];
      if (value != 0.0) sum += value * NAME_coef[f * NAME_N_OUTPUTS + k];
    }
    out[k] += sum + NAME_intercept[k];
  }
}
"""

CLASS_FUNCTIONS = {
    "binary": """\
/* Return the number of the class, in the order above. */
static inline int NAME_class(const NAME_input *x) {
  double score[1];
  NAME_raw(x, score);
  return score[0] > 0.0;
}
""",
    "multiclass": """\
/* Return the number of the class, in the order above. */
static inline int NAME_class(const NAME_input *x) {
  double score[NAME_N_OUTPUTS];
  int k, best = 0;
  NAME_raw(x, score);
  for (k = 1; k < NAME_N_OUTPUTS; ++k)
    if (score[k] > score[best]) best = k;
  return best;
}
""",
}
