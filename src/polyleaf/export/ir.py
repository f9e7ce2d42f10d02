"""What every format is made from: the trees that predict, in terms of raw features instead of bins.

Owns: which rounds are used, thresholds as numbers, the matrix that exported models read, and what a model
must be to leave Polyleaf. Must not know: any format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

import polyleaf._core as _core
from polyleaf.data.binning import MISSING_CODE, Category
from polyleaf.inputs.features import read_features
from polyleaf.inputs.targets import TargetEncoding
from polyleaf.model import Model
from polyleaf.model.decision_threshold import get_raw_decision_thresholds
from polyleaf.model.leaf_kinds import Leaves

__all__ = ["TreeIR", "ModelIR", "to_numeric_matrix", "category_mapping", "build_ir"]

FLOAT32_MAX = float(np.finfo(np.float32).max)
_MAX_LEAF_VALUES = 1 << 28  # of all leaves as dense vectors


class TreeIR(NamedTuple):
    """A tree that asks for numbers. Arrays have one entry a node; a leaf has feature -1.

    Attributes
    ----------
    structure : _core.Tree
        For `feature`, `left`, `right`, `leaf`, `missing_left`.
    threshold : ndarray of float64
        Of a numeric split: values <= threshold go left, infinity: all that are not missing.
    codes_left : dict of int -> ndarray of int
        Of the nodes that split by categories: codes that go left, ascending.
    leaves : Leaves
        What they hold; `kind` says how.
    output : int
        The one output that the tree is for; -1: all.
    """

    structure: _core.Tree
    threshold: np.ndarray
    codes_left: dict[int, np.ndarray]
    leaves: Leaves
    kind: str
    output: int


@dataclass(frozen=True)
class ModelIR:
    """A model, and the rounds that it predicts with."""

    model: Model
    n_rounds: int

    @cached_property
    def trees(self) -> list[TreeIR]:
        """The trees of these rounds, in order."""
        return list(self._iter_trees())

    def _iter_trees(self) -> Iterator[TreeIR]:
        mapper = self.model.mapper
        cuts = [np.append(thresholds, np.inf) for thresholds in mapper.thresholds_]
        for view in self.model.trees:
            if view.round >= self.n_rounds:
                return
            tree, output = view.structure, -1 if view.output is None else view.output
            threshold, codes_left = np.zeros(tree.n_nodes), {}
            for node in np.flatnonzero(tree.feature >= 0).tolist():
                feature, row = int(tree.feature[node]), int(tree.category_set[node])
                if row >= 0:
                    codes_left[node] = self._decode_category_set(feature, tree.categories[row])
                else:
                    threshold[node] = cuts[feature][tree.threshold[node]]
            yield TreeIR(tree, threshold, codes_left, view.leaves, view.kind, output)

    def _decode_category_set(self, feature: int, words: np.ndarray) -> np.ndarray:
        bits = np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little")
        return np.flatnonzero(bits[: int(self.model.mapper.n_bins_[feature])])

    @property
    def is_wide(self) -> np.ndarray:
        """Which features are compared as float64: bool (n_features,)."""
        return np.asarray(self.model.mapper.float64_bins_, bool)

    @cached_property
    def has_scalar_trees(self) -> bool:
        """Whether every tree is for one output."""
        return self.model.n_outputs == 1 or all(tree.output >= 0 for tree in self.trees)

    @property
    def base(self) -> np.ndarray:
        """Of every row, in the unit of y: float64 (n_outputs,)."""
        base = self.model.base_score
        if self.model.target_scale is not None and self.model.target_offset is not None:
            base = base * self.model.target_scale + self.model.target_offset
        return base

    def constants(self, tree: TreeIR) -> np.ndarray:
        """What its leaves add, in the unit of y: float64 (n_leaves, n_outputs), or (n_leaves, 1) where every
        tree is for one output. Not of linear leaves."""
        n_outputs = self.model.n_outputs
        if tree.kind == "sparse":
            values = np.zeros((tree.structure.n_leaves, n_outputs))
            leaf = np.repeat(np.arange(len(values)), np.diff(tree.leaves.indptr))  # type: ignore[union-attr]
            values[leaf, tree.leaves.outputs] = tree.leaves.values  # type: ignore[union-attr]
        else:
            values = np.asarray(tree.leaves, np.float64)
        scale = self.model.target_scale
        if scale is not None:
            values = values * (scale if tree.output < 0 else scale[tree.output])
        if tree.output < 0 or self.has_scalar_trees:
            return values
        vectors = np.zeros((len(values), n_outputs))
        vectors[:, tree.output] = values[:, 0]
        return vectors

    def check_constant_leaves(self, reader: str, instead: str) -> None:
        """Refuse leaves that a reader of vectors of constants does not know.

        Raises
        ------
        ValueError
        """
        if any(tree.kind == "linear" for tree in self.trees):
            raise ValueError(
                f"The model has linear leaves, which {reader} does not know: use {instead}, or train with "
                'leaf="constant".'
            )
        n_leaves = sum(tree.structure.n_leaves for tree in self.trees)
        if n_leaves * self.model.n_outputs > _MAX_LEAF_VALUES and not self.has_scalar_trees:
            raise ValueError(
                f"{reader} has no sparse leaves: {n_leaves} leaves for {self.model.n_outputs} outputs would "
                f"be more than {_MAX_LEAF_VALUES} numbers. Use to_onnx, or predict_topk in Polyleaf."
            )

    @property
    def dtype(self) -> type:
        """Of the matrix that the exported model reads: float64 where some feature needs it."""
        return np.float64 if self.is_wide.any() else np.float32

    @property
    def kind(self) -> str:
        """Of target: "regression", "binary", "multiclass", "multilabel", "tasks"."""
        return self.model.metadata.get("kind", "regression")

    @property
    def classes(self) -> list[Any] | None:
        """Labels of a classifier of classes, sorted; None for others."""
        if self.kind not in ("binary", "multiclass"):
            return None
        found = TargetEncoding.from_dict(self.model.metadata, self.model.n_outputs).classes
        return None if found is None else found.tolist()

    @property
    def cuts(self) -> np.ndarray | float:
        """The raw score above which a label, or the second of two classes, holds; or one for each output."""
        return get_raw_decision_thresholds(self.model)

    @property
    def one_vs_rest(self) -> bool:
        """Whether probabilities of classes are shares of those of each class against the rest."""
        return bool(self.model.metadata.get("one_vs_rest", False))

    @property
    def link(self) -> str | None:
        """How scores become predictions: `Objective.link`."""
        return self.model.objective.link


def build_ir(model: Any) -> ModelIR:
    """What there is to export of a model or a fitted estimator, which predicts up to its best round.

    Raises
    ------
    TypeError
        For anything else.
    ValueError
        For models whose predictions need more than their trees.
    """
    inner = getattr(model, "model_", model)
    if not isinstance(inner, Model):
        raise TypeError(
            f"A polyleaf.Model or a fitted estimator can be exported, not {type(model).__name__}; "
            "call fit first."
        )
    if inner.projection is not None:
        raise ValueError(
            "The model projects its features before the trees see them, and no format holds the projection: "
            "keep such a model in Polyleaf (save_model), or train without projection."
        )
    if inner.mapper.derived_columns_ is not None:
        raise ValueError(
            "The model looks up features of more than 255 categories in a table, and no format holds the "
            "table: keep such a model in Polyleaf (save_model), or train on fewer categories."
        )
    best = inner.best_iteration if inner is not model else None
    return ModelIR(inner, inner.n_rounds if best is None else best + 1)


def category_mapping(model: Any) -> dict[int, dict[Category, int]]:
    """Codes of categories, which stand for them in what exported models read.

    Parameters
    ----------
    model : Model or fitted estimator

    Returns
    -------
    dict of int -> dict
        For the number of each categorical feature: category -> code. Categories that share a bin for being
        rare share a code.
    """
    mapper = build_ir(model).model.mapper
    return {f: mapper.category_codes(f) for f in np.flatnonzero(mapper.is_categorical_).tolist()}


def to_numeric_matrix(model: Any, X: Any) -> np.ndarray:
    """X as an exported model reads it.

    Parameters
    ----------
    model : Model or fitted estimator
    X : array, sparse matrix or table of shape (n_rows, n_features)
        As `predict` takes it.

    Returns
    -------
    ndarray of shape (n_rows, n_features), C order
        float32 numbers; as float64 where some feature needs that (`BinMapper.float64_bins_`). NaN where a value is
        missing. A category is its code (`category_mapping`), NaN where it was not seen in training.
    """
    source = build_ir(model)
    mapper = source.model.mapper
    table = read_features(X, reference=mapper)
    matrix: np.ndarray = np.zeros((table.n_rows, table.n_features), source.dtype)
    for block in table.dense:
        for column, feature in enumerate(block.features.tolist()):
            matrix[:, feature] = _to_float32(block.values[:, column], source.is_wide[feature])
    for part in table.sparse:
        for column, feature in enumerate(part.features.tolist()):
            stored = slice(part.indptr[column], part.indptr[column + 1])
            matrix[part.indices[stored], feature] = _to_float32(
                part.data[stored], source.is_wide[feature]
            )
    if table.categories:
        codes = mapper.transform(table, only=mapper.is_categorical_)
        for feature in np.flatnonzero(mapper.is_categorical_).tolist():
            matrix[:, feature] = np.where(codes[feature] == MISSING_CODE, np.nan, codes[feature])
    return matrix


def _to_float32(values: np.ndarray, wide: bool) -> np.ndarray:
    """As float32, unless the feature is wide. What is too large becomes the largest, in the same bin."""
    if wide or values.dtype == np.float32:
        return values
    return np.clip(values, -FLOAT32_MAX, FLOAT32_MAX).astype(np.float32)
