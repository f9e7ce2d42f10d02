"""Models of Polyleaf from trees that other libraries grew: bins are made from the thresholds that occur.

Owns: trees as they are given, their bins and codes, and what a model says of its origin. Must not know: any
format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import polyleaf._core as _core
from polyleaf.data.binning import MAX_BINS, BinMapper
from polyleaf.inputs.targets import TargetEncoding
from polyleaf.model import Model
from polyleaf.objectives import get_objective

__all__ = ["ImportedModel", "ImportedTree", "build", "report_damaged_file"]


@contextmanager
def report_damaged_file(library: str) -> Iterator[None]:
    """Whatever a file trips over that is no model of the library ends in a sentence."""
    try:
        yield
    except (KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"The {library} model cannot be read, its file is damaged or of a kind that is not known "
            f"({type(error).__name__}: {error})."
        ) from error


@dataclass(frozen=True)
class ImportedTree:
    """A tree as another library has it. Arrays have one entry a node; node 0 is the root.

    Attributes
    ----------
    feature, left, right : ndarray of int
        A leaf has `left` -1.
    threshold : ndarray of float64
        Of a numeric split: values <= threshold go left, infinity: all that are not missing.
    missing_left : ndarray of bool
    categories_left : dict of int -> set of int
        Of the nodes that split by categories: those that go left.
    values : ndarray of shape (n_nodes, n_outputs or 1), float64
        What the leaves add; of inner nodes anything.
    output : int
        The one output that the tree is for; -1: all.
    round : int
    gain, cover, count : ndarray, optional
    """

    feature: np.ndarray
    left: np.ndarray
    right: np.ndarray
    threshold: np.ndarray
    missing_left: np.ndarray
    categories_left: Mapping[int, set[int]]
    values: np.ndarray
    output: int
    round: int
    gain: np.ndarray | None = None
    cover: np.ndarray | None = None
    count: np.ndarray | None = None


@dataclass(frozen=True)
class ImportedModel:
    """What another library says of a model besides its trees."""

    library: str
    n_features: int
    feature_names: Sequence[str] | None
    wide: bool  # thresholds are compared as float64
    base_score: np.ndarray
    objective: str
    parameters: Mapping[str, Any] = field(default_factory=dict)  # of the objective
    kind: str = "regression"
    categories: Mapping[int, Sequence[int]] = field(default_factory=dict)


def build(given: ImportedModel, trees: Sequence[ImportedTree]) -> Model:
    """The model of these trees.

    Raises
    ------
    ValueError
        When a feature has more thresholds or categories than there are bins.
    """
    objective = get_objective(given.objective, **given.parameters)
    model = Model(
        mapper=_mapper(given, trees),
        objective=objective,
        base_score=given.base_score,
        learning_rate=1.0,
        feature_names=given.feature_names,
        metadata=_metadata(given),
    )
    for tree in trees:
        structure, leaves = _tree(tree, model.mapper)
        model.append(structure, leaves, tree.round, tree.output)
    return model


def _metadata(given: ImportedModel) -> dict[str, Any]:
    """So that the model, saved, is read as an estimator."""
    n_outputs = len(given.base_score)
    classes = {
        "binary": np.arange(2),
        "multiclass": np.arange(n_outputs),
        "multilabel": np.arange(n_outputs),
    }
    encoding = TargetEncoding(
        kind=given.kind,  # type: ignore[arg-type]
        n_outputs=n_outputs,
        one_dimensional=given.kind in ("binary", "multiclass") or n_outputs == 1,
        classes=classes.get(given.kind),
    )
    name = "PolyleafRegressor" if given.kind == "regression" else "PolyleafClassifier"
    origin = {
        "estimator": name,
        "parameters": {"objective": given.objective},
        "origin": given.library,
    }
    return origin | encoding.to_dict()


# ---- bins --------------------------------------------------------------------------------------------------


def _mapper(given: ImportedModel, trees: Sequence[ImportedTree]) -> BinMapper:
    thresholds: list[set[float]] = [set() for _ in range(given.n_features)]
    for tree in trees:
        for node in _numeric(tree):
            if np.isfinite(tree.threshold[node]):
                thresholds[tree.feature[node]].add(float(tree.threshold[node]))
    for feature, found in enumerate(thresholds):
        _check_bins(given, feature, len(found) + 1, "thresholds")
    for feature, kept in given.categories.items():
        _check_bins(given, feature, len(kept), "categories")
    names = given.feature_names
    meta: dict[str, Any] = {
        "max_bins": MAX_BINS,
        "n_features": given.n_features,
        "feature_names": None if names is None else list(names),
        "categories": [
            {"feature": int(f), "kept": [int(c) for c in kept], "rare": []}
            for f, kept in sorted(given.categories.items())
        ],
    }
    arrays: dict[str, np.ndarray] = {
        "thresholds": np.array([t for found in thresholds for t in sorted(found)], np.float64),
        "offsets": np.cumsum([0, *map(len, thresholds)], dtype=np.int64),
        "wide": np.full(given.n_features, given.wide, np.uint8),
    }
    return BinMapper.from_state(meta, arrays)


def _check_bins(given: ImportedModel, feature: int, n_bins: int, what: str) -> None:
    if n_bins > MAX_BINS:
        name = feature if given.feature_names is None else repr(given.feature_names[feature])
        raise ValueError(
            f"Feature {name} of the {given.library} model has {n_bins} bins of {what}, and Polyleaf's codes "
            f"have {MAX_BINS}: train it with fewer bins (max_bin={MAX_BINS - 1})."
        )


def _numeric(tree: ImportedTree) -> list[int]:
    return [
        node for node in np.flatnonzero(tree.left >= 0).tolist() if node not in tree.categories_left
    ]


# ---- trees -------------------------------------------------------------------------------------------------


def _tree(tree: ImportedTree, mapper: BinMapper) -> tuple[_core.Tree, np.ndarray]:
    """Structure on codes and leaf values; nodes are numbered anew, children after their parent."""
    order = [0]
    for node in order:
        if tree.left[node] >= 0:
            order += [int(tree.left[node]), int(tree.right[node])]
        if len(order) > len(tree.left) or min(order[-2:]) < 0:
            raise ValueError("The nodes of a tree do not form a tree; the file is damaged.")
    place = {node: i for i, node in enumerate(order)}
    inner = tree.left[order] >= 0
    number = np.where(inner, -1, np.cumsum(~inner) - 1)
    threshold, category_set, sets = _tests(tree, order, mapper)

    def children(side: np.ndarray) -> np.ndarray:
        return np.array(
            [
                place[int(side[node])] if is_inner else -1
                for node, is_inner in zip(order, inner, strict=True)
            ],
            np.int32,
        )

    def statistic(values: np.ndarray | None, dtype: type) -> np.ndarray:
        return np.zeros(len(order), dtype) if values is None else values[order].astype(dtype)

    structure = _core.Tree.from_arrays(
        feature=np.where(inner, tree.feature[order], -1).astype(np.int32),
        threshold=threshold,
        missing_left=inner & tree.missing_left[order],
        left=children(tree.left),
        right=children(tree.right),
        leaf=number.astype(np.int32),
        category_set=category_set,
        categories=sets,
        gain=np.where(inner, statistic(tree.gain, np.float64), 0.0),
        count=statistic(tree.count, np.int64),
        cover=statistic(tree.cover, np.float64),
        output_gain=np.zeros((len(order), 0), np.float32),
        n_features=mapper.n_features_,
    )
    return structure, np.ascontiguousarray(tree.values[order][~inner], np.float32)


def _tests(
    tree: ImportedTree, order: list[int], mapper: BinMapper
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Last code that goes left, row of the category sets, and these, of the nodes in order."""
    threshold = np.full(len(order), -1, np.int32)
    category_set = np.full(len(order), -1, np.int32)
    sets: list[np.ndarray] = []
    for i, node in enumerate(order):
        if tree.left[node] < 0:
            continue
        feature = int(tree.feature[node])
        wanted = tree.categories_left.get(node)
        if wanted is None:
            at = np.searchsorted(mapper.thresholds_[feature], tree.threshold[node])
            threshold[i] = at  # of infinity: the last bin
            continue
        bits = np.zeros(256, bool)
        bits[
            [
                code
                for category, code in mapper.category_codes(feature).items()
                if category in wanted
            ]
        ] = True
        category_set[i] = len(sets)
        sets.append(np.packbits(bits, bitorder="little").view("<u8").astype(np.uint64))
    return threshold, category_set, np.array(sets, np.uint64).reshape(-1, 4)
