"""What candidates are compared on: pairs of rows to train on and rows to validate.

Owns how rows are dealt, and the data of a fold. Must not know candidates or scores. All folds share one set
of bins: thresholds come from the features of all rows, never from y. Everything that depends on y is learned
by each training from the rows of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
from sklearn.model_selection import (
    GroupKFold,
    GroupShuffleSplit,
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
)
from sklearn.utils import _safe_indexing

from polyleaf.data.dataset import Dataset
from polyleaf.data.holdout import split_rows_stratified
from polyleaf.inputs.objects import is_missing, what
from polyleaf.inputs.targets import Target
from polyleaf.search.fingerprint import digest, identity
from polyleaf.training.prepare import VALIDATION, TrainingData

__all__ = ["Fold", "Folds", "deals_of", "fingerprint", "folds_of", "in_small", "rows_of_folds"]

FEW_FOLDS = 3
MANY_ROWS, HELD_OUT = 20_000, 0.2
REPEATS, REPEATS_UNTIMED = 3, 2  # the folds of fewer rows may be drawn so often
LOOKED_AT, SHARE = (
    2_000,
    0.125,
)  # rows of a first look: so many, or this share of them where that is more

Rows = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Fold:
    """What a candidate is trained on, and what it is then measured on."""

    train: TrainingData
    valid: TrainingData
    growth: float = 1.0  # rows of the last training for each of `train`


class Folds(Sequence[Fold]):
    """Folds, each made when a candidate first comes to it: a short search comes to few.

    Parameters
    ----------
    n : int
    make : callable
        `make(i)`: fold i.
    dealt : int, optional
        How many are dealt at a time; by default all.
    """

    def __init__(self, n: int, make: Callable[[int], Fold], dealt: int | None = None) -> None:
        self._n, self._make = n, cache(make)
        self.dealt = dealt or n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(self._n))]
        if not -self._n <= i < self._n:
            raise IndexError(i)
        return self._make(i % self._n)


def folds_of(
    dataset: Dataset, given: TrainingData, deal: Callable[[int], Sequence[Rows]], n_deals: int = 1
) -> Folds:
    """The folds as data, all in the bins of `dataset`.

    Parameters
    ----------
    dataset : Dataset
    given : TrainingData
    deal : callable
        `deal(i)`: the rows of each fold; of another i as many, dealt anew.
    n_deals : int
    """
    deal = cache(deal)
    dealt = len(deal(0))

    def part(name: str, chosen: np.ndarray) -> TrainingData:
        weight = None if given.weight is None else given.weight[chosen]
        offset = None if given.offset is None else given.offset[chosen]
        return TrainingData(
            name, dataset.rows(chosen), _safe_indexing(given.y, chosen), weight, offset
        )

    def made(i: int) -> Fold:
        train, valid = deal(i // dealt)[i % dealt]
        found = Fold(part("training", train), part(VALIDATION, valid), dataset.n_rows / len(train))
        _ = (
            found.train.X.bins
        )  # made once, before trainings that run beside one another ask for them
        return found

    return Folds(n_deals * dealt, made, dealt)


def fingerprint(target: Target, folds: Folds) -> str:
    """Data and folds in few letters: codes, features that linear leaves read, targets, weights and offsets of
    all parts. What is dealt later comes of the same rows and the same seed."""
    given = [part for fold in folds[: folds.dealt] for part in (fold.train, fold.valid)]
    of_parts = [held for p in given for held in (p.X.codes, p.X.features, p.y, p.weight, p.offset)]
    arrays = chain(*map(_arrays_of, (target.values, target.weight, *of_parts)))
    return digest(repr([identity(np.asarray(array)) for array in arrays]).encode())


def _arrays_of(held: Any) -> tuple[Any, ...]:
    if hasattr(held, "tocsr"):
        rows = held.tocsr()
        return rows.indptr, rows.indices, rows.data
    return () if held is None else (held,)


def in_small(fold: Fold, has_classes: bool, seed: int) -> Fold:
    """The fold with few of its rows on either side; `growth`: its rows to train on for each of these."""
    n_train = len(fold.train.y)
    train = _some_rows(fold.train, has_classes, seed)
    valid = _some_rows(fold.valid, has_classes, seed)
    if has_classes and valid is not fold.valid:
        y = np.asarray(valid.y)
        known = np.flatnonzero(np.isin(y, np.unique(np.asarray(train.y))))
        valid = _taken(valid, known) if len(known) < len(y) else valid
    return Fold(train, valid, n_train / len(train.y))


def _some_rows(given: TrainingData, has_classes: bool, seed: int) -> TrainingData:
    n_rows = len(given.y)
    wanted = max(LOOKED_AT, round(SHARE * n_rows))
    if wanted >= 0.8 * n_rows:
        return given
    classes = np.asarray(given.y) if has_classes else None
    return _taken(given, split_rows_stratified(n_rows, wanted / n_rows, seed, classes)[1])


def _taken(given: TrainingData, rows: np.ndarray) -> TrainingData:
    """Rows of data that are binned."""
    weight = None if given.weight is None else np.asarray(given.weight)[rows]
    offset = None if given.offset is None else np.asarray(given.offset)[rows]
    return given._replace(
        X=given.X.rows(rows), y=_safe_indexing(given.y, rows), weight=weight, offset=offset
    )


def deals_of(n_rows: int, is_timed: bool) -> int:
    """How often folds may be dealt where `cv` is None: again where they are folds. A clock ends what takes
    too long; without one there is less."""
    return (REPEATS if is_timed else REPEATS_UNTIMED) if n_rows <= MANY_ROWS else 1


def rows_of_folds(cv: Any, X: Any, y: Any, target: Target, groups: Any, seed: int) -> list[Rows]:
    """The rows of each fold, as `cv` has it.

    Raises
    ------
    ValueError
        Where there are too few rows or groups, or a fold has no rows on one side.
    """
    n_rows, classes = target.n_rows, target.get_row_classes()
    if groups is not None and any(map(is_missing, groups)):
        raise ValueError(
            "groups has rows without a group: every row needs one, its own if need be."
        )
    if groups is not None and len(groups) != n_rows:
        raise ValueError(f"groups has {len(groups)} entries, but X has {n_rows} rows.")
    if cv is None or isinstance(cv, int | np.integer):
        found = list(_drawn(None if cv is None else int(cv), n_rows, classes, groups, seed))
    else:
        found = list(_said(cv, X, y, n_rows, groups))
    found = [(train, _of_known_classes(train, valid, classes)) for train, valid in found]
    if not found or any(len(train) < 2 or not len(valid) for train, valid in found):
        raise ValueError(
            f"cv leaves a fold of the {n_rows} rows with fewer than two rows to train on, or with none to "
            "validate whose class it trains on: choose fewer folds."
        )
    if classes is not None:
        _refuse_few_classes(found, classes)
    return found


def _said(cv: Any, X: Any, y: Any, n_rows: int, groups: Any) -> Iterator[Rows]:
    """The folds of a splitter, or as they were given."""
    if hasattr(cv, "split") and not isinstance(cv, str):
        of_rows = np.zeros((n_rows, 1)) if isinstance(X, Dataset) else X
        pairs = list(cv.split(of_rows, y, groups))
    elif isinstance(cv, Iterable) and not isinstance(cv, str):
        pairs = list(cv)
    else:
        raise ValueError(f"cv must be a number of folds, a splitter or pairs of rows, got {cv!r}.")
    for i, pair in enumerate(pairs):
        if isinstance(pair, str) or not isinstance(pair, Sequence | np.ndarray) or len(pair) != 2:
            raise ValueError(
                f"cv[{i}] must be a pair of rows, those to train on and those to validate."
            )
        train, valid = (np.sort(_numbers(rows, n_rows, f"cv[{i}]")) for rows in pair)
        common = np.intersect1d(train, valid)
        if len(common):
            raise ValueError(
                f"cv[{i}] trains on {len(common)} of the rows that it validates, row {common[0]} the first: "
                "scores on rows that were learned from are worth nothing."
            )
        yield train, valid


def _poor_fold(folds: list[Rows], classes: np.ndarray) -> tuple[int, int] | None:
    """The first that trains on one class, or on two of more, and on how many: another task than the rest."""
    needed = min(3, len(np.unique(classes)))
    known = (len(np.unique(classes[train])) for train, _ in folds)
    return next(((i, n) for i, n in enumerate(known) if n < needed), None)


def _refuse_few_classes(folds: list[Rows], classes: np.ndarray) -> None:
    poor, n_classes = _poor_fold(folds, classes), len(np.unique(classes))
    if poor is not None:
        raise ValueError(
            f"Fold {poor[0] + 1} of {len(folds)} trains on rows of {poor[1]} of the {n_classes} classes, and "
            f"so is no task like the others: it needs {min(3, n_classes)} at least. Deal rows so that all "
            "folds have them (StratifiedKFold, StratifiedGroupKFold), or take fewer folds."
        )


def _drawn(
    cv: int | None, n_rows: int, classes: np.ndarray | None, groups: Any, seed: int
) -> Iterator[Rows]:
    rows, chance = np.arange(n_rows), seed % 2**32
    if cv is None and n_rows > MANY_ROWS:
        if groups is None:
            yield split_rows_stratified(n_rows, HELD_OUT, seed, classes)
        else:
            yield from GroupShuffleSplit(1, test_size=HELD_OUT, random_state=chance).split(
                rows, None, groups
            )
        return
    n_folds = FEW_FOLDS if cv is None else cv
    if n_folds < 2:
        raise ValueError(f"cv={n_folds} must be at least 2 folds.")
    if groups is not None:
        found = list(
            GroupKFold(n_folds, shuffle=True, random_state=chance).split(rows, None, groups)
        )
        if (
            classes is not None and _poor_fold(found, classes) is not None
        ):  # slower, so only where needed
            by_class = StratifiedGroupKFold(n_folds, shuffle=True, random_state=chance)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of classes that not all folds can have
                found = list(by_class.split(rows, classes, groups))
        yield from found
        return
    # Rows of classes that not every fold can have are trained on by all.
    dealt = rows
    if classes is not None:
        _, inverse, counts = np.unique(classes, return_inverse=True, return_counts=True)
        dealt = rows[counts[inverse] >= n_folds]
    n_folds = min(n_folds, len(dealt)) if cv is None else n_folds
    if n_folds < 2 or len(dealt) < n_folds:
        raise ValueError(
            f"There are too few rows of any class ({n_rows} rows in all) to deal into folds."
        )
    by_class = classes is not None
    splitter = (StratifiedKFold if by_class else KFold)(n_folds, shuffle=True, random_state=chance)
    for _, part in splitter.split(dealt, classes[dealt] if classes is not None else None):
        yield np.setdiff1d(rows, dealt[part]), dealt[part]


def _numbers(given: Any, n_rows: int, name: str) -> np.ndarray:
    """Numbers of rows, or a mask of them."""
    chosen = np.asarray(given)
    chosen = chosen.astype(np.int64) if not chosen.size else chosen
    if chosen.ndim != 1 or chosen.dtype.kind not in "biu":
        raise ValueError(f"{name} must hold numbers of rows or a mask of them, got {what(given)}.")
    if chosen.dtype == bool and len(chosen) != n_rows:
        raise ValueError(f"{name} has a mask of {len(chosen)} rows, but X has {n_rows}.")
    if (
        chosen.dtype != bool
        and chosen.size
        and not -n_rows <= chosen.min() <= chosen.max() < n_rows
    ):
        outside = chosen[(chosen < -n_rows) | (chosen >= n_rows)][0]
        raise ValueError(f"{name} has row {outside}, but X has {n_rows} rows.")
    return np.flatnonzero(chosen) if chosen.dtype == bool else np.arange(n_rows)[chosen]


def _of_known_classes(
    train: np.ndarray, valid: np.ndarray, classes: np.ndarray | None
) -> np.ndarray:
    """Rows to validate without those of classes that are not trained on: no model has a score for them."""
    return valid if classes is None else valid[np.isin(classes[valid], classes[train])]
