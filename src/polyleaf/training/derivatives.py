"""Gradients and curvature at the raw scores, in the forms that structure and leaves ask for.

Owns the arrays that objectives fill, and which curvature serves what. Must not know trees, or how a score is
computed from its derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

import polyleaf._core as _core
from polyleaf.objectives.base import BoundObjective
from polyleaf.objectives.columns import apply_rowwise
from polyleaf.objectives.curvature import check_hessian_not_zero
from polyleaf.objectives.packed_symmetric import packed_diagonal, packed_size
from polyleaf.runtime.context import Context
from polyleaf.settings.train_config import COUPLED, HessianConfig
from polyleaf.sketching.sketches import mean_over_outputs

__all__ = ["Derivatives", "cancel", "column", "curvature_columns"]

# As the core has it for splits: what gains less than this share is not told from rounding.
_LEAST_RELATIVE_GAIN = 2.0**-20

_BINS_AT_A_TIME = 8 * 256  # of one tile of features


class Derivatives:
    """What an objective says at the raw scores.

    Attributes
    ----------
    g : ndarray of shape (n_rows, K), float32
    h : ndarray of shape (n_rows, 1) or (n_rows, K), float32, or None
        None: 1 throughout, or not asked for.
    full : ndarray of shape (n_rows, K (K + 1) / 2), float32, or None
        Lower triangles of the rows' Hessians, row after row; None where nobody asks for them.
    row_weight : ndarray of shape (n_rows,), float32, or None
        Weights of whole rows, where there are such.
    unit : ndarray of shape (K,), float64, or None
        What gradients are multiplied by where splits are judged; None: nothing.
    """

    def __init__(
        self,
        problem: BoundObjective,
        curvature: HessianConfig,
        weight: np.ndarray | None,
        memory: int,
        workers: Context,
        new: Callable[..., np.ndarray] = np.zeros,
    ) -> None:
        n, k = problem.n_rows, problem.n_outputs
        self.row_weight = weight if weight is not None and weight.ndim == 1 else None
        self._problem, self._wanted, self._workers = problem, curvature.leaf_hessian, workers
        of_h, of_full = curvature_columns(problem, curvature)
        if of_full > 0:
            _check_memory(n, k, curvature, memory)
        self.g = new((n, k), np.float32)
        self.full = new((n, of_full), np.float32) if of_full > 0 else None
        self.h = None if of_h is None else new((n, of_h), np.float32)
        self.unit: np.ndarray | None = None

    def renew(self, raw: np.ndarray) -> None:
        """Compute all of them at raw scores (n_rows, K), float32."""
        n_threads = self._workers.n_threads
        if self.full is None:
            self._problem.derivatives(raw, self.g, self.h, n_threads)
        else:
            self._problem.full_hessian(raw, self.g, self.full, n_threads)
            np.take(self.full, packed_diagonal(self.g.shape[1]), axis=1, out=self.h, mode="clip")
        self._check_curvature()
        self.unit = self._problem.gain_scale(self.g, self.h, n_threads)

    def _check_curvature(self) -> None:
        """Refuse an output without any in the rows of all ranks; those of one may have none."""
        zero_hessian_mask = self._problem.zero_hessian_mask
        if self.h is None or not zero_hessian_mask.any():
            return
        found = np.zeros((2, self.g.shape[1]), np.int64)
        found[0], found[1] = (
            self.g.any(axis=0),
            self.h.any(axis=0),
        )  # one curvature serves all outputs
        self._workers.communicator.largest(found)
        check_hessian_not_zero(zero_hessian_mask & (found[0] > found[1]))

    def of_output(self, output: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Gradient and curvature of one output (n_rows, 1), or of all where `output` is -1."""
        if output < 0:
            return self.g, self.h
        return column(self.g, output), None if self.h is None else column(self.h, output)

    def in_unit(self, output: int, per_curvature: bool = False) -> np.ndarray:
        """Gradients as `of_output` gives them, in the unit in which gains of all outputs add up.

        Parameters
        ----------
        output : int
        per_curvature : bool
            For gains that see one curvature for all outputs: those of an output are to be what they would be
            with its own, on average.
        """
        g, _ = self.of_output(output)
        if self.unit is None or output >= 0:
            return g
        unit = self.unit
        if per_curvature and self.h is not None and self.h.shape[1] > 1:
            bend = _core.exact_totals(self.h, None, None, 1, self._workers)[0, 0]
            unit = unit * np.sqrt(bend.mean() / np.maximum(bend, np.finfo(np.float32).tiny))
        found = np.empty_like(g)
        apply_rowwise(np.multiply, g, unit.astype(np.float32), found)
        return found

    def cancel(self, output: int) -> bool:
        """Whether one step for all rows would gain next to nothing."""
        g = self.in_unit(output)
        squares, sums = _core.exact_totals(g, g, None, 1, self._workers)[:, 0]
        return cancel(sums, squares, self._workers.sum_over_ranks(len(g)))

    def for_leaves(self, output: int) -> tuple[np.ndarray, np.ndarray | None]:
        """What leaf values are fitted on: g, and h of 1, K or K (K + 1) / 2 columns, or None (1 a row)."""
        g, h = self.of_output(output)
        if self._wanted in COUPLED and self.full is not None:
            return g, self.full
        if self._wanted == "none":
            return g, None if self.row_weight is None else self.row_weight.reshape(-1, 1)
        if self._wanted == "shared" and h is not None:
            return g, mean_over_outputs(h, self._workers.n_threads)
        return g, h


def curvature_columns(problem: BoundObjective, curvature: HessianConfig) -> tuple[int | None, int]:
    """Columns of `Derivatives.h`, None where there is none, and of `full`, 0 where nobody asks for it."""
    k = problem.n_outputs
    if k > 1 and curvature.is_coupled:
        return k, packed_size(k)
    shape = problem.hessian_shape()
    return None if shape is None else shape[1], 0


def cancel(sums: np.ndarray, squares: np.ndarray, n_rows: int) -> bool:
    """Whether gradients leave no step to take, given the sums of them and of their squares over the rows.

    With a curvature of 1, a step for all rows gains sum^2 / n; steps for each row alone gain the squares.
    """
    return math.fsum(sums**2) <= _LEAST_RELATIVE_GAIN * n_rows * math.fsum(squares)


def column(matrix: np.ndarray, k: int) -> np.ndarray:
    """Column k as an array (n, 1) of its own; a single column serves every k."""
    return matrix if matrix.shape[1] == 1 else np.ascontiguousarray(matrix[:, k : k + 1])


def _check_memory(n_rows: int, n_outputs: int, curvature: HessianConfig, limit: int) -> None:
    """Refuse Hessians that do not fit the memory that the user has set.

    They are held as float32, and where splits need them as 16-bit channels too, which each thread sums in the
    bins of eight features at a time. Counted for one thread: whether a model can be trained must not depend
    on how many there are.
    """
    entries = packed_size(n_outputs)
    needed = 4 * n_rows * entries
    if curvature.hessian in COUPLED:
        needed += (2 * n_rows + 4 * _BINS_AT_A_TIME) * (entries + n_outputs)
    if needed > limit:
        raise ValueError(
            f"Full Hessians of {n_rows} rows and {n_outputs} outputs are {entries} numbers a row and need at "
            f"least {_size(needed)}, more than histogram_memory ({_size(limit)}). Raise "
            'histogram_memory, or use "diagonal" for hessian and leaf_hessian.'
        )


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**29 else f"{n_bytes / 2**20:.1f} MiB"
