"""Sketches: few columns that stand for the derivatives of many outputs while a tree's structure is sought.

Owns the choice of columns and its randomness. Must not know trees, losses, or what becomes of a sketch: leaf
values are always fitted on the derivatives of all outputs. The products themselves are the core's.

Iosipoi and Vakhrushev, "SketchBoost: Fast Gradient Boosted Decision Tree for Multioutput Problems", NeurIPS
2022. The split score depends on the gradients only through squared norms of sums over rows, so columns that
keep those norms find the same splits at the price of d outputs instead of K. Every sketch here is scaled so
that the mean of squares over its d columns is, exactly or in expectation, that over the K outputs (what
`top_outputs` and `truncated_svd` leave out is lost). Gains, and `min_split_gain`, keep their unit.

A sketch is a small frozen object with one method, `sketch(g, h, round, seed, n_threads)`. It depends on
nothing but its arguments, and gives the same bits for any number of threads and on any processor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

import polyleaf._core as _core
from polyleaf.runtime.context import Context

__all__ = [
    "SKETCHES",
    "CountSketch",
    "CustomSketch",
    "RandomProjection",
    "RandomSampling",
    "Sketch",
    "TopOutputs",
    "TruncatedSVD",
    "get_sketch",
]

_STREAM = 3  # of random numbers: row and feature draws of a round have streams of their own

DEFAULT_DIM = 14
"""With one curvature and the count of rows, 14 columns fill the 16 lanes of a histogram."""

AUTO_ABOVE = 32
"""Outputs above which `sketch="auto"` uses a sketch. Measured: docs/sketches.md."""


@runtime_checkable
class Sketch(Protocol):
    """Anything with this method can be passed as `sketch=`."""

    def sketch(
        self, g: np.ndarray, h: np.ndarray | None, round: int, seed: int, n_threads: int | Context
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Few columns for many.

        Parameters
        ----------
        g : ndarray of shape (n_rows, K), float32, C order
            Gradients of this round. Not to be changed.
        h : ndarray of shape (n_rows, K) or (n_rows, 1), float32, or None
            Their curvature; None where it is constant, or not to be used.
        round, seed : int
            Round, counted from the first of the model, and seed of the training.
        n_threads : int or Context
            Threads; the result must not depend on it. `Context` where other ranks have further rows, which no
            sketch of a user's is asked for.

        Returns
        -------
        g_d : ndarray of shape (n_rows, d), float32
        h_d : ndarray of shape (n_rows, 1), float32, or None
            One curvature for all of them; None: 1 for every row.
        """
        ...


@dataclass(frozen=True)
class RandomProjection(Sketch):
    """Sums of all outputs with random signs: keeps every squared distance in expectation.

    Signs instead of Gaussians (Achlioptas, "Database-friendly random projections", 2003) have the same
    expectation and a smaller variance.

    Parameters
    ----------
    dim : int
        Columns.
    """

    dim: int = DEFAULT_DIM

    def sketch(
        self, g: np.ndarray, h: np.ndarray | None, round: int, seed: int, n_threads: int | Context
    ) -> tuple[np.ndarray, np.ndarray | None]:
        scale = g.shape[1] ** -0.5
        return _core.sketch_signs(g, self.dim, _seed(seed, round), scale, n_threads), _one(
            h, n_threads
        )


@dataclass(frozen=True)
class RandomSampling(Sketch):
    """Outputs drawn with replacement, likelier the larger their gradients; unbiased like the projection.

    Parameters
    ----------
    dim : int
        Outputs drawn.
    uniform : float
        Share of the probability that is spread evenly, the rest goes by squared norm; it keeps the weight of
        an output that is rarely drawn from growing without bound.
    """

    dim: int = DEFAULT_DIM
    uniform: float = 0.1

    def sketch(
        self, g: np.ndarray, h: np.ndarray | None, round: int, seed: int, n_threads: int | Context
    ) -> tuple[np.ndarray, np.ndarray | None]:
        n_outputs = g.shape[1]
        energy = _core.column_energy(g, n_threads)
        total = np.cumsum(energy)[-1]  # one after the other: NumPy's sum depends on the processor
        share = energy / total if total > 0 else np.full(n_outputs, 1.0 / n_outputs)
        probability = (1.0 - self.uniform) * share + self.uniform / n_outputs
        edges = np.cumsum(probability)
        bits = np.random.SeedSequence([seed, round, _STREAM]).generate_state(self.dim, np.uint64)
        point = (bits >> np.uint64(11)) * 2.0**-53 * edges[-1]
        columns = np.minimum(np.searchsorted(edges, point, side="right"), n_outputs - 1).astype(
            np.int32
        )
        scale = 1.0 / np.sqrt(n_outputs * probability[columns])
        return _core.sketch_take(g, columns, scale.astype(np.float32), n_threads), _one(
            h, n_threads
        )


@dataclass(frozen=True)
class TopOutputs(Sketch):
    """The outputs of largest squared norm of gradients; the others are not seen at all.

    Parameters
    ----------
    dim : int
        Outputs kept.
    """

    dim: int = DEFAULT_DIM

    def sketch(
        self, g: np.ndarray, h: np.ndarray | None, round: int, seed: int, n_threads: int | Context
    ) -> tuple[np.ndarray, np.ndarray | None]:
        energy = _core.column_energy(g, n_threads)
        columns = np.sort(np.argsort(-energy, kind="stable")[: self.dim]).astype(np.int32)
        scale = np.full(len(columns), (len(columns) / g.shape[1]) ** 0.5, np.float32)
        return _core.sketch_take(g, columns, scale, n_threads), _one(h, n_threads)


@dataclass(frozen=True)
class TruncatedSVD(Sketch):
    """The gradients in the basis of their leading right singular vectors: the best d columns there are.

    By subspace iteration from random signs (Halko, Martinsson and Tropp, "Finding structure with randomness",
    SIAM Review, 2011, algorithm 4.4): exact where the gradients have rank d, near the best elsewhere.

    Parameters
    ----------
    dim : int
        Columns.
    n_iterations : int
        Iterations; each reads the gradients twice.
    """

    dim: int = DEFAULT_DIM
    n_iterations: int = 2

    def sketch(
        self, g: np.ndarray, h: np.ndarray | None, round: int, seed: int, n_threads: int | Context
    ) -> tuple[np.ndarray, np.ndarray | None]:
        dim = min(self.dim, g.shape[1])
        scale = (dim / g.shape[1]) ** 0.5
        found = _core.sketch_subspace(
            g, dim, _seed(seed, round), self.n_iterations, scale, n_threads
        )
        return found, _one(h, n_threads)


@dataclass(frozen=True)
class CountSketch(Sketch):
    """Every output is added to one of d columns with a random sign; unbiased like the projection.

    Charikar, Chen and Farach-Colton, "Finding frequent items in data streams", 2002. Its use is gradients
    that are sparse: `sketch_labels` costs one operation per stored value, whatever the number of outputs. On
    the same gradients both methods give the same bits.

    Parameters
    ----------
    dim : int
        Columns.
    """

    dim: int = DEFAULT_DIM

    def sketch(
        self, g: np.ndarray, h: np.ndarray | None, round: int, seed: int, n_threads: int | Context
    ) -> tuple[np.ndarray, np.ndarray | None]:
        scale = (self.dim / g.shape[1]) ** 0.5
        return _core.sketch_count(g, self.dim, _seed(seed, round), scale, n_threads), _one(
            h, n_threads
        )

    def sketch_labels(
        self, gradients: _core.SparseGradients, round: int, seed: int, n_threads: int
    ) -> np.ndarray:
        """The same for sparse gradients.

        Parameters
        ----------
        gradients : _core.SparseGradients of shape (n_rows, K)
        round, seed, n_threads
            As in `sketch`.

        Returns
        -------
        ndarray of shape (n_rows, dim), float32
            All of the gradients as they are where there are no more than `dim` outputs.
        """
        if gradients.n_outputs <= self.dim:
            return gradients.dense(n_threads)
        scale = (self.dim / gradients.n_outputs) ** 0.5
        return gradients.count_sketch(self.dim, _seed(seed, round), scale, n_threads)


@dataclass(frozen=True)
class CustomSketch(Sketch):
    """A user's function, or a user's object, whose results are checked.

    Parameters
    ----------
    function : callable
        Takes what `Sketch.sketch` takes, and returns what it returns.
    """

    function: Callable[..., Any]

    def sketch(
        self, g: np.ndarray, h: np.ndarray | None, round: int, seed: int, n_threads: int | Context
    ) -> tuple[np.ndarray, np.ndarray | None]:
        found = self.function(g, h, round, seed, n_threads)
        if not isinstance(found, tuple) or len(found) != 2:
            raise ValueError(
                "A sketch must return (gradients, curvature or None); this one returned "
                f"{type(found).__name__}."
            )
        gradients, curvature = found
        return (
            _float32(gradients, len(g), None, "gradients"),
            None if curvature is None else _float32(curvature, len(g), 1, "curvature"),
        )


SKETCHES: dict[str, Callable[..., Any]] = {
    "random_projection": RandomProjection,
    "random_sampling": RandomSampling,
    "top_outputs": TopOutputs,
    "truncated_svd": TruncatedSVD,
    "count_sketch": CountSketch,
}
"""Names that `sketch=` takes, besides "auto"."""


def get_sketch(sketch: Any, dim: int | None, n_outputs: int) -> Sketch | None:
    """The sketch that a parameter means.

    Parameters
    ----------
    sketch : None, "auto", a name of `SKETCHES`, a `Sketch` or a callable
        "auto": none up to `AUTO_ABOVE` outputs, above the one that did best in docs/sketches.md.
    dim : int or None
        Columns, for a name or "auto"; None: `DEFAULT_DIM`.
    n_outputs : int
        Columns of the gradients.

    Returns
    -------
    Sketch or None
        None: no sketch, either because none was wanted or because there are no more outputs than columns; all
        of them are then used as they are.

    Raises
    ------
    ValueError
        For what is none of these, and where `dim` comes with a sketch that has its own.
    """
    if sketch is None:
        return None
    if isinstance(sketch, str):
        if sketch != "auto" and sketch not in SKETCHES:
            raise ValueError(
                f"sketch={sketch!r} is unknown; there are 'auto', {', '.join(map(repr, SKETCHES))}."
            )
        if sketch == "auto" and n_outputs <= AUTO_ABOVE:
            return None
        kind = RandomProjection if sketch == "auto" else SKETCHES[sketch]
        sketch = kind(DEFAULT_DIM if dim is None else dim)
    elif dim is not None:
        raise ValueError(
            "sketch_dim goes with the name of a sketch; an object or a function has its own."
        )
    if isinstance(
        sketch, RandomProjection | RandomSampling | TopOutputs | TruncatedSVD | CountSketch
    ):
        return sketch if sketch.dim < n_outputs else None
    if isinstance(sketch, CustomSketch):
        return sketch
    if isinstance(sketch, Sketch) and not isinstance(sketch, type):
        return CustomSketch(sketch.sketch)
    if callable(sketch):
        return CustomSketch(sketch)
    raise ValueError(
        f"sketch must be None, 'auto', a name, a callable or an object with a method sketch, not {sketch!r}."
    )


def _seed(seed: int, round: int) -> int:
    """64 bits for the core's counter-based generator."""
    return int(np.random.SeedSequence([seed, round, _STREAM]).generate_state(1, np.uint64)[0])


def mean_over_outputs(h: np.ndarray, n_threads: int | Context) -> np.ndarray:
    """One curvature a row: (n_rows, 1)."""
    return h if h.shape[1] == 1 else _core.row_means(h, n_threads)


def _one(h: np.ndarray | None, n_threads: int | Context) -> np.ndarray | None:
    return None if h is None else mean_over_outputs(h, n_threads)


def _float32(values: Any, n_rows: int, n_columns: int | None, what: str) -> np.ndarray:
    array = np.ascontiguousarray(values, dtype=np.float32)
    wanted = "d" if n_columns is None else n_columns
    if (
        array.ndim != 2
        or len(array) != n_rows
        or array.shape[1] < 1
        or n_columns not in (None, array.shape[1])
    ):
        raise ValueError(
            f"The {what} of a sketch must have shape ({n_rows}, {wanted}), not {array.shape}."
        )
    return array
