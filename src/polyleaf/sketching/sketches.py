"""Gradient sketches: few columns that stand for the gradients of many outputs in the split search.

Leaf values are always fitted to the gradients of all outputs. The core computes the products.

Iosipoi and Vakhrushev, "SketchBoost: Fast Gradient Boosted Decision Tree for Multioutput Problems",
NeurIPS 2022. The split gain depends on the gradients only through squared norms of sums over rows,
so columns that preserve those norms find the same splits at the cost of d outputs instead of K.
Every sketch is scaled so that the mean of squares over its d columns equals, exactly or in
expectation, that over the K outputs (what `top_outputs` and `truncated_svd` leave out is lost).
Gains and `min_split_gain` keep their unit.

A sketch is an immutable object with one method, `sketch(g, h, round, seed, n_threads)`. The result
depends on the arguments only, with the same bits for any number of threads and any CPU.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

import polyleaf._core as _core
from polyleaf.runtime.checks import require_choice
from polyleaf.runtime.context import Context
from polyleaf.runtime.row_data import protect
from polyleaf.runtime.types import DataLike

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


def __dir__() -> list[str]:
    return __all__


_STREAM = 3  # stream of random numbers, different from those of rows and features

DEFAULT_DIM = 14
"""With one Hessian and the row count, 14 columns fill the 16 lanes of a histogram."""

AUTO_ABOVE = 32
"""Number of outputs above which `sketch="auto"` uses a sketch, chosen by benchmarks."""


@runtime_checkable
class Sketch(Protocol):
    """The protocol of objects that `sketch=` accepts."""

    def sketch(
        self, g: np.ndarray, h: np.ndarray | None, round: int, seed: int, n_threads: int | Context
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return few columns for the gradients of many outputs.

        Parameters
        ----------
        g : ndarray of shape (n_rows, K), float32, C order
            Gradients of this round. They must not be changed.
        h : ndarray of shape (n_rows, K) or (n_rows, 1), float32, or None
            Hessians; None if they are constant, or not used.
        round : int
            Round, counted from the first of the model.
        seed : int
            Seed of the training.
        n_threads : int or Context
            Threads; the result must not depend on it. A `Context` if other ranks hold further
            rows, which happens for built-in sketches only.

        Returns
        -------
        g_d : ndarray of shape (n_rows, d), float32
            Columns for the gradients.
        h_d : ndarray of shape (n_rows, 1), float32, or None
            One Hessian per row; None: 1 for every row.
        """
        ...


@dataclass(frozen=True)
class _BuiltInSketch(Sketch):
    """A sketch of the library: columns of the gradients, and the means of the Hessians."""

    dim: int = DEFAULT_DIM
    is_distributed: ClassVar[bool] = True  # whether other ranks may hold further rows

    @abstractmethod
    def _columns(
        self, g: np.ndarray, round: int, seed: int, n_threads: int | Context
    ) -> np.ndarray:
        """Return the columns for the gradients; the parameters are those of `sketch`."""

    def sketch(
        self, g: np.ndarray, h: np.ndarray | None, round: int, seed: int, n_threads: int | Context
    ) -> tuple[np.ndarray, np.ndarray | None]:
        columns = self._columns(g, round, seed, n_threads)
        return columns, None if h is None else mean_over_outputs(h, n_threads)


@dataclass(frozen=True)
class RandomProjection(_BuiltInSketch):
    """Sums of all outputs with random signs; preserves squared distances in expectation.

    Signs instead of Gaussians (Achlioptas, "Database-friendly random projections", 2003) have the
    same expectation and a smaller variance.

    Parameters
    ----------
    dim : int
        Number of columns.
    """

    def _columns(
        self, g: np.ndarray, round: int, seed: int, n_threads: int | Context
    ) -> np.ndarray:
        scale = g.shape[1] ** -0.5
        return _core.sketch_signs(g, self.dim, _seed(seed, round), scale, n_threads)

    def sketch_on_device(
        self, g: _core.DeviceMatrix, h: _core.DeviceMatrix | None, round: int, seed: int
    ) -> tuple[_core.DeviceMatrix, _core.DeviceMatrix | None]:
        """Return the columns of `sketch`, computed on a GPU.

        Parameters
        ----------
        g : _core.DeviceMatrix of shape (n_rows, K)
        h : _core.DeviceMatrix of shape (n_rows, K) or (n_rows, 1), or None
        round, seed : int
            As in `sketch`.
        """
        columns = g.sketch_signs(self.dim, _seed(seed, round), g.shape[1] ** -0.5)
        return columns, None if h is None else mean_on_device(h)


@dataclass(frozen=True)
class RandomSampling(_BuiltInSketch):
    """Outputs drawn with replacement by the squared norm of their gradients; unbiased.

    Parameters
    ----------
    dim : int
        Number of outputs drawn.
    uniform : float
        Fraction of the probability that is uniform; it bounds the weight of outputs that are
        rarely drawn.
    """

    uniform: float = 0.1

    def _columns(
        self, g: np.ndarray, round: int, seed: int, n_threads: int | Context
    ) -> np.ndarray:
        n_outputs = g.shape[1]
        energy = _core.column_energy(g, n_threads)
        total = np.cumsum(energy)[-1]  # sequential: the order of NumPy's sum depends on the CPU
        share = energy / total if total > 0 else np.full(n_outputs, 1.0 / n_outputs)
        probability = (1.0 - self.uniform) * share + self.uniform / n_outputs
        edges = np.cumsum(probability)
        bits = np.random.SeedSequence([seed, round, _STREAM]).generate_state(self.dim, np.uint64)
        point = (bits >> np.uint64(11)) * 2.0**-53 * edges[-1]
        columns = np.minimum(np.searchsorted(edges, point, side="right"), n_outputs - 1).astype(
            np.int32
        )
        scale = 1.0 / np.sqrt(n_outputs * probability[columns])
        return _core.sketch_take(g, columns, scale.astype(np.float32), n_threads)


@dataclass(frozen=True)
class TopOutputs(_BuiltInSketch):
    """The outputs with the largest squared norm of gradients; the others are ignored.

    Parameters
    ----------
    dim : int
        Number of outputs kept.
    """

    def _columns(
        self, g: np.ndarray, round: int, seed: int, n_threads: int | Context
    ) -> np.ndarray:
        energy = _core.column_energy(g, n_threads)
        columns = np.sort(np.argsort(-energy, kind="stable")[: self.dim]).astype(np.int32)
        scale = np.full(len(columns), (len(columns) / g.shape[1]) ** 0.5, np.float32)
        return _core.sketch_take(g, columns, scale, n_threads)


@dataclass(frozen=True)
class TruncatedSVD(_BuiltInSketch):
    """The gradients in the basis of their leading right singular vectors: the best d columns.

    Computed by subspace iteration from random signs (Halko, Martinsson and Tropp, "Finding
    structure with randomness", SIAM Review, 2011, algorithm 4.4): exact for gradients of rank d,
    nearly optimal for others.

    Parameters
    ----------
    dim : int
        Number of columns.
    n_iterations : int
        Number of iterations; each reads the gradients twice.
    """

    n_iterations: int = 2

    def _columns(
        self, g: np.ndarray, round: int, seed: int, n_threads: int | Context
    ) -> np.ndarray:
        dim = min(self.dim, g.shape[1])
        scale = (dim / g.shape[1]) ** 0.5
        return _core.sketch_subspace(
            g, dim, _seed(seed, round), self.n_iterations, scale, n_threads
        )


@dataclass(frozen=True)
class CountSketch(_BuiltInSketch):
    """Each output added to one of d columns with a random sign; unbiased.

    Charikar, Chen and Farach-Colton, "Finding frequent items in data streams", 2002. For sparse
    gradients `sketch_labels` costs one operation per stored value, whatever the number of outputs.
    On the same gradients both methods give the same bits.

    Parameters
    ----------
    dim : int
        Number of columns.
    """

    def _columns(
        self, g: np.ndarray, round: int, seed: int, n_threads: int | Context
    ) -> np.ndarray:
        scale = (self.dim / g.shape[1]) ** 0.5
        return _core.sketch_count(g, self.dim, _seed(seed, round), scale, n_threads)

    def sketch_labels(
        self, gradients: _core.SparseGradients, round: int, seed: int, n_threads: int
    ) -> np.ndarray:
        """Return the sketch of sparse gradients.

        Parameters
        ----------
        gradients : _core.SparseGradients of shape (n_rows, K)
            Sparse gradients.
        round, seed, n_threads
            See `sketch`.

        Returns
        -------
        ndarray of shape (n_rows, dim), float32
            The dense gradients themselves if there are at most `dim` outputs.
        """
        if gradients.n_outputs <= self.dim:
            return gradients.dense(n_threads)
        scale = (self.dim / gradients.n_outputs) ** 0.5
        return gradients.count_sketch(self.dim, _seed(seed, round), scale, n_threads)


@dataclass(frozen=True)
class CustomSketch(Sketch):
    """A sketch of the user, whose results are checked.

    Parameters
    ----------
    function : callable
        A function with the parameters and results of `Sketch.sketch`.
    """

    function: Callable[..., object]

    def sketch(
        self, g: np.ndarray, h: np.ndarray | None, round: int, seed: int, n_threads: int | Context
    ) -> tuple[np.ndarray, np.ndarray | None]:
        result = self.function(protect(g), protect(h), round, seed, n_threads)
        if not isinstance(result, tuple) or len(result) != 2:
            raise ValueError(
                "A sketch must return (gradients, hessian or None); this one returned "
                f"{type(result).__name__}."
            )
        gradients, hessian = result
        return (
            _float32(gradients, len(g), None, "gradients"),
            None if hessian is None else _float32(hessian, len(g), 1, "hessian"),
        )


SKETCHES: dict[str, Callable[..., object]] = {
    "random_projection": RandomProjection,
    "random_sampling": RandomSampling,
    "top_outputs": TopOutputs,
    "truncated_svd": TruncatedSVD,
    "count_sketch": CountSketch,
}
"""Sketches by the name that `sketch=` accepts, besides "auto"."""


def get_sketch(sketch: object, dim: int | None, n_outputs: int) -> Sketch | None:
    """Return the sketch for the parameters `sketch` and `sketch_dim`.

    Parameters
    ----------
    sketch : None, "auto", a name of `SKETCHES`, a `Sketch` or a callable
        "auto": no sketch up to `AUTO_ABOVE` outputs, otherwise a random projection.
    dim : int or None
        Number of columns, for a name or "auto"; None: `DEFAULT_DIM`.
    n_outputs : int
        Columns of the gradients.

    Returns
    -------
    Sketch or None
        None if no sketch was requested, or there are no more outputs than columns.

    Raises
    ------
    ValueError
        For an invalid sketch, and for `dim` with a sketch object, which has its own.
    """
    if sketch is None:
        return None
    if isinstance(sketch, str):
        require_choice(sketch, ("auto", *SKETCHES), "sketch")
        if sketch == "auto" and n_outputs <= AUTO_ABOVE:
            return None
        kind = RandomProjection if sketch == "auto" else SKETCHES[sketch]
        sketch = kind(DEFAULT_DIM if dim is None else dim)
    elif dim is not None:
        raise ValueError(
            "sketch_dim needs the name of a sketch; an object or a function has its own dimension."
        )
    if isinstance(sketch, _BuiltInSketch):
        return sketch if sketch.dim < n_outputs else None
    if isinstance(sketch, CustomSketch):
        return sketch
    if isinstance(sketch, Sketch) and not isinstance(sketch, type):
        return CustomSketch(sketch.sketch)
    if callable(sketch):
        return CustomSketch(sketch)
    raise ValueError(
        f"sketch must be None, 'auto', a name, a callable or an object with a method sketch, not "
        f"{sketch!r}."
    )


def _seed(seed: int, round: int) -> int:
    """Return a 64-bit seed for the generator of the core."""
    return int(np.random.SeedSequence([seed, round, _STREAM]).generate_state(1, np.uint64)[0])


def mean_over_outputs(h: np.ndarray, n_threads: int | Context) -> np.ndarray:
    """Return one Hessian per row, (n_rows, 1)."""
    return h if h.shape[1] == 1 else _core.row_means(h, n_threads)


def mean_on_device(h: _core.DeviceMatrix) -> _core.DeviceMatrix:
    """Return what `mean_over_outputs` returns, computed on a GPU."""
    return h if h.shape[1] == 1 else h.row_means()


def _float32(values: DataLike, n_rows: int, n_columns: int | None, what: str) -> np.ndarray:
    array = np.ascontiguousarray(values, dtype=np.float32)
    is_matrix = array.ndim == 2 and len(array) == n_rows and array.shape[1] > 0
    if not is_matrix or n_columns not in (None, array.shape[1]):
        expected = "d" if n_columns is None else n_columns
        raise ValueError(
            f"The {what} of a sketch must have shape ({n_rows}, {expected}), not {array.shape}."
        )
    return array
