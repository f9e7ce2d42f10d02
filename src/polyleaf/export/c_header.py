"""A model as one C header: C99, no allocation, no dependencies, the same raw scores bit for bit.

Owns: the layout of its tables and the text. Must not know: how models are made. docs/export.md describes what
it gives; the walk is the one of `cpp/forest/kernels/predict_kernels.cpp`, by thresholds instead of codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from polyleaf.data.binning import MISSING_CODE
from polyleaf.export.ir import ModelIR, TreeIR, build_ir, category_mapping
from polyleaf.model.io import TextDestination, write_text
from polyleaf.model.serialize import polyleaf_version

__all__ = ["to_c"]

_LANES = 8  # trees walked in step: their loads overlap
_REGISTERS = 8  # of four sums each, which are added to at a time
_MAX_OUTPUTS = 1 << 16  # the scores of a row are on the stack
_MAX_LISTED_NAMES = 50  # features and categories that the header's comment lists


def to_c(model: Any, path: TextDestination, *, name: str = "model") -> None:
    """Write a model as a C header.

    Parameters
    ----------
    model : Model or fitted estimator
        An estimator with a best round is written up to it, as it predicts.
    path : str, path or open text file
        Of the header.
    name : str
        What its functions and tables begin with, a C identifier: `<name>_raw`, `<name>_predict`, and for
        classes `<name>_class`. They are `static`: each source file that includes the header has its own.

    Raises
    ------
    ValueError
        When the model projects its features, or has more than 65,536 outputs.

    Notes
    -----
    `<name>_raw` gives the bits of `Model.predict_raw`. It reads a row as :func:`polyleaf.export.to_numeric_matrix`
    makes it; infinities are allowed. `<name>_predict` applies the link: identity and sorted quantiles keep
    the bits, exp of the C library may differ from NumPy's in the last one.
    """
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is None:
        raise ValueError(
            f"name={name!r} must be a C identifier: letters, digits and _, no digit first."
        )
    source = build_ir(model)
    if source.model.n_outputs > _MAX_OUTPUTS:
        raise ValueError(
            f"The model has {source.model.n_outputs} outputs. A C header keeps all scores of a row on the "
            f"stack, so it takes at most {_MAX_OUTPUTS}; use predict_topk in Polyleaf."
        )
    text = "\n".join(_Header(source, category_mapping(model)).lines())
    write_text(path, re.sub(r"\bNAME_|\bNAME\b", lambda m: m[0].replace("NAME", name), text))


# ---- text --------------------------------------------------------------------------------------------------


def _number(value: float, suffix: str = "f") -> str:
    """A C99 literal of exactly this number."""
    if np.isinf(value):
        return "-INFINITY" if value < 0 else "INFINITY"
    return re.sub(r"\.?0*p", "p", float(value).hex()) + suffix


def _table(kind: str, name: str, values: Iterable[str]) -> Iterator[str]:
    """A constant array; C has no empty ones."""
    found = list(values) or ["0"]
    yield f"static const {kind} NAME_{name}[{len(found)}] = {{"
    line = ""
    for value in found:
        if len(line) + len(value) > 105:
            yield line
            line = ""
        line += value + ","
    yield line
    yield "};"


def _integers(values: Iterable[Any]) -> list[str]:
    return [str(int(value)) for value in values]


def _floats(values: Any) -> list[str]:
    return [_number(value) for value in np.asarray(values, np.float32).ravel().tolist()]


def _index_type(largest: int) -> str:
    return "uint16_t" if largest < 1 << 16 else "uint32_t"


# ---- tables ------------------------------------------------------------------------------------------------


class _Slots:
    """What the walk reads of a row: numbers as integers of the same order, twice, in which a missing value is
    above or below all others; ranks of those that float32 cannot tell apart; and codes of categories.

    Slot 0 is below everything, for leaves."""

    def __init__(self, source: ModelIR):
        self._wide = source.is_wide
        self.numbers: dict[int, int] = {}  # feature -> slot less 1, missing values go right
        self.codes: dict[int, int] = {}
        thresholds: dict[int, set[float]] = {}
        for tree in source.trees:
            at = tree.structure
            for node in np.flatnonzero(at.feature >= 0).tolist():
                feature = int(at.feature[node])
                kind = self.codes if node in tree.codes_left else self.numbers
                kind.setdefault(feature, len(kind))
                if self._wide[feature] and np.isfinite(tree.threshold[node]):
                    thresholds.setdefault(feature, set()).add(float(tree.threshold[node]))
        self.ranks = {feature: sorted(values) for feature, values in thresholds.items()}

    def slot(self, feature: int, missing_left: bool) -> int:
        """Of a numeric split."""
        return 1 + self.numbers[feature] + missing_left * len(self.numbers)

    def key(self, feature: int, threshold: float) -> int:
        """In terms of the slot: what is above goes right."""
        if np.isinf(threshold):
            return _key(np.inf)
        return self.ranks[feature].index(threshold) if feature in self.ranks else _key(threshold)


def _key(value: float) -> int:
    """The float32 number as an integer of the same order: what NAME_key is to C."""
    bits = int(np.array(value, np.float32).view(np.uint32))
    bits = 0 if bits == 1 << 31 else bits
    return bits ^ (0xFFFFFFFF if bits >> 31 else 1 << 31)


class _Node(NamedTuple):
    """`key` of a leaf is its number, its slot and its step are 0: a leaf is its own left child."""

    key: int
    slot: int
    step: int  # to the left child; the right one is behind it


class _Nodes:
    """All nodes, tree after tree."""

    def __init__(self, source: ModelIR, slots: _Slots, first_leaf: Sequence[int]):
        self.nodes: list[_Node] = []
        self.set_of: list[int] = []  # one a node; 0: numeric, otherwise 1 + row of `sets`
        self.sets: list[np.ndarray] = []
        self.roots: list[int] = []
        self.depths: list[int] = []
        self._slots = slots
        for tree, first in zip(source.trees, first_leaf, strict=True):
            self._add(tree, first)

    def _add(self, tree: TreeIR, first_leaf: int) -> None:
        structure = tree.structure
        left, right = structure.left.tolist(), structure.right.tolist()
        self.roots.append(len(self.nodes))
        self.depths.append(_depth(left, right))
        place = _place_nodes(left, right, structure.count.tolist())
        for node in sorted(place, key=place.__getitem__):
            if left[node] < 0:
                self._put(_Node(first_leaf + int(structure.leaf[node]), 0, 0), 0)
            else:
                self._put(*self._test(tree, node, place[left[node]] - place[node]))

    def _put(self, node: _Node, set_row: int) -> None:
        self.nodes.append(node)
        self.set_of.append(set_row)

    def _test(self, tree: TreeIR, node: int, step: int) -> tuple[_Node, int]:
        feature = int(tree.structure.feature[node])
        missing_left = bool(tree.structure.missing_left[node])
        if node in tree.codes_left:
            bits = np.zeros(256, bool)
            bits[tree.codes_left[node]] = True
            bits[MISSING_CODE] = missing_left
            self.sets.append(np.packbits(bits, bitorder="little").view("<u4"))
            return _Node(0, self._slots.codes[feature], step), len(self.sets)
        key = self._slots.key(feature, float(tree.threshold[node]))
        return _Node(key, self._slots.slot(feature, missing_left), step), 0


def _depth(left: Sequence[int], right: Sequence[int]) -> int:
    depth = [0] * len(left)
    for node, child in enumerate(left):  # children come after their parent
        if child >= 0:
            depth[child] = depth[right[node]] = depth[node] + 1
    return max(depth)


def _place_nodes(left: Sequence[int], right: Sequence[int], count: Sequence[int]) -> dict[int, int]:
    """Node -> its place: siblings side by side, the children of the nodes that most rows reach first, so that
    a row touches few lines of memory. A node comes before its children."""
    place, waiting = {0: 0}, [(-count[0], 0)]
    while waiting:
        _, node = heappop(waiting)
        if left[node] < 0:
            continue
        for child in (left[node], right[node]):
            place[child] = len(place)
            heappush(waiting, (-count[child], child))
    return place


class _Run(NamedTuple):
    """Trees one after another whose leaves are added in one way."""

    kind: str
    column: bool
    first: int
    last: int

    @property
    def name(self) -> str:
        return f"{self.kind}_{'column' if self.column else 'rows'}"


def _group_runs(trees: Sequence[TreeIR]) -> list[_Run]:
    runs, first = [], 0
    for (kind, column), group in groupby(trees, lambda tree: (tree.kind, tree.output >= 0)):
        last = first + len(list(group))
        runs.append(_Run(kind, column, first, last))
        first = last
    return runs


class _Leaves:
    """What leaves hold, tree after tree, for each way of adding them."""

    def __init__(self, trees: Sequence[TreeIR]):
        self.first_of_tree: list[int] = []
        self.blocks: dict[str, list[Any]] = {}
        n_leaves: dict[str, int] = {}
        for run in _group_runs(trees):
            for tree in trees[run.first : run.last]:
                self.first_of_tree.append(n_leaves.get(run.name, 0))
                n_leaves[run.name] = self.first_of_tree[-1] + tree.structure.n_leaves
                self.blocks.setdefault(run.name, []).append(tree.leaves)

    def tables(self) -> Iterator[str]:
        for name, blocks in self.blocks.items():
            kind = name.split("_")[0]
            yield from getattr(self, f"_{kind}")(name, blocks)

    def _dense(self, name: str, blocks: list[np.ndarray]) -> Iterator[str]:
        yield from _table("float", name, (text for block in blocks for text in _floats(block)))

    def _entries(self, name: str, blocks: list[Any], index: str) -> Iterator[str]:
        counts = np.concatenate([np.diff(block.indptr) for block in blocks])
        begin = np.concatenate([[0], np.cumsum(counts)])
        entries = np.concatenate([getattr(block, index) for block in blocks])
        yield from _table("uint32_t", f"{name}_begin", _integers(begin))
        yield from _table("uint32_t", f"{name}_entry", _integers(entries))

    def _sparse(self, name: str, blocks: list[Any]) -> Iterator[str]:
        yield from self._entries(name, blocks, "outputs")
        yield from _table(
            "float", name, (text for block in blocks for text in _floats(block.values))
        )

    def _linear(self, name: str, blocks: list[Any]) -> Iterator[str]:
        yield from self._entries(name, blocks, "features")
        for part in ("intercept", "weights", "centre", "lower", "upper"):
            values = (text for block in blocks for text in _floats(getattr(block, part)))
            yield from _table("float", f"{name}_{part}", values)


# ---- the header --------------------------------------------------------------------------------------------

_TOP = """\
#ifndef NAME_POLYLEAF_H
#define NAME_POLYLEAF_H

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "This header needs NaN and exact sums: compile it without -ffast-math and -ffinite-math-only."
#endif
#if defined(FLT_EVAL_METHOD) && (FLT_EVAL_METHOD == 1 || FLT_EVAL_METHOD == 2)
#error "This header needs float arithmetic in float: compile it with SSE (-mfpmath=sse)."
#endif

/* A product and a sum are rounded one after the other, as in training. */
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

_BOTTOM = """\
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
#undef NAME_EXACT
#undef NAME_STEP
#undef NAME_KEPT
#undef NAME_ADD
#endif
"""

_PREPARE = """\
/* What the walk reads of a row. */
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

_KEY = """\
/* A number as an integer of the same order; both zeros are one. */
static inline uint32_t NAME_key_of(float v) {
  uint32_t bits;
  memcpy(&bits, &v, 4);
  bits = bits == 0x80000000u ? 0 : bits;
  return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}
"""

_WIDE = """\
/* What float cannot hold becomes its largest number. */
static inline float NAME_narrow(double v) {
  return v > FLT_MAX ? FLT_MAX : v < -FLT_MAX ? -FLT_MAX : (float)v;
}

/* A feature whose values float would merge is known by its rank among the thresholds. */
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

_NARROW = """\
static inline float NAME_narrow(float v) { return v; }
static inline uint32_t NAME_key(float v, int i) { return (void)i, NAME_key_of(v); }
"""

_LEAVES = """\
/* GCC would otherwise load the next nodes ahead of time, and run out of registers. */
#if defined(__GNUC__)
#define NAME_KEPT(a) __asm__("" : "+r"(a));
#else
#define NAME_KEPT(a)
#endif

/* The leaf of each tree. Trees of like depth are walked in step. */
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

_STEP = """\
#define NAME_STEP(a) a += (size_t)NAME_nodes[a].step + (keys[NAME_nodes[a].slot] > NAME_nodes[a].key);
"""

_STEP_WITH_CATEGORIES = """\
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

_ADD = {
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

_FOUR = """\
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

_LINEAR = """\
static inline void NAME_add_WHICH(const NAME_input *x, uint32_t leaf, float *sum) {
  NAME_EXACT
  float v[COLUMNS];
  uint32_t e, k;
  for (k = 0; k < COLUMNS; ++k) v[k] = NAME_WHICH_intercept[COLUMNS * leaf + k];
  for (e = NAME_WHICH_begin[leaf]; e < NAME_WHICH_begin[leaf + 1]; ++e) {
    const float z = NAME_narrow(x[NAME_WHICH_entry[e]]);
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

_LINKS = {
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
    "exponential": "  for (k = 0; k < NAME_N_OUTPUTS; ++k) out[k] = exp(out[k]);",
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

_SHARES = """\
  {
    double total = 0.0;
    for (k = 0; k < NAME_N_OUTPUTS; ++k) total += out[k];
    for (k = 0; k < NAME_N_OUTPUTS; ++k) out[k] = total > 0.0 ? out[k] / total : 1.0 / NAME_N_OUTPUTS;
  }"""

_CLASS = {
    "binary": """\
/* Number of the class, in the order above. */
static inline int NAME_class(const NAME_input *x) {
  double score[1];
  NAME_raw(x, score);
  return score[0] > 0.0;
}
""",
    "multiclass": """\
/* Number of the class, in the order above. */
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


class _Header:
    """The text, from top to bottom."""

    def __init__(self, source: ModelIR, categories: dict[int, dict[Any, int]]):
        self._source, self._categories = source, categories
        self._slots = _Slots(source)
        self._leaves = _Leaves(source.trees)
        self._nodes = _Nodes(source, self._slots, self._leaves.first_of_tree)

    def lines(self) -> Iterator[str]:
        yield from self._comment()
        yield _TOP
        yield from self._sizes()
        yield from self._slot_tables()
        yield _KEY
        yield _NARROW if self._source.dtype is np.float32 else _WIDE
        yield _PREPARE
        yield from self._node_tables()
        yield _STEP_WITH_CATEGORIES if self._nodes.sets else _STEP
        yield _LEAVES
        yield from self._leaves.tables()
        yield from self._functions()
        yield _BOTTOM

    # -- about the model

    def _comment(self) -> Iterator[str]:
        model = self._source.model
        yield f"/* A model written by Polyleaf {polyleaf_version()} (C99; C++17).\n *"
        yield f" * {len(self._source.trees)} trees, {model.n_features} features, {model.n_outputs} outputs, "
        yield f" * objective {_escape_comment(model.objective.name)}. A row is {model.n_features} numbers of the type"
        yield " * NAME_input; NaN is a missing value, a category is its code below, NaN if it has none."
        yield " * Functions may be called by several threads.\n *"
        for feature in range(min(model.n_features, _MAX_LISTED_NAMES)):
            yield f" * x[{feature}]: {_escape_comment(model.feature_name(feature))}{self._describe_codes(feature)}"
        for output in range(
            min(model.n_outputs, _MAX_LISTED_NAMES) if self._source.classes is None else 0
        ):
            yield f" * out[{output}]: {_escape_comment(model.output_name(output))}"
        for number, label in enumerate((self._source.classes or [])[:_MAX_LISTED_NAMES]):
            yield f" * class {number}: {_escape_comment(str(label))}"
        yield " */"

    def _describe_codes(self, feature: int) -> str:
        if feature not in self._categories:
            return ""
        known = list(self._categories[feature].items())
        words = ", ".join(
            f"{code} = {_escape_comment(str(category))}"
            for category, code in known[:_MAX_LISTED_NAMES]
        )
        return f"; {words}{', ...' if len(known) > _MAX_LISTED_NAMES else ''}"

    def _sizes(self) -> Iterator[str]:
        source, slots = self._source, self._slots
        n_predictions = 2 if source.kind == "binary" else source.model.n_outputs
        sizes = {
            "FEATURES": source.model.n_features,
            "OUTPUTS": source.model.n_outputs,
            "PREDICTIONS": n_predictions if self._predicts else 0,
            "NUMBERS": len(slots.numbers),
            "CODES": len(slots.codes),
            "TREES": len(source.trees),
            "GROUPS": -(-len(source.trees) // _LANES),
            "LEVELS": max(1, len(source.model.objective.quantile_levels)),
        }
        for name, size in sizes.items():
            yield f"#define NAME_N_{name} {size}"
        yield f"typedef {'float' if source.dtype is np.float32 else 'double'} NAME_input;"

    @property
    def _predicts(self) -> bool:
        """Whether there are predictions besides scores and classes."""
        source = self._source
        of_classes = source.kind != "regression"
        return source.link is not None and (not of_classes or source.model.objective.probabilities)

    # -- tables

    def _slot_tables(self) -> Iterator[str]:
        slots = self._slots
        yield from _table("uint32_t", "number", _integers(slots.numbers))
        n_bins = self._source.model.mapper.n_bins_
        yield from _table("uint32_t", "code_feature", _integers(slots.codes))
        yield from _table("int32_t", "code_count", _integers(n_bins[list(slots.codes)]))
        if self._source.dtype is np.float64:
            ranks = [slots.ranks.get(feature, []) for feature in slots.numbers]
            yield from _table("uint32_t", "rank_begin", _integers(np.cumsum([0, *map(len, ranks)])))
            values = [_number(value, "") for values in ranks for value in values]
            yield from _table("double", "rank_threshold", values)

    def _node_tables(self) -> Iterator[str]:
        nodes, trees, slots = self._nodes, self._source.trees, self._slots
        slot = _index_type(max(2 * len(slots.numbers) + 1, len(slots.codes)))
        step = _index_type(max([0, *(node.step for node in nodes.nodes)]))
        yield f"typedef struct {{ uint32_t key; {slot} slot; {step} step; }} NAME_node;"
        values = (f"{{{n.key:#x},{n.slot},{n.step}}}" for n in nodes.nodes)
        yield from _table("NAME_node", "nodes", values)
        if nodes.sets:
            yield from _table(_index_type(len(nodes.sets) + 1), "set_of", _integers(nodes.set_of))
            words = (f"{word:#x}u" for words in nodes.sets for word in words.tolist())
            yield from _table("uint32_t", "sets", words)
        order = sorted(range(len(trees)), key=lambda t: nodes.depths[t])
        order += order[-1:] * (-len(order) % _LANES)
        steps = [
            max(nodes.depths[t] for t in order[i : i + _LANES])
            for i in range(0, len(order), _LANES)
        ]
        yield f"typedef {_index_type(len(trees))} NAME_tree;"
        yield from _table("NAME_tree", "order", _integers(order))
        yield from _table("uint32_t", "root", _integers(nodes.roots[t] for t in order))
        yield from _table("int32_t", "steps", _integers(steps))
        yield from _table("uint32_t", "output", _integers(max(tree.output, 0) for tree in trees))

    # -- functions

    def _functions(self) -> Iterator[str]:
        for name in self._leaves.blocks:
            if name == "dense_rows":
                yield from self._add_dense_rows()
            if name.startswith("linear"):
                columns = "1u" if name.endswith("column") else f"{self._source.model.n_outputs}u"
                yield _LINEAR.replace("WHICH", name).replace("COLUMNS", columns)
        yield from self._raw()
        yield from self._predict()
        cuts, known = self._source.cuts, _CLASS.get(self._source.kind, "")
        yield (
            known.replace("> 0.0", f"> {_number(cuts[0], '')}")
            if isinstance(cuts, np.ndarray)
            else known
        )

    def _add_dense_rows(self) -> Iterator[str]:
        """For blocks of outputs whose sums stay in registers."""
        n, most = self._source.model.n_outputs, 4 * _REGISTERS
        yield _FOUR
        yield "static inline void NAME_add_dense_rows(const uint32_t *first, const uint32_t *last,"
        yield "                                       float *sum) {\n  const uint32_t *t;"
        for begin in range(0, n, most):
            end = min(begin + most, n)
            tail = end - (end - begin) % 4
            fours, ones = range(begin, tail, 4), range(tail, end)
            yield "  {"
            yield from (f"    NAME_four s{k};" for k in fours)
            yield from (f"    float s{k} = sum[{k}];" for k in ones)
            yield from (f"    memcpy(&s{k}, sum + {k}, 16);" for k in fours)
            yield "    for (t = first; t < last; ++t) {"
            yield f"      const float *v = NAME_dense_rows + (uint32_t){n} * *t;"
            yield from (f"      NAME_ADD(s{k}, v + {k})" for k in fours)
            yield from (f"      s{k} += v[{k}];" for k in ones)
            yield "    }"
            yield from (f"    memcpy(sum + {k}, &s{k}, 16);" for k in fours)
            yield from (f"    sum[{k}] = s{k};" for k in ones)
            yield "  }"
        yield "}\n"

    def _raw(self) -> Iterator[str]:
        model = self._source.model
        yield from _table(
            "double", "base", (_number(value, "") for value in model.base_score.tolist())
        )
        unit = "out[k] = NAME_base[k] + (double)sum[k];"
        if model.target_scale is not None and model.target_offset is not None:
            for name, values in (("scale", model.target_scale), ("offset", model.target_offset)):
                yield from _table("double", name, (_number(value, "") for value in values.tolist()))
            unit = "out[k] = (NAME_base[k] + (double)sum[k]) * NAME_scale[k] + NAME_offset[k];"
        yield "/* Raw scores of a row, NAME_N_OUTPUTS of them. */"
        yield "static inline void NAME_raw(const NAME_input *x, double *out) {"
        yield "  NAME_EXACT\n  uint32_t leaf[NAME_N_TREES + 1], e;\n  float sum[NAME_N_OUTPUTS];\n  int t, k;"
        yield "  (void)t, (void)e;\n  for (k = 0; k < NAME_N_OUTPUTS; ++k) sum[k] = 0.0f;"
        yield "  NAME_leaves(x, leaf);"
        for run in _group_runs(self._source.trees):
            yield _ADD[run.name].format(first=run.first, last=run.last)
        yield f"  for (k = 0; k < NAME_N_OUTPUTS; ++k) {unit}\n}}\n"

    def _predict(self) -> Iterator[str]:
        source = self._source
        if not self._predicts or source.link is None:
            return
        if source.link == "sorted_levels":
            order = np.argsort(source.model.objective.quantile_levels)
            yield from _table("int32_t", "level", _integers(order))
        what = "Predictions" if source.kind == "regression" else "Probabilities"
        yield f"/* {what} of a row, NAME_N_PREDICTIONS of them. */"
        yield "static inline void NAME_predict(const NAME_input *x, double *out) {"
        yield f"  int k;\n  NAME_raw(x, out);\n{_LINKS[source.link]}"
        if source.kind == "binary":
            yield "  out[1] = out[0];\n  out[0] = 1.0 - out[1];"
        if source.one_vs_rest:
            yield _SHARES
        yield "}\n"


def _escape_comment(text: str) -> str:
    """Text that cannot end a comment or continue a line."""
    return (
        "".join(c if c.isprintable() and c.isascii() else "?" for c in text)
        .replace("*/", "* /")
        .replace("/*", "/ *")
        .replace("\\", "/")
        .replace("??", "? ?")
    )
