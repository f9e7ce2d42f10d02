"""Folds: rows to train on and rows to validate, and their data.

All folds share one set of bins, whose thresholds come from the features of all rows and never from
y. Everything that depends on y is learned by each trial from its own training rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import joblib
import numpy as np
from sklearn.model_selection import (
    GroupKFold,
    GroupShuffleSplit,
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
)

from polyleaf.binned_data.dataset import Dataset
from polyleaf.binned_data.random_rows import SplitRules, split_rows_stratified
from polyleaf.objectives import Objective
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.types import DataLike
from polyleaf.training.prepare import VALIDATION, check_parts
from polyleaf.training.training_run import TrainingData
from polyleaf.user_data.target import Target
from polyleaf.user_data.validation import describe_type

DEFAULT_N_SPLITS = 3
LARGE_N_ROWS, TEST_SIZE = 20_000, 0.2  # with more rows one hold-out replaces the folds

Rows = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Fold:
    """Training and validation data."""

    train: TrainingData
    valid: TrainingData
    growth: float = 1.0  # rows of the final fit divided by those of `train`


class Folds(Sequence[Fold]):
    """Folds, each made on first use: a short search does not reach all.

    `make(i)`: fold i.
    """

    def __init__(self, n: int, make: Callable[[int], Fold]) -> None:
        self._n = n
        self._make = cache(make)

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, i: Any) -> Any:
        if not 0 <= i < self._n:
            raise IndexError(i)
        return self._make(i)


def make_folds(
    dataset: Dataset, data: TrainingData, rows: Sequence[Rows], weighed: RowData | None = None
) -> Folds:
    """Make the folds with these rows, all in the bins of `dataset`.

    `weighed`: the rows with the weights that they have where they are held out, if these differ.
    """
    binned = data._replace(X=dataset)
    evaluated = binned._replace(name=VALIDATION, rows=data.rows if weighed is None else weighed)

    def make(i: int) -> Fold:
        train, valid = rows[i]
        growth = dataset.n_rows / len(train)
        fold = Fold(binned.take(train), evaluated.take(valid), growth)
        _ = fold.train.X.bins  # built once, before parallel trials use them
        return fold

    return Folds(len(rows), make)


def weigh_held_out(rows: RowData, target: Target, objective: Objective) -> RowData:
    """Return the rows as folds evaluate them: with the weights that they have in training.

    `target`: the encoded rows, with weights of classes and targets.
    """
    is_matrix = target.weight is not None and target.weight.ndim == 2
    if target.is_sparse or (target.encoding.kind == "regression" and not is_matrix):
        return rows
    weight = objective.weigh_held_out(target.rows).weight
    if target.encoding.kind == "multiclass":  # rows have one weight each
        weight = target.weight
    if target.encoding.has_class_ids and target.values.ndim == 2:  # shares of classes
        rows = rows.replace(target=target.values)
    return rows.replace(weight=weight)


def hash_data(target: Target, folds: Folds) -> str:
    """Hash bin codes, raw features, targets, weights and offsets of all folds."""
    parts = [part for fold in folds for part in (fold.train, fold.valid)]
    values: list[object] = [
        (part.X.codes, part.X.features, part.rows.target, part.rows.weight, part.rows.offset)
        for part in parts
    ]
    queries = [part.rows.query for part in parts if part.rows.query is not None]
    values = [*values, *queries] if queries else values
    return str(joblib.hash((target.values, target.weight, values)))


def split_rows(
    cv: object, data: TrainingData, target: Target, seed: int, rules: SplitRules
) -> list[Rows]:
    """Return training and validation rows of each fold, as `cv` says.

    `rules`: what folds that are drawn here respect. Splitters get the groups of the data.

    Raises a ValueError if there are too few rows or groups, or a fold has no rows on one side.
    """
    n_rows, classes = target.n_rows, target.get_row_classes()
    if cv is None or isinstance(cv, int | np.integer):
        number = None if cv is None else int(cv)
        if rules.time is not None:
            folds = list(_split_in_time(number, n_rows, rules))
            for train, valid in folds:
                check_parts(train, valid)
        elif data.rows.groups is None and rules.groups is not None:
            # Copies of a row are drawn as one row.
            _, first = np.unique(rules.groups, return_index=True)
            group_classes = None if classes is None else classes[first]
            drawn = _draw_folds(number, len(first), group_classes, None, seed)
            folds = [
                (np.flatnonzero(np.isin(rules.groups, a)), np.flatnonzero(np.isin(rules.groups, b)))
                for a, b in drawn
            ]
        else:
            folds = list(_draw_folds(number, n_rows, classes, rules.groups, seed))
    else:
        folds = list(_read_folds(cv, data, n_rows))
    if classes is not None:  # no model scores classes without training rows
        folds = [(train, valid[np.isin(classes[valid], classes[train])]) for train, valid in folds]
    if not folds or any(len(train) < 2 or not len(valid) for train, valid in folds):
        raise ValueError(
            f"cv leaves a fold of the {n_rows} rows with fewer than two training rows, or without "
            "validation rows of a class that it trains on: use fewer folds."
        )
    if classes is not None:
        _check_class_counts(folds, classes)
    return folds


def _read_folds(cv: object, data: TrainingData, n_rows: int) -> Iterator[Rows]:
    """Yield the folds of a splitter, or of pairs of rows."""
    if hasattr(cv, "split") and not isinstance(cv, str):
        X = np.zeros((n_rows, 1)) if isinstance(data.X, Dataset) else data.X
        groups = data.rows.query if data.rows.groups is None else data.rows.groups
        pairs = list(cv.split(X, data.rows.target, groups))
    elif isinstance(cv, Iterable) and not isinstance(cv, str):
        pairs = list(cv)
    else:
        raise ValueError(
            f"cv must be a number of folds, a splitter or pairs of row indices, got {cv!r}."
        )
    for i, pair in enumerate(pairs):
        if isinstance(pair, str) or not isinstance(pair, Sequence | np.ndarray) or len(pair) != 2:
            raise ValueError(f"cv[{i}] must be a pair: training rows and validation rows.")
        train, valid = (np.sort(_read_indices(rows, n_rows, f"cv[{i}]")) for rows in pair)
        common = np.intersect1d(train, valid)
        if len(common):
            raise ValueError(
                f"cv[{i}] trains on {len(common)} of its validation rows, the first is row "
                f"{common[0]}: scores on training rows are meaningless."
            )
        query = data.rows.query
        if query is not None and len(np.intersect1d(query[train], query[valid])):
            raise ValueError(
                f"cv[{i}] cuts a query: pass a number of folds, or GroupKFold(), whose groups are "
                "the queries."
            )
        yield train, valid


def _find_fold_without_classes(folds: list[Rows], classes: np.ndarray) -> tuple[int, int] | None:
    """Return the first fold that trains on one class, or on two of more, and their number."""
    required = min(3, len(np.unique(classes)))
    counts = (len(np.unique(classes[train])) for train, _ in folds)
    return next(((i, n) for i, n in enumerate(counts) if n < required), None)


def _check_class_counts(folds: list[Rows], classes: np.ndarray) -> None:
    found, n_classes = _find_fold_without_classes(folds, classes), len(np.unique(classes))
    if found is not None:
        raise ValueError(
            f"Fold {found[0] + 1} of {len(folds)} has training rows of {found[1]} of the "
            f"{n_classes} classes only, but needs at least {min(3, n_classes)}. Use a stratified "
            "cv (StratifiedKFold, StratifiedGroupKFold), or fewer folds."
        )


def _split_in_time(cv: int | None, n_rows: int, rules: SplitRules) -> Iterator[Rows]:
    """Yield folds that train on earlier rows: of the last rows, or of the later half."""
    if cv is None and n_rows > LARGE_N_ROWS:
        yield rules.split(n_rows, TEST_SIZE, 0, None)
        return
    n_folds = _check_n_folds(DEFAULT_N_SPLITS if cv is None else cv)
    yield from reversed(list(rules.iter_folds(n_rows, 2 * n_folds, 0))[:n_folds])


def _check_n_folds(n_folds: int) -> int:
    if n_folds < 2:
        raise ValueError(f"cv must be at least 2 folds, got {n_folds}.")
    return n_folds


def _draw_folds(
    cv: int | None, n_rows: int, classes: np.ndarray | None, groups: DataLike | None, seed: int
) -> Iterator[Rows]:
    rows, random_state = np.arange(n_rows), seed % 2**32
    if cv is None and n_rows > LARGE_N_ROWS:
        if groups is None:
            yield split_rows_stratified(n_rows, TEST_SIZE, seed, classes)
        else:
            splitter = GroupShuffleSplit(1, test_size=TEST_SIZE, random_state=random_state)
            yield from splitter.split(rows, None, groups)
        return
    n_folds = _check_n_folds(DEFAULT_N_SPLITS if cv is None else cv)
    if groups is not None:
        options = {"shuffle": True, "random_state": random_state}
        folds = list(GroupKFold(n_folds, **options).split(rows, None, groups))
        # Stratified folds are slower to find, so they are used only where needed.
        if classes is not None and _find_fold_without_classes(folds, classes) is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about classes that are not in all folds
                folds = list(StratifiedGroupKFold(n_folds, **options).split(rows, classes, groups))
        yield from folds
        return
    # Rows of classes that are too rare for every fold are training rows of all folds.
    split = rows
    if classes is not None:
        _, inverse, counts = np.unique(classes, return_inverse=True, return_counts=True)
        split = rows[counts[inverse] >= n_folds]
    n_folds = min(n_folds, len(split)) if cv is None else n_folds
    if n_folds < 2 or len(split) < n_folds:
        short = f"{n_rows} rows are too few" if classes is None else "no class has enough rows"
        raise ValueError(f"cv: {short} for {max(n_folds, 2)} folds.")
    kind = KFold if classes is None else StratifiedKFold
    splitter = kind(n_folds, shuffle=True, random_state=random_state)
    for _, valid in splitter.split(split, None if classes is None else classes[split]):
        yield np.setdiff1d(rows, split[valid]), split[valid]


def _read_indices(given: object, n_rows: int, name: str) -> np.ndarray:
    """Read row indices or a boolean mask."""
    chosen = np.asarray(given)
    chosen = chosen.astype(np.int64) if not chosen.size else chosen
    if chosen.ndim != 1 or chosen.dtype.kind not in "biu":
        raise ValueError(
            f"{name} must hold row indices or a boolean mask, got {describe_type(given)}."
        )
    if chosen.dtype == bool:
        if len(chosen) != n_rows:
            raise ValueError(f"{name} has a mask of {len(chosen)} rows, but X has {n_rows}.")
        return np.flatnonzero(chosen)
    outside = chosen[(chosen < -n_rows) | (chosen >= n_rows)]
    if len(outside):
        raise ValueError(f"{name} has row {outside[0]}, but X has {n_rows} rows.")
    return np.arange(n_rows)[chosen]
