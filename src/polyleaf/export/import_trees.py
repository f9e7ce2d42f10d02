"""Models of Polyleaf from trees of other libraries, with bins from the thresholds that occur."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

import numpy as np

import polyleaf._core as _core
from polyleaf.binned_data.binning import MAX_BINS, BinMapper
from polyleaf.model import Model
from polyleaf.objectives import get_objective
from polyleaf.user_data.target import TargetEncoding

if TYPE_CHECKING:
    from polyleaf.runtime.types import JsonObject


@contextmanager
def report_damaged_file(library: str) -> Iterator[None]:
    """Turn errors from an unexpected file content into a ValueError that names the library."""
    try:
        yield
    except (KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"The {library} model cannot be read: its file is damaged or of an unknown kind "
            f"({type(error).__name__}: {error})."
        ) from error


def refuse_objective(library: str, name: str, supported: Iterable[str]) -> NoReturn:
    """Raise ValueError for an objective of another library without a counterpart."""
    raise ValueError(
        f"The {library} objective {name!r} is not supported; supported are {', '.join(supported)}."
    )


@dataclass(frozen=True)
class ImportedTree:
    """A tree of another library. Arrays have an entry per node; node 0 is the root."""

    # feature, left, right: `left` of a leaf is -1
    feature: np.ndarray
    left: np.ndarray
    right: np.ndarray
    # Thresholds of numeric splits: values <= threshold go left. Infinity: all that are not missing
    # go left.
    threshold: np.ndarray
    missing_left: np.ndarray
    # node of a categorical split -> categories that go left
    categories_left: Mapping[int, set[int]]
    values: np.ndarray  # (n_nodes, n_outputs or 1), leaf values; values of inner nodes are ignored
    output: int  # the output that the tree is for; -1: all outputs
    round: int
    gain: np.ndarray | None = None
    cover: np.ndarray | None = None
    count: np.ndarray | None = None


@dataclass(frozen=True)
class ImportedModel:
    """A model of another library without its trees."""

    library: str
    n_features: int
    feature_names: Sequence[str] | None
    is_float64: bool  # whether features are compared with thresholds as float64
    base_score: np.ndarray  # (n_outputs,)
    objective: str
    parameters: Mapping[str, object] = field(default_factory=dict)  # parameters of the objective
    kind: str = "regression"  # kind of target
    # categorical feature -> its categories
    categories: Mapping[int, Sequence[int]] = field(default_factory=dict)


def build_model(imported: ImportedModel, trees: Sequence[ImportedTree]) -> Model:
    """Build a model.

    Raises a ValueError if a feature has more thresholds or categories than there are bins.
    """
    model = Model(
        mapper=_make_mapper(imported, trees),
        objective=get_objective(imported.objective, **imported.parameters),
        base_score=imported.base_score,
        learning_rate=1.0,
        feature_names=imported.feature_names,
        metadata=_make_metadata(imported),
    )
    for tree in trees:
        structure, leaves = _convert_tree(tree, model.mapper)
        outputs = None if tree.output < 0 else np.array([tree.output], np.int32)
        model.append(structure, leaves, tree.round, outputs)
    return model


def _make_metadata(imported: ImportedModel) -> JsonObject:
    """Return the metadata with which a saved model loads as an estimator."""
    n_outputs = len(imported.base_score)
    classes = {
        "binary": np.arange(2),
        "multiclass": np.arange(n_outputs),
        "multilabel": np.arange(n_outputs),
    }
    encoding = TargetEncoding(
        kind=imported.kind,  # type: ignore[arg-type]
        n_outputs=n_outputs,
        one_dimensional=imported.kind in ("binary", "multiclass") or n_outputs == 1,
        classes=classes.get(imported.kind),
    )
    is_regression = imported.kind == "regression"
    return {
        "estimator": "PolyleafRegressor" if is_regression else "PolyleafClassifier",
        "parameters": {"objective": imported.objective},
        "origin": imported.library,
    } | encoding.to_dict()


# ---- bins ----------------------------------------------------------------------------------


def _make_mapper(imported: ImportedModel, trees: Sequence[ImportedTree]) -> BinMapper:
    thresholds: list[set[float]] = [set() for _ in range(imported.n_features)]
    for tree in trees:
        for node in np.flatnonzero(tree.left >= 0).tolist():
            if node not in tree.categories_left and np.isfinite(tree.threshold[node]):
                thresholds[tree.feature[node]].add(float(tree.threshold[node]))
    for feature, values in enumerate(thresholds):
        _check_bins(imported, feature, len(values) + 1, "thresholds")
    for feature, kept in imported.categories.items():
        _check_bins(imported, feature, len(kept), "categories")
    names = imported.feature_names
    meta: dict[str, object] = {
        "max_bins": MAX_BINS,
        "n_features": imported.n_features,
        "feature_names": None if names is None else list(names),
        "categories": [
            {"feature": int(f), "kept": [int(c) for c in kept], "rare": []}
            for f, kept in sorted(imported.categories.items())
        ],
        "transforms_regressors": False,
    }
    arrays: dict[str, np.ndarray] = {
        "thresholds": np.array([t for values in thresholds for t in sorted(values)], np.float64),
        "offsets": np.cumsum([0, *map(len, thresholds)], dtype=np.int64),
        "float64_bins": np.full(imported.n_features, imported.is_float64, np.uint8),
    }
    return BinMapper.from_state(meta, arrays)


def _check_bins(imported: ImportedModel, feature: int, n_bins: int, noun: str) -> None:
    if n_bins > MAX_BINS:
        names = imported.feature_names
        name = feature if names is None else repr(names[feature])
        raise ValueError(
            f"Feature {name} of the {imported.library} model has {n_bins} bins of {noun}, but "
            f"Polyleaf supports {MAX_BINS}: train it with fewer bins (max_bin={MAX_BINS - 1})."
        )


# ---- trees ---------------------------------------------------------------------------------


def _convert_tree(tree: ImportedTree, mapper: BinMapper) -> tuple[_core.Tree, np.ndarray]:
    """Return a tree on bin codes and its leaf values; children come after their parent."""
    order = [0]
    for node in order:
        if tree.left[node] >= 0:
            order += [int(tree.left[node]), int(tree.right[node])]
        if len(order) > len(tree.left) or min(order[-2:]) < 0:
            raise ValueError("The nodes of a tree do not form a tree; the file is damaged.")
    position = {node: i for i, node in enumerate(order)}
    is_inner = tree.left[order] >= 0
    leaf = np.where(is_inner, -1, np.cumsum(~is_inner) - 1)
    threshold, category_set, sets = _convert_splits(tree, order, mapper)

    def convert_children(side: np.ndarray) -> np.ndarray:
        children = np.full(len(order), -1, np.int32)
        for i in np.flatnonzero(is_inner).tolist():
            children[i] = position[int(side[order[i]])]
        return children

    def reorder(values: np.ndarray | None, dtype: type) -> np.ndarray:
        return np.zeros(len(order), dtype) if values is None else values[order].astype(dtype)

    structure = _core.Tree.from_arrays(
        feature=np.where(is_inner, tree.feature[order], -1).astype(np.int32),
        threshold=threshold,
        missing_left=is_inner & tree.missing_left[order],
        left=convert_children(tree.left),
        right=convert_children(tree.right),
        leaf=leaf.astype(np.int32),
        category_set=category_set,
        categories=sets,
        gain=np.where(is_inner, reorder(tree.gain, np.float64), 0.0),
        count=reorder(tree.count, np.int64),
        cover=reorder(tree.cover, np.float64),
        output_gain=np.zeros((len(order), 0), np.float32),
        n_features=mapper.n_features_,
    )
    return structure, np.ascontiguousarray(tree.values[order][~is_inner], np.float32)


def _convert_splits(
    tree: ImportedTree, order: list[int], mapper: BinMapper
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the last left code and the row of the category set of each node, and the sets."""
    threshold = np.full(len(order), -1, np.int32)
    category_set = np.full(len(order), -1, np.int32)
    sets: list[np.ndarray] = []
    for i, node in enumerate(order):
        if tree.left[node] < 0:
            continue
        feature = int(tree.feature[node])
        categories = tree.categories_left.get(node)
        if categories is None:
            # An infinite threshold gives the last bin.
            threshold[i] = np.searchsorted(mapper.thresholds_[feature], tree.threshold[node])
            continue
        codes = mapper.category_codes(feature).items()
        bits = np.zeros(256, bool)
        bits[[code for category, code in codes if category in categories]] = True
        category_set[i] = len(sets)
        sets.append(np.packbits(bits, bitorder="little").view("<u8").astype(np.uint64))
    return threshold, category_set, np.array(sets, np.uint64).reshape(-1, 4)
