"""Export to a C header: C99, no allocation, no dependencies, the same raw scores bit for bit.

Trees are traversed as in `cpp/forest/kernels/predict_kernels.cpp`, by thresholds instead of codes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from polyleaf.binned_data.binning import MISSING_CODE
from polyleaf.export import c_templates
from polyleaf.export.ir import ModelIR, TreeIR, build_ir, category_mapping, check_scores
from polyleaf.model.initial import LinearInitialModel
from polyleaf.model.leaf_kinds import LeafFunctions
from polyleaf.model.serialize import TextDestination, write_text
from polyleaf.runtime.compatibility import polyleaf_version
from polyleaf.runtime.types import ModelLike

if TYPE_CHECKING:
    from polyleaf.binned_data.high_cardinality import Category

_LANES = 8  # trees traversed in step, so that their loads overlap
_REGISTERS = 8  # registers of four sums each
_MAX_OUTPUTS = 1 << 16  # the scores of a row are on the stack
_MAX_LISTED_NAMES = 50  # features and categories in the comment of the header


def to_c(
    model: ModelLike, path: TextDestination, *, name: str = "model", check: bool = True
) -> None:
    """Write a model as a C header.

    Parameters
    ----------
    model : Model or fitted estimator
        An estimator with a best iteration is exported up to it.
    path : str, path or open text file
        The header.
    name : str
        Prefix of functions and tables, a C identifier: `<name>_raw`, `<name>_predict`, and for
        classes `<name>_class`. They are `static`: each source file that includes the header has its
        own.
    check : bool
        Whether to compare the raw scores with the model's, on 64 rows of thresholds, categories and
        missing values, if there is a C compiler (`cc`).

    Raises
    ------
    ValueError
        If the model projects its features, or has more than 65,536 outputs.

    Notes
    -----
    `<name>_raw` gives the bits of `Model.predict_raw`. It reads a row of
    :func:`polyleaf.export.to_numeric_matrix`; infinities are allowed. `<name>_predict` applies the
    link: identity and sorted quantiles are exact, exp of the C library may differ from NumPy's in
    the last bit.
    """
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is None:
        raise ValueError(
            f"name={name!r} must be a C identifier: letters, digits and _, no digit first."
        )
    ir = build_ir(model)
    if ir.model.n_outputs > _MAX_OUTPUTS:
        raise ValueError(
            f"The model has {ir.model.n_outputs} outputs, but a C header supports at most "
            f"{_MAX_OUTPUTS}, whose scores fit on the stack: use predict_topk in Polyleaf."
        )
    text = "\n".join(_Header(ir, category_mapping(model)).lines())
    text = re.sub(r"\bNAME_|\bNAME\b", lambda m: m[0].replace("NAME", name), text)
    if check:
        check_scores(model, "C", lambda _, matrix: _run_program(text, name, matrix))
    write_text(path, text)


_PROGRAM = """
#include <stdio.h>
int main(void) {
  NAME_input row[NAME_N_FEATURES];
  double scores[NAME_N_OUTPUTS];
  while (fread(row, sizeof(row), 1, stdin) == 1) {
    NAME_raw(row, scores);
    fwrite(scores, sizeof(scores), 1, stdout);
  }
  return 0;
}
"""


def _run_program(text: str, name: str, matrix: np.ndarray) -> np.ndarray | None:
    """Return the raw scores of a header in a program, or None if there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "model.c"), Path(folder, "model")
        source.write_text(text + _PROGRAM.replace("NAME", name), "utf-8")
        command = [compiler, "-std=c99", "-O0", "-w", str(source), "-o", str(program), "-lm"]
        subprocess.run(command, check=True, capture_output=True)
        rows = np.ascontiguousarray(matrix).tobytes()
        done = subprocess.run([str(program)], input=rows, check=True, capture_output=True)
    return np.frombuffer(done.stdout, np.float64)


# ---- C literals and tables -----------------------------------------------------------------


def _format_number(value: float, suffix: str = "f") -> str:
    """Return the C99 literal of exactly this number."""
    if np.isinf(value):
        return "-INFINITY" if value < 0 else "INFINITY"
    return re.sub(r"\.?0*p", "p", float(value).hex()) + suffix


def _format_table(kind: str, name: str, values: Iterable[object]) -> Iterator[str]:
    """Yield a constant array; an empty one gets a zero, since C has no empty arrays.

    `values` are numbers, or text of other literals.
    """
    cells = [_format_cell(kind, value) for value in values] or ["0"]
    yield f"static const {kind} NAME_{name}[{len(cells)}] = {{"
    line = ""
    for cell in cells:
        if len(line) + len(cell) > 105:
            yield line
            line = ""
        line += cell + ","
    yield line
    yield "};"


def _format_cell(kind: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if kind in ("float", "double"):
        return _format_number(value, "f" if kind == "float" else "")
    return str(int(value))


def _choose_index_type(largest: int) -> str:
    return "uint16_t" if largest < 1 << 16 else "uint32_t"


# ---- nodes and leaves ----------------------------------------------------------------------


class _Slots:
    """Values of a row that tree traversal reads.

    A number is an integer key of the same order, in two slots: a missing value is above all keys in
    one and below all in the other. The key of a float64 feature is its rank among the thresholds.
    Categories have codes. Slot 0 is below everything, for leaves.
    """

    def __init__(self, ir: ModelIR):
        self._is_float64 = ir.is_float64
        self.numbers: dict[int, int] = {}  # feature -> slot - 1 where missing values go right
        self.codes: dict[int, int] = {}
        thresholds: dict[int, set[float]] = {}
        for tree in ir.trees:
            for node in tree.split_nodes.tolist():
                feature = int(tree.feature[node])
                slots = self.codes if node in tree.codes_left else self.numbers
                slots.setdefault(feature, len(slots))
                if self._is_float64[feature] and np.isfinite(tree.threshold[node]):
                    thresholds.setdefault(feature, set()).add(float(tree.threshold[node]))
        self.ranks = {feature: sorted(values) for feature, values in thresholds.items()}

    def get_slot(self, feature: int, missing_left: bool) -> int:
        """Return the slot of a numeric split."""
        return 1 + self.numbers[feature] + missing_left * len(self.numbers)

    def get_key(self, feature: int, threshold: float) -> int:
        """Return the key of a threshold; larger keys go right."""
        if feature in self.ranks and not np.isinf(threshold):
            return self.ranks[feature].index(threshold)
        return _make_key(threshold)


def _make_key(value: float) -> int:
    """Return a float32 number as an integer of the same order, as NAME_key does in C."""
    bits = int(np.array(value, np.float32).view(np.uint32))
    bits = 0 if bits == 1 << 31 else bits
    return bits ^ (0xFFFFFFFF if bits >> 31 else 1 << 31)


class _Node(NamedTuple):
    """A node. The key of a leaf is its number; slot and step are 0, so it is its own left child."""

    key: int
    slot: int
    step: int  # distance to the left child, which the right child follows


class _Nodes:
    """Nodes of all trees."""

    def __init__(self, ir: ModelIR, slots: _Slots, first_leaf: Sequence[int]):
        self.nodes: list[_Node] = []
        self.set_rows: list[int] = []  # per node: 0 if numeric, otherwise 1 + row of `sets`
        self.sets: list[np.ndarray] = []
        self.roots: list[int] = []
        self.depths: list[int] = []
        self._slots = slots
        for tree, first in zip(ir.trees, first_leaf, strict=True):
            self._add_tree(tree, first)

    def _add_tree(self, tree: TreeIR, first_leaf: int) -> None:
        left, right = tree.left.tolist(), tree.right.tolist()
        self.roots.append(len(self.nodes))
        self.depths.append(_get_depth(left, right))
        position = _order_nodes(left, right, tree.count.tolist())
        for node in sorted(position, key=position.__getitem__):
            if left[node] < 0:
                self.nodes.append(_Node(first_leaf + int(tree.leaf[node]), 0, 0))
            else:
                self.nodes.append(
                    self._make_split(tree, node, position[left[node]] - position[node])
                )
            self.set_rows.append(len(self.sets) if node in tree.codes_left else 0)

    def _make_split(self, tree: TreeIR, node: int, step: int) -> _Node:
        feature, missing_left = int(tree.feature[node]), bool(tree.missing_left[node])
        if node in tree.codes_left:
            bits = np.zeros(256, bool)
            bits[tree.codes_left[node]] = True
            bits[MISSING_CODE] = missing_left
            self.sets.append(np.packbits(bits, bitorder="little").view("<u4"))
            return _Node(0, self._slots.codes[feature], step)
        key = self._slots.get_key(feature, float(tree.threshold[node]))
        return _Node(key, self._slots.get_slot(feature, missing_left), step)


def _get_depth(left: Sequence[int], right: Sequence[int]) -> int:
    depth = [0] * len(left)
    for node, child in enumerate(left):  # children come after their parent
        if child >= 0:
            depth[child] = depth[right[node]] = depth[node] + 1
    return max(depth)


def _order_nodes(left: Sequence[int], right: Sequence[int], count: Sequence[int]) -> dict[int, int]:
    """Return node -> position, so that a row touches few cache lines.

    Siblings are adjacent and follow their parent; the children of nodes with most rows come first.
    """
    position, queue = {0: 0}, [(-count[0], 0)]
    while queue:
        _, node = heappop(queue)
        if left[node] < 0:
            continue
        for child in (left[node], right[node]):
            position[child] = len(position)
            heappush(queue, (-count[child], child))
    return position


class _Run(NamedTuple):
    """Consecutive trees whose leaves are added in the same way."""

    form: str  # `LeafFunctions.form`
    is_scalar: bool
    first: int
    last: int

    @property
    def name(self) -> str:
        return f"{self.form}_{'column' if self.is_scalar else 'rows'}"


def _group_runs(trees: Sequence[TreeIR]) -> list[_Run]:
    runs, first = [], 0
    forms = groupby(trees, lambda tree: (tree.leaves.form, tree.output >= 0))
    for (form, is_scalar), group in forms:
        last = first + len(list(group))
        runs.append(_Run(form, is_scalar, first, last))
        first = last
    return runs


class _Leaves:
    """Leaf values of all trees, for each way of adding them."""

    def __init__(self, trees: Sequence[TreeIR]):
        self.first_of_tree: list[int] = []
        self.blocks: dict[str, list[LeafFunctions]] = {}
        n_leaves: dict[str, int] = {}
        for run in _group_runs(trees):
            for tree in trees[run.first : run.last]:
                self.first_of_tree.append(n_leaves.get(run.name, 0))
                n_leaves[run.name] = self.first_of_tree[-1] + len(tree.leaf_nodes)
                self.blocks.setdefault(run.name, []).append(tree.leaves)

    def format_tables(self) -> Iterator[str]:
        for name, blocks in self.blocks.items():
            index, parts = None, {name: "values"}
            if name.startswith("sparse"):
                index = "outputs"
            elif name.startswith("linear"):
                index, parts = "features", {f"{name}_intercept": "values"}
                parts |= {f"{name}_{x}": x for x in ("weights", "centre", "lower", "upper")}
            if index is not None:
                counts = np.concatenate(
                    [np.diff(block.indptr) for block in blocks if block.indptr is not None]
                )
                begin = np.concatenate([[0], np.cumsum(counts)])
                entries = np.concatenate([getattr(block, index) for block in blocks])
                yield from _format_table("uint32_t", f"{name}_begin", begin)
                yield from _format_table("uint32_t", f"{name}_entry", entries)
            for table, part in parts.items():
                arrays = (np.asarray(getattr(block, part), np.float32) for block in blocks)
                values = (value for array in arrays for value in array.ravel().tolist())
                yield from _format_table("float", table, values)


# ---- C code --------------------------------------------------------------------------------


class _Header:
    """Text of the header, from top to bottom."""

    def __init__(self, ir: ModelIR, categories: dict[int, dict[Category, int]]):
        self._ir, self._categories = ir, categories
        self._slots = _Slots(ir)
        self._leaves = _Leaves(ir.trees)
        self._nodes = _Nodes(ir, self._slots, self._leaves.first_of_tree)

    def lines(self) -> Iterator[str]:
        yield from self._format_comment()
        yield c_templates.TOP
        yield from self._format_sizes()
        yield from self._format_slot_tables()
        yield c_templates.KEY_OF_FLOAT
        yield c_templates.FLOAT_KEYS if self._ir.dtype is np.float32 else c_templates.DOUBLE_KEYS
        yield c_templates.PREPARE
        yield from self._format_node_tables()
        yield c_templates.STEP_WITH_CATEGORIES if self._nodes.sets else c_templates.STEP
        yield c_templates.FIND_LEAVES
        yield from self._leaves.format_tables()
        yield from self._format_regressors()
        yield from self._format_functions()
        yield c_templates.BOTTOM

    def _format_regressors(self) -> Iterator[str]:
        """Yield the function that reads a regressor of linear leaves, if there are any."""
        transform = self._ir.model.mapper.regressor_transform_
        if not self._ir.reads_features:
            return
        if transform is None:
            yield c_templates.REGRESSOR
            return
        for part in ("centre", "low", "high"):
            values = getattr(transform, part).tolist()
            texts = [
                repr(v) if np.isfinite(v) else "-INFINITY" if v < 0 else "INFINITY" for v in values
            ]
            yield from _format_table("double", f"regressor_{part}", texts)
        yield c_templates.TRANSFORMED_REGRESSOR

    # -- comment and sizes

    def _format_comment(self) -> Iterator[str]:
        model = self._ir.model
        yield f"/* Model exported by Polyleaf {polyleaf_version()} (C99; C++17).\n *"
        yield f" * {len(self._ir.trees)} trees, {model.n_features} features,"
        yield f" * {model.n_outputs} outputs, objective {_escape_comment(model.objective.name)}."
        yield f" * A row is {model.n_features} numbers of type NAME_input. NaN is a missing value."
        yield " * A category is its code below, or NaN if it has none. Functions are thread-safe."
        yield " *"
        for feature in range(min(model.n_features, _MAX_LISTED_NAMES)):
            name = _escape_comment(model.feature_name(feature))
            yield f" * x[{feature}]: {name}{self._describe_codes(feature)}"
        n_outputs = model.n_outputs if self._ir.classes is None else 0
        for output in range(min(n_outputs, _MAX_LISTED_NAMES)):
            yield f" * out[{output}]: {_escape_comment(model.output_name(output))}"
        for number, label in enumerate((self._ir.classes or [])[:_MAX_LISTED_NAMES]):
            yield f" * class {number}: {_escape_comment(str(label))}"
        yield " */"

    def _describe_codes(self, feature: int) -> str:
        if feature not in self._categories:
            return ""
        pairs = list(self._categories[feature].items())
        listed = pairs[:_MAX_LISTED_NAMES]
        codes = ", ".join(f"{code} = {_escape_comment(str(name))}" for name, code in listed)
        return f"; {codes}{', ...' if len(pairs) > len(listed) else ''}"

    def _format_sizes(self) -> Iterator[str]:
        ir, slots = self._ir, self._slots
        n_predictions = 2 if ir.kind == "binary" else ir.model.n_outputs
        sizes = {
            "FEATURES": ir.model.n_features,
            "OUTPUTS": ir.model.n_outputs,
            "PREDICTIONS": n_predictions if self._has_predictions else 0,
            "NUMBERS": len(slots.numbers),
            "CODES": len(slots.codes),
            "TREES": len(ir.trees),
            "GROUPS": -(-len(ir.trees) // _LANES),
            "LEVELS": max(1, len(ir.model.objective.quantile_levels)),
        }
        for name, size in sizes.items():
            yield f"#define NAME_N_{name} {size}"
        yield f"typedef {'float' if ir.dtype is np.float32 else 'double'} NAME_input;"

    @property
    def _has_predictions(self) -> bool:
        """Whether there is a function of predictions, apart from scores and classes."""
        ir = self._ir
        has_predictions = ir.kind == "regression" or ir.model.objective.probabilities
        return ir.link is not None and has_predictions

    # -- tables

    def _format_slot_tables(self) -> Iterator[str]:
        slots = self._slots
        yield from _format_table("uint32_t", "number", slots.numbers)
        n_bins = self._ir.model.mapper.n_bins_
        yield from _format_table("uint32_t", "code_feature", slots.codes)
        yield from _format_table("int32_t", "code_count", n_bins[list(slots.codes)])
        if self._ir.dtype is np.float64:
            ranks = [slots.ranks.get(feature, []) for feature in slots.numbers]
            yield from _format_table("uint32_t", "rank_begin", np.cumsum([0, *map(len, ranks)]))
            thresholds = (value for values in ranks for value in values)
            yield from _format_table("double", "rank_threshold", thresholds)

    def _format_node_tables(self) -> Iterator[str]:
        nodes, trees, slots = self._nodes, self._ir.trees, self._slots
        slot = _choose_index_type(max(2 * len(slots.numbers) + 1, len(slots.codes)))
        step = _choose_index_type(max([0, *(node.step for node in nodes.nodes)]))
        yield f"typedef struct {{ uint32_t key; {slot} slot; {step} step; }} NAME_node;"
        values = (f"{{{n.key:#x},{n.slot},{n.step}}}" for n in nodes.nodes)
        yield from _format_table("NAME_node", "nodes", values)
        if nodes.sets:
            yield from _format_table(
                _choose_index_type(len(nodes.sets) + 1), "set_of", nodes.set_rows
            )
            words = (f"{word:#x}u" for words in nodes.sets for word in words.tolist())
            yield from _format_table("uint32_t", "sets", words)
        order = sorted(range(len(trees)), key=lambda t: nodes.depths[t])
        order += order[-1:] * (-len(order) % _LANES)
        steps = [
            max(nodes.depths[t] for t in order[i : i + _LANES])
            for i in range(0, len(order), _LANES)
        ]
        yield f"typedef {_choose_index_type(len(trees))} NAME_tree;"
        yield from _format_table("NAME_tree", "order", order)
        yield from _format_table("uint32_t", "root", (nodes.roots[t] for t in order))
        yield from _format_table("int32_t", "steps", steps)
        yield from _format_table("uint32_t", "output", (max(tree.output, 0) for tree in trees))

    # -- functions

    def _format_functions(self) -> Iterator[str]:
        for name in self._leaves.blocks:
            if name == "dense_rows":
                yield from self._format_add_dense_rows()
            if name.startswith("linear"):
                columns = "1u" if name.endswith("column") else f"{self._ir.model.n_outputs}u"
                yield c_templates.ADD_LINEAR_LEAF.replace("WHICH", name).replace("COLUMNS", columns)
        yield from self._format_raw()
        yield from self._format_predict()
        function = c_templates.CLASS_FUNCTIONS.get(self._ir.kind, "")
        thresholds = self._ir.decision_thresholds
        if isinstance(thresholds, np.ndarray):
            function = function.replace("> 0.0", f"> {_format_number(thresholds[0], '')}")
        yield function

    def _format_add_dense_rows(self) -> Iterator[str]:
        """Yield a function for blocks of outputs whose sums stay in registers."""
        n, block = self._ir.model.n_outputs, 4 * _REGISTERS
        yield c_templates.FOUR_SUMS
        yield "static inline void NAME_add_dense_rows(const uint32_t *first, const uint32_t *last,"
        yield "                                       float *sum) {\n  const uint32_t *t;"
        for begin in range(0, n, block):
            end = min(begin + block, n)
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

    def _format_raw(self) -> Iterator[str]:
        model = self._ir.model
        yield from _format_table("double", "base", model.base_score.tolist())
        formula = "out[k] = NAME_base[k] + (double)sum[k];"
        if model.target_scale is not None and model.target_offset is not None:
            yield from _format_table("double", "scale", model.target_scale.tolist())
            yield from _format_table("double", "offset", model.target_offset.tolist())
            formula = "out[k] = (NAME_base[k] + (double)sum[k]) * NAME_scale[k] + NAME_offset[k];"
        if self._ir.linear is not None:
            yield from _format_linear_model(self._ir.linear)
        yield "/* Compute the NAME_N_OUTPUTS raw scores of a row. */"
        yield "static inline void NAME_raw(const NAME_input *x, double *out) {"
        yield "  NAME_EXACT\n  uint32_t leaf[NAME_N_TREES + 1], e;\n  float sum[NAME_N_OUTPUTS];"
        yield "  int t, k;"
        yield "  (void)t, (void)e;\n  for (k = 0; k < NAME_N_OUTPUTS; ++k) sum[k] = 0.0f;"
        yield "  NAME_leaves(x, leaf);"
        for run in _group_runs(self._ir.trees):
            yield c_templates.ADD_LEAVES[run.name].format(first=run.first, last=run.last)
        yield f"  for (k = 0; k < NAME_N_OUTPUTS; ++k) {formula}"
        if self._ir.linear is not None:
            yield "  NAME_add_linear_model(x, out);"
        yield "}\n"

    def _format_predict(self) -> Iterator[str]:
        ir = self._ir
        if not self._has_predictions or ir.link is None:
            return
        if ir.link == "sorted_levels":
            order = np.argsort(ir.model.objective.quantile_levels)
            yield from _format_table("int32_t", "level", order)
        noun = "predictions" if ir.kind == "regression" else "probabilities"
        yield f"/* Compute the NAME_N_PREDICTIONS {noun} of a row. */"
        yield "static inline void NAME_predict(const NAME_input *x, double *out) {"
        yield f"  int k;\n  NAME_raw(x, out);\n{c_templates.LINKS[ir.link]}"
        if ir.kind == "binary":
            yield "  out[1] = out[0];\n  out[0] = 1.0 - out[1];"
        if ir.is_one_vs_rest:
            yield c_templates.NORMALISE
        yield "}\n"


def _format_linear_model(linear: LinearInitialModel) -> Iterator[str]:
    """Yield a function that adds the scores of a linear model."""
    assert linear.fill is not None
    yield from _format_table("double", "coef", linear.to_dense().ravel())
    yield from _format_table("double", "intercept", linear.intercept)
    yield from _format_table("double", "fill", linear.fill)
    yield c_templates.ADD_LINEAR_MODEL


def _escape_comment(text: str) -> str:
    """Escape text that would end a comment or continue a line."""
    return (
        "".join(c if c.isprintable() and c.isascii() else "?" for c in text)
        .replace("*/", "* /")
        .replace("/*", "/ *")
        .replace("\\", "/")
        .replace("??", "? ?")
    )
