"""Intermediate representation of a model that all exporters read: trees on raw feature values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from polyleaf.binned_data.binning import MISSING_CODE
from polyleaf.binned_data.high_cardinality import Category
from polyleaf.model import Model
from polyleaf.model.initial import LinearInitialModel
from polyleaf.model.leaf_kinds import LEAF_KINDS, LeafFunctions, Leaves
from polyleaf.model.metadata import get_raw_decision_thresholds
from polyleaf.model.model import get_model
from polyleaf.model.trees import Tree
from polyleaf.runtime.capabilities import PLACES, check, refuse
from polyleaf.runtime.types import DataLike, ModelLike
from polyleaf.user_data.feature_table import CategoryColumn, DenseBlock, FeatureTable
from polyleaf.user_data.target import TargetEncoding

FLOAT32_MAX = float(np.finfo(np.float32).max)
_N_CHECK_ROWS, _CHECK_TOLERANCE = 64, 1e-4
_MAX_LEAF_VALUES = 1 << 28  # total size of all leaves as dense vectors


@dataclass(frozen=True)
class TreeIR:
    """A tree on feature values, as a table with a row per node. Node 0 is the root."""

    # feature, left, right, leaf: feature and children of a split, number of a leaf; -1 where there
    # are none
    feature: np.ndarray
    left: np.ndarray
    right: np.ndarray
    leaf: np.ndarray
    # Thresholds of numeric splits: values <= threshold go left. Infinity: all that are not missing
    # go left.
    threshold: np.ndarray
    # node of a categorical split -> ascending codes of the categories that go left
    codes_left: dict[int, np.ndarray]
    missing_left: np.ndarray
    # count, gain, cover: number of training rows, gain of splits, and sums of Hessians
    count: np.ndarray
    gain: np.ndarray
    cover: np.ndarray
    leaves: LeafFunctions  # leaf values
    output: int  # the output that the tree is for; -1: all outputs
    round: int

    @property
    def is_leaf(self) -> np.ndarray:
        """Whether each node is a leaf: bool (n_nodes,)."""
        return self.left < 0

    @property
    def split_nodes(self) -> np.ndarray:
        """The nodes that are splits, ascending."""
        return np.flatnonzero(self.left >= 0)

    @property
    def leaf_nodes(self) -> np.ndarray:
        """The nodes that are leaves, ascending."""
        return np.flatnonzero(self.left < 0)


@dataclass(frozen=True)
class ModelIR:
    """A model, and the number of rounds that it predicts with."""

    model: Model
    n_rounds: int

    @cached_property
    def trees(self) -> list[TreeIR]:
        """Trees of these rounds, in order."""
        return list(self._iter_trees())

    def _iter_trees(self) -> Iterator[TreeIR]:
        thresholds = [np.append(values, np.inf) for values in self.model.mapper.thresholds_]
        n_bins = self.model.mapper.n_bins_.tolist()
        for view in self.model.trees:
            if view.round >= self.n_rounds:
                return
            tree = view.structure
            leaves, output = _expand_outputs(view, self.model.n_outputs)
            threshold, codes_left = np.zeros(tree.n_nodes), {}
            for node in np.flatnonzero(tree.feature >= 0).tolist():
                feature, row = int(tree.feature[node]), int(tree.category_set[node])
                if row >= 0:
                    words = tree.categories[row].astype("<u8").view(np.uint8)
                    bits = np.unpackbits(words, bitorder="little")
                    codes_left[node] = np.flatnonzero(bits[: n_bins[feature]])
                else:
                    threshold[node] = thresholds[feature][tree.threshold[node]]
            yield TreeIR(
                feature=tree.feature,
                left=tree.left,
                right=tree.right,
                leaf=tree.leaf,
                threshold=threshold,
                codes_left=codes_left,
                missing_left=tree.missing_left,
                count=tree.count,
                gain=tree.gain,
                cover=tree.cover,
                leaves=LEAF_KINDS[view.kind].functions(leaves),
                output=output,
                round=view.round,
            )

    @property
    def is_float64(self) -> np.ndarray:
        """Whether each feature is compared as float64: bool (n_features,)."""
        return np.asarray(self.model.mapper.float64_bins_, bool)

    @cached_property
    def has_scalar_trees(self) -> bool:
        """Whether every tree is for one output."""
        return self.model.n_outputs == 1 or all(tree.output >= 0 for tree in self.trees)

    @cached_property
    def reads_features(self) -> bool:
        """Whether leaf values of any tree depend on features."""
        return any(tree.leaves.features is not None for tree in self.trees)

    @property
    def base_score(self) -> np.ndarray:
        """Base scores on the scale of y: float64 (n_outputs,)."""
        base = self.model.base_score
        if self.model.target_scale is not None and self.model.target_offset is not None:
            base = base * self.model.target_scale + self.model.target_offset
        return base

    @cached_property
    def linear(self) -> LinearInitialModel | None:
        """Linear model whose scores are added to the scores of the trees, on the scale of y.

        Means take the place of missing values that the model refuses, since exports cannot raise.
        """
        initial = self.model.initial
        if not isinstance(initial, LinearInitialModel):
            return None
        return replace(initial, fill=initial.mean) if initial.fill is None else initial

    def leaf_values(self, tree: TreeIR) -> np.ndarray:
        """Return constant leaf values on the scale of y.

        Returns shape (n_leaves, n_outputs), or (n_leaves, 1) if every tree is for one output:
        float64.
        """
        n_outputs = self.model.n_outputs
        values = tree.leaves.to_dense(n_outputs)
        scale = self.model.target_scale
        if scale is not None:
            values = values * (scale if tree.output < 0 else scale[tree.output])
        if tree.output < 0 or self.has_scalar_trees:
            return values
        vectors = np.zeros((len(values), n_outputs))
        vectors[:, tree.output] = values[:, 0]
        return vectors

    def check_constant_leaves(self, place: str) -> None:
        """Check that a format of constant dense leaves can hold the model.

        Raises a ValueError if leaves are linear, or dense leaf values would fill the memory.
        """
        format = PLACES[place]
        if self.reads_features:
            refuse("linear_leaves", place, format=format)
        n_leaves = sum(len(tree.leaf_nodes) for tree in self.trees)
        if n_leaves * self.model.n_outputs > _MAX_LEAF_VALUES and not self.has_scalar_trees:
            raise ValueError(
                f"{format} does not support sparse leaves, and {n_leaves} dense leaves of "
                f"{self.model.n_outputs} outputs exceed the limit of {_MAX_LEAF_VALUES} values: "
                "use to_onnx, or predict_topk in Polyleaf."
            )

    @property
    def dtype(self) -> type:
        """Type of the matrix that the exported model reads: float64 if a feature needs it."""
        return np.float64 if self.is_float64.any() else np.float32

    @property
    def kind(self) -> str:
        """Kind of target: "regression", "binary", "multiclass", "multilabel" or "tasks"."""
        return self.model.metadata.get("kind", "regression")

    @property
    def classes(self) -> list[Any] | None:
        """Sorted class labels of a binary or multiclass classifier, otherwise None."""
        if self.kind not in ("binary", "multiclass"):
            return None
        classes = TargetEncoding.from_dict(self.model.metadata, self.model.n_outputs).classes
        return None if classes is None else classes.tolist()

    @property
    def decision_thresholds(self) -> np.ndarray | float:
        """Raw score above which a label, or the second of two classes, is predicted."""
        return get_raw_decision_thresholds(self.model)

    @property
    def is_one_vs_rest(self) -> bool:
        """Whether class probabilities are normalised one-vs-rest probabilities."""
        return bool(self.model.metadata.get("one_vs_rest", False))

    @property
    def link(self) -> str | None:
        """Link from raw scores to predictions: `Objective.link`."""
        return self.model.objective.link


def _expand_outputs(tree: Tree, n_outputs: int) -> tuple[Leaves, int]:
    """Return the leaves and output of a tree, where a group of outputs becomes all of them (-1)."""
    outputs, kind = tree.outputs, LEAF_KINDS[tree.kind]
    if outputs is None or kind.lists_outputs:
        return tree.leaves, -1
    if len(outputs) == 1:
        return tree.leaves, int(outputs[0])
    return kind.expand(tree.leaves, outputs, n_outputs), -1


def build_ir(model: ModelLike, place: str = "exports") -> ModelIR:
    """Build the representation of a model, or of a fitted estimator up to its best round.

    `place`: the format, as a key of `PLACES`. Raises a TypeError if `model` is neither, and a
    ValueError if predictions need more than the trees, or the format does not support a feature.
    """
    inner = get_model(model)
    for name in dict.fromkeys(("exports", place)):
        check(name, model=inner)
    best = inner.best_iteration if inner is not model else None
    return ModelIR(inner, inner.n_rounds if best is None else best + 1)


def category_mapping(model: ModelLike) -> dict[int, dict[Category, int]]:
    """Return the codes that stand for categories in the input of exported models.

    Parameters
    ----------
    model : Model or fitted estimator

    Returns
    -------
    dict of int -> dict
        Number of each categorical feature -> {category: code}. Rare categories that share a bin
        share a code.
    """
    mapper = build_ir(model).model.mapper
    return {f: mapper.category_codes(f) for f in np.flatnonzero(mapper.is_categorical_).tolist()}


def check_scores(
    model: ModelLike, format: str, run: Callable[[FeatureTable, np.ndarray], np.ndarray | None]
) -> None:
    """Compare the raw scores of an exported model with Polyleaf's, on rows made for this.

    Raises a RuntimeError if the scores differ by more than rounding. `format`: name of the format,
    for messages. `run`: function of the rows as a table and as the numeric matrix, which returns
    raw scores of the exported model, (n_rows, n_outputs), or None if the program that computes them
    is missing.
    """
    ir = build_ir(model)
    table = _make_check_rows(ir)
    if ir.linear is not None:
        assert ir.linear.fill is not None
        numbers = table.to_float64()
        table = replace(table, source=np.where(np.isnan(numbers), ir.linear.fill, numbers))
    scores = run(table, to_numeric_matrix(model, table))
    if scores is None:
        return
    expected = ir.model.predict_raw(table, 0, ir.n_rounds)
    scores = np.reshape(np.asarray(scores, np.float64), expected.shape)
    scale = float(np.abs(expected).max(initial=0)) or 1.0
    # Sums in float32 lose up to half a unit in the last place with every tree.
    tolerance = max(_CHECK_TOLERANCE, ir.n_rounds * 2.0**-24) * scale
    if not np.allclose(scores, expected, rtol=0, atol=tolerance):
        worst = float(np.abs(scores - expected).max())
        raise RuntimeError(
            f"The {format} export gives other raw scores than the model, by up to {worst:.3g}: "
            "please report this, or pass check=False to write it nevertheless."
        )


def _make_check_rows(ir: ModelIR) -> FeatureTable:
    """Return rows of thresholds, their neighbours, categories, unknown and missing values."""
    rng, mapper, n = np.random.default_rng(0), ir.model.mapper, _N_CHECK_ROWS
    table = FeatureTable(n, mapper.n_features_, None)
    numeric = np.flatnonzero(~mapper.is_categorical_)
    values: np.ndarray = np.empty((n, len(numeric)), ir.dtype)
    for column, feature in enumerate(numeric.tolist()):
        edges: np.ndarray = np.append(mapper.thresholds_[feature], 0.5).astype(ir.dtype)
        above, below = (np.nextafter(edges, ir.dtype(end)) for end in (np.inf, -np.inf))
        special: np.ndarray = np.array([np.nan, 0.0, -0.0, 3.7], ir.dtype)
        values[:, column] = rng.choice(np.concatenate([above, below, edges, special]), n)
    table.dense.append(DenseBlock(values, numeric))
    for feature in np.flatnonzero(mapper.is_categorical_).tolist():
        kept, rare = mapper.categories_[feature] or (), mapper.rare_categories_[feature] or ()
        categories = [*kept, *rare[:1]]
        index = rng.integers(-1, len(categories), n).astype(np.int32)
        table.categories.append(CategoryColumn(index, tuple(categories), feature))
    return table


def to_numeric_matrix(model: ModelLike, X: DataLike | FeatureTable) -> np.ndarray:
    """Convert X to the numeric matrix that exported models read.

    Parameters
    ----------
    model : Model or fitted estimator
    X : array, sparse matrix or table of shape (n_rows, n_features)
        Features as `predict` takes them.

    Returns
    -------
    ndarray of shape (n_rows, n_features), C order
        float32, or float64 if some feature needs it (`BinMapper.float64_bins_`). NaN where a value
        is missing. A category is its code (`category_mapping`), NaN if it was not in the training
        data.
    """
    ir = build_ir(model)
    mapper = ir.model.mapper
    table = ir.model.prepare_features(X)
    matrix: np.ndarray = np.zeros((table.n_rows, table.n_features), ir.dtype)
    for block in table.dense:
        for column, feature in enumerate(block.features.tolist()):
            matrix[:, feature] = _to_float32(block.values[:, column], ir.is_float64[feature])
    for part in table.sparse:
        for column, feature in enumerate(part.features.tolist()):
            stored = slice(part.indptr[column], part.indptr[column + 1])
            values = _to_float32(part.data[stored], ir.is_float64[feature])
            matrix[part.indices[stored], feature] = values
    if table.categories:
        codes = mapper.transform(table, only=mapper.is_categorical_)
        for feature in np.flatnonzero(mapper.is_categorical_).tolist():
            matrix[:, feature] = np.where(codes[feature] == MISSING_CODE, np.nan, codes[feature])
    return matrix


def _to_float32(values: np.ndarray, keep_float64: bool) -> np.ndarray:
    """Convert to float32 unless `keep_float64`; too large values become the largest float32."""
    if keep_float64 or values.dtype == np.float32:
        return values
    return np.clip(values, -FLOAT32_MAX, FLOAT32_MAX).astype(np.float32)


def choose_key_dtype(name: str, categories: list[Category]) -> type:
    """Return the type of an input of categories that holds all of them."""
    is_text = [isinstance(category, str) for category in categories]
    if any(is_text) and not all(is_text):
        raise ValueError(
            f"Feature {name!r} has categories of text and of numbers, which an input of ONNX "
            'cannot hold: use input="matrix".'
        )
    if any(is_text):
        return object
    if all(float(np.float32(c)) == c for c in categories):
        return np.float32
    return np.int64 if all(isinstance(c, int) for c in categories) else np.float64
