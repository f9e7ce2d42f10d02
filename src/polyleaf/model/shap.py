"""SHAP values: which outputs and rows are explained, in chunks of bounded memory, and their unit.

The core's `Explainer` computes the values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from sklearn.utils import _safe_indexing

import polyleaf._core as _core
from polyleaf.model.initial import LinearInitialModel
from polyleaf.model.prediction import bin_features, read_regressors
from polyleaf.user_data.feature_table import FeatureTable
from polyleaf.user_data.read_target import check_same_rows
from polyleaf.user_data.validation import get_index

if TYPE_CHECKING:
    from polyleaf.model.model import ModelData

# Bytes of codes (one per value) and raw feature values (four) at a time.
_CHUNK_BYTES = 1 << 28
# SHAP values (four bytes each) at a time in `iter_values`.
_CHUNK_VALUES = 1 << 24
# Rows that are explained at a time for all of their outputs, if each row has its own outputs.
_ROWS_PER_BATCH = 512


class BinnedRows(NamedTuple):
    """Rows that are already binned, as in a Dataset."""

    codes: np.ndarray
    """uint8 (n_features, n_rows)"""
    features: np.ndarray | None
    """float32 (n_features, n_rows), if leaves are linear."""
    source: object = None
    """X as it was passed, for models with an initial model."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.codes.shape[1]


Rows: TypeAlias = FeatureTable | BinnedRows


class OutputSelection(NamedTuple):
    """The outputs to explain."""

    indices: np.ndarray
    """int64: (m,) the same for all rows, or (n_rows, m); -1: none."""
    is_single: bool
    """Whether results have no axis of outputs."""

    def select_rows(self, rows: slice) -> OutputSelection:
        """Return the selection for some rows."""
        if self.indices.ndim == 1:
            return self
        return OutputSelection(self.indices[rows], self.is_single)


def resolve_outputs(
    outputs: object, n_outputs: int, names: tuple[str, ...] | None
) -> OutputSelection:
    """Return the selection of the outputs that a user lists by numbers or names; None: all.

    A matrix of numbers selects other outputs for each row, -1 for none, as `predict_topk` returns
    them. Raises a ValueError for outputs that the model does not have, and a TypeError for entries
    that are neither names nor whole numbers.
    """
    if outputs is None:
        return OutputSelection(np.arange(n_outputs), n_outputs == 1)
    requested = outputs if isinstance(outputs, np.ndarray) else np.array(outputs, object)
    if requested.size == 0 or requested.ndim > 2:
        raise ValueError(
            "outputs must be the number or name of an output, a list of these, or a matrix of the "
            f"numbers of each row's outputs; got {outputs!r}."
        )
    none = -1 if requested.ndim == 2 else None
    indices = [
        -1 if entry == none else get_index(entry, names, n_outputs, "outputs", "output")
        for entry in requested.ravel().tolist()
    ]
    shaped = np.array(indices).reshape(requested.shape)
    return OutputSelection(np.atleast_1d(shaped), shaped.ndim == 0)


class ShapExplainer:
    """Computes SHAP values of the raw scores of some rounds of a model.

    Raises a ValueError if the background has no rows, or the model has no counts and there is no
    background. `first_round`, `last_round`: see `Model.predict_raw`. `background`: reference rows
    (interventional values). None: the training rows, as the counts of the nodes represent them
    (path-dependent values).
    """

    def __init__(
        self,
        model: ModelData,
        first_round: int = 0,
        last_round: int | None = None,
        background: Rows | None = None,
        n_threads: int = 1,
    ):
        self._model, self._n_threads = model, n_threads
        self._trees = model.find_trees(first_round, last_round)
        self._linear, self._means = None, None
        if model.initial is not None:
            self._linear = model.initial.get_linear_part(model.projection)
            if background is not None:
                self._means = self._linear.feature_means(_get_source(background))
        if background is None:
            if not model.has_statistics:
                raise ValueError(
                    "background is required, as the model was saved with statistics=False and does "
                    "not have the row counts of its nodes: pass reference rows."
                )
            self._core = _core.Explainer(model.forest, *self._trees)
            return
        if background.n_rows == 0:
            raise ValueError("background must have at least one row.")
        codes, features = self._read(background, slice(0, background.n_rows))
        self._core = _core.Explainer(model.forest, *self._trees, codes, features, n_threads)

    def base_values(self, outputs: OutputSelection) -> np.ndarray:
        """Return the expected raw scores.

        Returns ndarray, float64, in the shape of `outputs.indices`: in the unit of y; NaN where a
        row has no output.
        """
        model, indices = self._model, outputs.indices
        distinct = np.unique(indices[indices >= 0])
        base = model.base_score[distinct] + self._core.expected_values(distinct.astype(np.int32))
        if model.target_scale is not None and model.target_offset is not None:
            base = base * model.target_scale[distinct] + model.target_offset[distinct]
        if self._linear is not None:
            base = base + self._linear.expected_scores(distinct, self._means)
        by_output = np.full(model.n_outputs, np.nan)
        by_output[distinct] = base
        return np.where(indices >= 0, by_output[indices], np.nan)

    def values(
        self, rows: Rows, outputs: OutputSelection, interactions: bool = False
    ) -> np.ndarray:
        """Return the SHAP values of all rows at once.

        Raises a ValueError if `outputs` has another number of rows, and a MemoryError if the values
        do not fit in memory. Returns shape (n_rows, n_features, m), float32, or (n_rows,
        n_features, n_features, m): for the m outputs of a row; 0 where it has none.
        """
        indices = outputs.indices
        if indices.ndim == 2:
            check_same_rows(rows.n_rows, len(indices), "outputs")
        out = self._zeros(rows.n_rows, indices.shape[-1], interactions)
        batch_size = _ROWS_PER_BATCH if indices.ndim == 2 else rows.n_rows
        for part in _split(rows.n_rows, batch_size):
            indices = outputs.select_rows(part).indices
            distinct = np.unique(indices[indices >= 0])
            if indices.ndim == 1 and len(distinct) == len(indices):
                self._explain(rows, part, indices, interactions, out[part])
                continue
            values = self._zeros(part.stop - part.start, len(distinct), interactions)
            self._explain(rows, part, distinct, interactions, values)
            out[part] = _pick_outputs(values, distinct, indices)
        values = self._sum_by_input(out, interactions)
        if self._linear is not None:
            self._add_linear(self._linear, rows, outputs, interactions, values)
        return values

    def _add_linear(
        self,
        linear: LinearInitialModel,
        rows: Rows,
        outputs: OutputSelection,
        interactions: bool,
        values: np.ndarray,
    ) -> None:
        """Add the contributions of the initial model, which are main effects."""
        features = np.arange(values.shape[1])
        for part in _split(rows.n_rows, _ROWS_PER_BATCH):
            source = _get_source(_select_rows(rows, part))
            indices = outputs.select_rows(part).indices
            distinct = np.unique(indices[indices >= 0])
            contributions = linear.contributions(source, distinct, self._means)
            taken = _pick_outputs(contributions, distinct, indices)
            if interactions:
                values[part, features, features] += taken.astype(np.float32)
            else:
                values[part] += taken.astype(np.float32)

    def iter_values(
        self, rows: Rows, outputs: OutputSelection
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield (rows, values) in chunks of bounded memory."""
        per_row = self._model.n_features * outputs.indices.shape[-1]
        for part in _split(rows.n_rows, max(1, _CHUNK_VALUES // per_row)):
            yield part, self.values(_select_rows(rows, part), outputs.select_rows(part))

    def _sum_by_input(self, values: np.ndarray, interactions: bool) -> np.ndarray:
        """Add up the values of the columns that are derived from one column of X."""
        if self._model.mapper.derived_columns_ is None:
            return values
        for axis in (1, 2) if interactions else (1,):
            last = np.moveaxis(values, axis, -1)
            values = np.moveaxis(self._model.mapper.sum_by_feature(last), -1, axis)
        return np.ascontiguousarray(values)

    def _zeros(self, n_rows: int, n_outputs: int, interactions: bool) -> np.ndarray:
        features = (self._model.n_features,) * (2 if interactions else 1)
        shape = n_rows, *features, n_outputs
        try:
            return np.zeros(shape, np.float32)
        except (MemoryError, ValueError):
            name = "interaction values" if interactions else "values"
            size = np.prod(shape, dtype=float) * 4 / 2**30
            raise MemoryError(
                f"SHAP {name} of shape {shape} require {size:.1f} GiB, more than can be allocated; "
                "explain fewer rows at a time, or select outputs."
            ) from None

    def _explain(
        self, rows: Rows, part: slice, outputs: np.ndarray, interactions: bool, out: np.ndarray
    ) -> None:
        """Add the values of the rows `part` to `out`, which has these rows only."""
        scale = self._model.target_scale
        scale = None if scale is None else scale[outputs]
        indices = outputs.astype(np.int32)
        bytes_per_row = self._model.n_features + 4 * len(
            self._model.forest.regressors(*self._trees)
        )
        size = max(1, _CHUNK_BYTES // max(1, bytes_per_row))
        for chunk in _split(part.stop, size, part.start):
            codes, features = self._read(rows, chunk)
            self._core.explain(
                codes,
                out[chunk.start - part.start : chunk.stop - part.start],
                indices,
                scale=scale,
                interactions=interactions,
                n_threads=self._n_threads,
                features=features,
            )

    def _read(self, rows: Rows, part: slice) -> tuple[np.ndarray, np.ndarray | None]:
        """Return codes and the raw values that linear leaves require."""
        selected = _select_rows(rows, part)
        if isinstance(selected, FeatureTable):
            codes = bin_features(self._model, selected, self._trees, self._n_threads)
            return codes, read_regressors(self._model, selected, self._trees)
        if selected.features is None and len(self._model.forest.regressors(*self._trees)):
            raise ValueError(
                "X is a Dataset without raw feature values, but the model has linear leaves: "
                "explain X instead of a Dataset."
            )
        return selected.codes, selected.features


def _pick_outputs(values: np.ndarray, distinct: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return the values (n_rows, ..., m) of the outputs `indices`, and 0 for -1.

    `values` (n_rows, ..., d) has the outputs `distinct`, ascending.
    """
    places = np.searchsorted(distinct, indices)
    if indices.ndim == 1:
        return values[..., places]
    if not len(distinct):
        return np.zeros((*values.shape[:-1], indices.shape[1]), values.dtype)
    axes = tuple(range(1, values.ndim - 1))
    picked = np.take_along_axis(values, np.expand_dims(places, axes), axis=-1)
    picked *= np.expand_dims(indices >= 0, axes)
    return picked


def _split(stop: int, size: int, start: int = 0) -> Iterator[slice]:
    for begin in range(start, stop, max(1, size)):
        yield slice(begin, min(begin + size, stop))


def _get_source(rows: Rows) -> Any:
    """Return X as it was passed."""
    if rows.source is not None:
        return rows.source
    raise ValueError("SHAP values of a model with init need the raw X: do not pass a Dataset.")


def _select_rows(rows: Rows, part: slice) -> Rows:
    if part == slice(0, rows.n_rows):
        return rows
    if isinstance(rows, FeatureTable):
        return rows.rows(part.start, part.stop)
    features = None if rows.features is None else np.ascontiguousarray(rows.features[:, part])
    source = None if rows.source is None else _safe_indexing(rows.source, part)
    return BinnedRows(np.ascontiguousarray(rows.codes[:, part]), features, source)
