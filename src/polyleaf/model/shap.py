"""Contributions: what each feature adds to the raw scores of a row, as Shapley's values (docs/explaining.md).

Owns: which outputs and rows are explained, in chunks whose memory is bounded; the unit of y. Must not know:
models and their files, estimators, other packages, how contributions are computed (the core's `Explainer`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import polyleaf._core as _core
from polyleaf.inputs.features import FeatureTable
from polyleaf.model.batch_predict import bin_features, read_regressors

__all__ = ["OutputSelection", "BinnedRows", "ShapExplainer", "TargetScale", "resolve_outputs"]

# Codes (one byte a value) and raw features (four) that are held at a time.
_CHUNK_BYTES = 1 << 28
# Contributions (four bytes each) that are held at a time where not all of them are asked for at once.
_CHUNK_VALUES = 1 << 24
# Rows that are explained for the outputs of any of them, where every row has outputs of its own.
_ROWS_TOGETHER = 512


class BinnedRows(NamedTuple):
    """Rows that are binned already: what a Dataset holds."""

    codes: np.ndarray
    """uint8 (n_features, n_rows)"""
    features: np.ndarray | None
    """float32 (n_features, n_rows), where leaves are linear."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.codes.shape[1]


class OutputSelection(NamedTuple):
    """Which outputs of a model are explained."""

    numbers: np.ndarray
    """int64: (m,) for all rows the same, or (n_rows, m); -1: none."""
    is_one: bool
    """Whether results have no axis of outputs."""

    def rows(self, rows: slice) -> OutputSelection:
        """Those of some rows."""
        return self if self.numbers.ndim == 1 else OutputSelection(self.numbers[rows], self.is_one)


class TargetScale(NamedTuple):
    """From sums of leaves to the unit of y."""

    base: np.ndarray
    """float64 (n_outputs,), added to the sums."""
    scale: np.ndarray | None
    """float64 (n_outputs,), multiplied with what comes out, where y was scaled."""
    offset: np.ndarray | None
    """float64 (n_outputs,), added to that."""


def resolve_outputs(outputs: Any, n_outputs: int, names: tuple[str, ...] | None) -> OutputSelection:
    """Outputs as they are asked for, as numbers.

    Parameters
    ----------
    outputs : None, int, str, or array-like of these
        Numbers or names of raw scores; None: all. Of two dimensions, numbers only: other outputs for each
        row, -1 where there is none, as `predict_topk` gives them.
    n_outputs : int
        That the model has.
    names : tuple of str or None
        Of these.

    Raises
    ------
    ValueError
        For outputs that the model does not have.
    """
    if outputs is None:
        return OutputSelection(np.arange(n_outputs), n_outputs == 1)
    asked = outputs if isinstance(outputs, np.ndarray) else np.array(outputs, object)
    if asked.size == 0 or asked.ndim > 2:
        raise ValueError(
            "outputs takes the number or the name of an output, a list of these, or a matrix with the "
            f"numbers of each row's outputs, not {outputs!r}."
        )
    found = [_number_of(name, names or ()) for name in asked.ravel().tolist()]
    numbers = np.array(found).reshape(asked.shape)
    least = -1 if asked.ndim == 2 else 0
    wrong = numbers[(numbers < least) | (numbers >= n_outputs)]
    if wrong.size:
        raise ValueError(
            f"outputs has {wrong[0]}, but the model has {n_outputs} outputs, counted from 0."
        )
    return OutputSelection(np.atleast_1d(numbers), numbers.ndim == 0)


def _number_of(name: Any, names: tuple[str, ...]) -> int:
    if isinstance(name, int | np.integer) and not isinstance(name, bool):
        return int(name)
    if name not in names:
        known = f"there are {', '.join(names[:20])}" if names else "its outputs have numbers only"
        raise ValueError(f"outputs: the model has no output {str(name)!r}; {known}.")
    return names.index(name)


class ShapExplainer:
    """Contributions of features to the raw scores of some trees.

    Parameters
    ----------
    forest : _core.Forest
    mapper : BinMapper
        From features to codes.
    unit : TargetScale
    trees : (int, int)
        Trees `trees[0] .. trees[1] - 1` are explained.
    background : FeatureTable or BinnedRows, optional
        Rows that stand for what is usual: what is not known of a row is as in them. None: as the training
        rows were that the nodes have counted.
    n_threads : int

    Raises
    ------
    ValueError
        Where a background has no rows.
    """

    def __init__(
        self,
        forest: _core.Forest,
        mapper: Any,
        unit: TargetScale,
        trees: tuple[int, int],
        background: FeatureTable | BinnedRows | None = None,
        n_threads: int = 1,
    ):
        self._forest, self._mapper, self._unit, self._trees = forest, mapper, unit, trees
        self._n_threads, self._n_features = n_threads, len(mapper.n_bins_)
        if background is None:
            self._core = _core.Explainer(forest, *trees)
            return
        if background.n_rows == 0:
            raise ValueError("The background has no rows; it needs at least one.")
        codes, features = self._read(background, slice(0, background.n_rows))
        self._core = _core.Explainer(forest, *trees, codes, features, n_threads)

    def base_values(self, outputs: OutputSelection) -> np.ndarray:
        """The raw scores of a row of which nothing is known.

        Returns
        -------
        ndarray, float64, in the shape of `outputs.numbers`
            In the unit of y; NaN where a row has no output.
        """
        unit, numbers = self._unit, outputs.numbers
        different = np.unique(numbers[numbers >= 0])
        base = unit.base[different] + self._core.expected_values(different.astype(np.int32))
        if unit.scale is not None and unit.offset is not None:
            base = base * unit.scale[different] + unit.offset[different]
        of_all = np.full(len(unit.base), np.nan)
        of_all[different] = base
        return np.where(numbers >= 0, of_all[numbers], np.nan)

    def values(
        self, rows: FeatureTable | BinnedRows, outputs: OutputSelection, interactions: bool = False
    ) -> np.ndarray:
        """Contributions of all rows at once.

        Returns
        -------
        ndarray of shape (n_rows, n_features, m), float32, or (n_rows, n_features, n_features, m)
            For the m outputs of a row; 0 where it has none.

        Raises
        ------
        MemoryError
            Where they do not fit in memory.
        """
        out = self._zeros(rows.n_rows, outputs.numbers.shape[-1], interactions)
        for part in _parts(
            rows.n_rows, _ROWS_TOGETHER if outputs.numbers.ndim == 2 else rows.n_rows
        ):
            numbers = outputs.rows(part).numbers
            different = np.unique(numbers[numbers >= 0])
            if numbers.ndim == 1 and len(different) == len(numbers):
                self._explain(rows, part, numbers, interactions, out[part])
                continue
            found = self._zeros(part.stop - part.start, len(different), interactions)
            self._explain(rows, part, different, interactions, found)
            place = np.broadcast_to(
                np.searchsorted(different, numbers), (len(found), numbers.shape[-1])
            )
            for column, own in enumerate(np.broadcast_to(numbers, place.shape).T):
                has = np.flatnonzero(own >= 0)
                out[part][has, ..., column] = found[has, ..., place[has, column]]
        return self._by_feature(out, interactions)

    def iter_shap_values(
        self, rows: FeatureTable | BinnedRows, outputs: OutputSelection, interactions: bool = False
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield (rows, contributions) of some rows after the other, so that memory stays bounded."""
        per_row = self._n_features ** (2 if interactions else 1) * outputs.numbers.shape[-1]
        size = max(1, _CHUNK_VALUES // per_row)
        for part in _parts(rows.n_rows, size):
            yield part, self.values(_rows(rows, part), outputs.rows(part), interactions)

    def _by_feature(self, of_columns: np.ndarray, interactions: bool) -> np.ndarray:
        """What several columns made of one feature contribute is the feature's."""
        if self._mapper.derived_columns_ is None:
            return of_columns
        for axis in (1, 2) if interactions else (1,):
            last = np.moveaxis(of_columns, axis, -1)
            of_columns = np.moveaxis(self._mapper.sum_by_feature(last), -1, axis)
        return np.ascontiguousarray(of_columns)

    def _zeros(self, n_rows: int, n_outputs: int, interactions: bool) -> np.ndarray:
        features = (self._n_features,) * (2 if interactions else 1)
        shape = n_rows, *features, n_outputs
        try:
            return np.zeros(shape, np.float32)
        except (MemoryError, ValueError):
            what = "interactions" if interactions else "contributions"
            raise MemoryError(
                f"The {what} of shape {shape} take {np.prod(shape, dtype=float) * 4 / 2**30:.1f} GiB, more "
                "than can be allocated; explain fewer rows at a time, or name the outputs that matter."
            ) from None

    def _explain(
        self,
        rows: FeatureTable | BinnedRows,
        part: slice,
        outputs: np.ndarray,
        interactions: bool,
        out: np.ndarray,
    ) -> None:
        """Add contributions of rows `part` to `out`, which is of these rows."""
        scale = None if self._unit.scale is None else self._unit.scale[outputs]
        numbers = outputs.astype(np.int32)
        bytes_per_row = self._n_features + 4 * len(self._forest.regressors(*self._trees))
        size = max(1, _CHUNK_BYTES // max(1, bytes_per_row))
        for some in _parts(part.stop, size, part.start):
            codes, features = self._read(rows, some)
            self._core.explain(
                codes,
                out[some.start - part.start : some.stop - part.start],
                numbers,
                scale=scale,
                interactions=interactions,
                n_threads=self._n_threads,
                features=features,
            )

    def _read(
        self, rows: FeatureTable | BinnedRows, part: slice
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Codes, and what linear leaves read, of some rows."""
        some = _rows(rows, part)
        if isinstance(some, FeatureTable):
            codes = bin_features(self._forest, self._mapper, some, *self._trees, self._n_threads)
            return codes, read_regressors(self._forest, self._mapper, some, *self._trees)
        if some.features is None and len(self._forest.regressors(*self._trees)):
            raise ValueError(
                "The model has linear leaves, which read the features themselves, but only their bins were "
                "given; explain X instead of a Dataset."
            )
        return some.codes, some.features


def _parts(stop: int, size: int, start: int = 0) -> Iterator[slice]:
    for begin in range(start, stop, max(1, size)):
        yield slice(begin, min(begin + size, stop))


def _rows(rows: FeatureTable | BinnedRows, part: slice) -> FeatureTable | BinnedRows:
    if part == slice(0, rows.n_rows):
        return rows
    if isinstance(rows, FeatureTable):
        return rows.rows(part.start, part.stop)
    features = None if rows.features is None else np.ascontiguousarray(rows.features[:, part])
    return BinnedRows(np.ascontiguousarray(rows.codes[:, part]), features)
