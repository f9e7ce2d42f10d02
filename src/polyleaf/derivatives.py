"""Gradients and curvature at the raw scores, in the forms that structure and leaves ask for.

Owns the arrays that objectives fill, and which curvature serves what. Must not know trees, or how a score is
computed from its derivatives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import polyleaf._core as _core

from .objectives.packed import packed_diagonal, packed_size

if TYPE_CHECKING:
    from .config import BoostConfig
    from .objectives.base import Problem
    from .sketches import Sketch

__all__ = ["DIAGONAL_UP_TO", "Derivatives", "Structure", "cancel", "structure_curvature"]

# Outputs up to which curvature="auto" judges splits by K curvatures; above, by their mean, which saves K
# channels.
DIAGONAL_UP_TO = 64

# As the core has it for splits: what gains less than this share is not told from rounding.
_LEAST_RELATIVE_GAIN = 2.0**-20

_BINS_AT_A_TIME = 8 * 256  # of one tile of features

Structure = tuple[str, np.ndarray, "np.ndarray | None"]
"""Kind of channels ("unit", "shared", "diagonal", "full"), gradients and curvatures for splits."""


class Derivatives:
    """What an objective says at the raw scores.

    Attributes
    ----------
    g : ndarray of shape (n_rows, K), float32
    h : ndarray of shape (n_rows, 1) or (n_rows, K), float32, or None
        None: 1 throughout, or not asked for.
    full : ndarray of shape (n_rows, K (K + 1) / 2), float32, or None
        Lower triangles of the rows' Hessians, row after row; None where nobody asks for them.
    """

    def __init__(
        self, problem: Problem, config: BoostConfig, weight: np.ndarray | None, sketch: Sketch | None
    ) -> None:
        n, k = problem.n_rows, problem.n_outputs
        self.problem, self.config, self.weight, self.sketch = problem, config, weight, sketch
        self.g = np.empty((n, k), np.float32)
        self.full = None
        if k > 1 and {config.curvature, config.wanted_leaf_curvature} & {"full", "block"}:
            _check_memory(n, k, config)
            self.full = np.empty((n, packed_size(k)), np.float32)
        shape = problem.curvature_shape() if self.full is None else (n, k)
        self.h = None if shape is None else np.empty(shape, np.float32)

    def renew(self, raw: np.ndarray) -> None:
        """Compute all of them at raw scores (n_rows, K), float32."""
        if self.full is None:
            self.problem.derivatives(raw, self.g, self.h, self.config.n_threads)
            return
        self.problem.full_curvature(raw, self.g, self.full, self.config.n_threads)
        np.take(self.full, packed_diagonal(self.g.shape[1]), axis=1, out=self.h)

    def of_output(self, output: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Gradient and curvature of one output (n_rows, 1), or of all where `output` is -1."""
        if output < 0:
            return self.g, self.h
        return column(self.g, output), None if self.h is None else column(self.h, output)

    def cancel(self, output: int) -> bool:
        """Whether one step for all rows would gain next to nothing."""
        g, _ = self.of_output(output)
        return cancel(g.sum(axis=0, dtype=np.float64), g, len(g))

    def structure(self, output: int, round: int, multiplier: np.ndarray | None) -> Structure:
        """What the splits of a tree are judged by."""
        g, h = self.of_output(output)
        if self.sketch is not None:
            used = None if self.config.curvature == "none" else h
            g, h = self.sketch.sketch(g, used, round, self.config.seed, self.config.n_threads)
        curvature = self.config.curvature
        if curvature == "auto" and self.config.looks_ahead and self.config.linear_fit == "full":
            curvature = "shared"  # one Gram matrix for all outputs
        wanted = structure_curvature(curvature, h, g.shape[1])
        if wanted == "full":
            return "full", g, self.full
        if wanted == "none":
            weighted = self.weight is not None and self.weight.ndim == 1
            if not weighted and multiplier is None:
                return "unit", g, None
            ones = self.weight if weighted else np.ones(len(g), np.float32)
            return "shared", g, np.ascontiguousarray(ones, np.float32).reshape(-1, 1)
        assert h is not None
        if wanted == "shared":
            return "shared", g, self._mean_over_outputs(h)
        return "diagonal", g, h if h.shape[1] == g.shape[1] else np.repeat(h, g.shape[1], axis=1)

    def for_leaves(self, output: int) -> tuple[np.ndarray, np.ndarray | None]:
        """What leaf values are fitted on: g, and h of 1, K or K (K + 1) / 2 columns, or None (1 a row)."""
        g, h = self.of_output(output)
        wanted = self.config.wanted_leaf_curvature
        if wanted in ("full", "block") and self.full is not None:
            return g, self.full
        if wanted == "none":
            weighted = self.weight is not None and self.weight.ndim == 1
            return g, self.weight.reshape(-1, 1) if weighted else None  # type: ignore[union-attr]
        if wanted == "shared" and h is not None:
            return g, self._mean_over_outputs(h)
        return g, h

    def _mean_over_outputs(self, h: np.ndarray) -> np.ndarray:
        return h if h.shape[1] == 1 else _core.row_means(h, self.config.n_threads)


def cancel(sums: np.ndarray, g: np.ndarray, n_rows: int) -> bool:
    """Whether gradients `g`, all that are not 0, of these sums (K,) over the rows leave no step to take.

    With a curvature of 1, a step for all rows gains sum^2 / n; steps for each row alone gain the squares.
    """
    # In float64, and not by a library whose sums depend on the number of threads.
    squares = np.einsum("i,i->", g.ravel(), g.ravel(), dtype=np.float64)
    return float(np.sum(sums**2)) <= _LEAST_RELATIVE_GAIN * n_rows * float(squares)


def column(matrix: np.ndarray, k: int) -> np.ndarray:
    """Column k as an array (n, 1) of its own; a single column serves every k."""
    return matrix if matrix.shape[1] == 1 else np.ascontiguousarray(matrix[:, k : k + 1])


def structure_curvature(curvature: str, h: np.ndarray | None, n_outputs: int) -> str:
    """The curvature that splits are judged with: "none", "shared", "diagonal" or "full".

    "auto": none where the objective's curvature is constant; shared where one column serves all outputs, or
    there is only one, or there are more than `DIAGONAL_UP_TO`; diagonal otherwise. Measured: see section 5 of
    docs/design.md. A block is read from the full curvature.
    """
    if curvature == "none" or h is None:
        return "none"
    if n_outputs == 1:
        return "shared"
    if curvature in ("full", "block"):
        return "full"
    if curvature == "auto":
        curvature = "diagonal" if 1 < h.shape[1] <= DIAGONAL_UP_TO else "shared"
    return curvature


def _check_memory(n_rows: int, n_outputs: int, config: BoostConfig) -> None:
    """Refuse Hessians that do not fit the memory that the user has set.

    They are held as float32, and where splits need them as 16-bit channels too, which each thread sums in the
    bins of eight features at a time. Counted for one thread: whether a model can be trained must not depend
    on how many there are.
    """
    entries = packed_size(n_outputs)
    needed = 4 * n_rows * entries
    if config.curvature in ("full", "block"):
        needed += (2 * n_rows + 4 * _BINS_AT_A_TIME) * (entries + n_outputs)
    limit = config.histogram_memory_bytes
    if needed > limit:
        raise ValueError(
            f"Full Hessians of {n_rows} rows and {n_outputs} outputs are {entries} numbers a row and need at "
            f"least {_size(needed)}, more than histogram_memory ({_size(limit)}). Raise "
            'histogram_memory, or use "diagonal" for curvature and leaf_curvature.'
        )


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**29 else f"{n_bytes / 2**20:.1f} MiB"
