"""Array helpers of objectives: packed Hessians, checks of users' Hessians, columns, base scores.

A packed Hessian is its lower triangle, row after row: entry (i, j), j <= i, is at
``i (i + 1) / 2 + j``, as in cpp/base/packed.h.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf.runtime.context import Context, get_communicator

if TYPE_CHECKING:
    from polyleaf.objectives.base import BoundObjective

Floats = NDArray[np.float64]

HESSIAN_CHOICES = ("exact", "absolute", "clip", "none")
FIRST_ORDER_HINT = 'Set hessian="none" and leaf_hessian="none" for first-order boosting'

# Below this fraction of the largest entry, a negative one is a rounded 0.
_ROUNDING = 1e-7

MAX_COPIED_COLUMNS = 12  # up to so many columns, copying one after the other is faster
BLOCK_SIZE, MIN_BLOCKED_SIZE = 1024, 4096  # numbers of rows joined to one, of matrices that large

_MAX_STEPS = 200
_MAX_STEP = 2.0  # Newton steps are too long where a loss is almost flat, or exponential
_TOLERANCE = 2.0**-20  # float32 scores are no more precise


# --- packed Hessians ---


def packed_size(n_outputs: int) -> int:
    """Return the number of entries of a packed Hessian."""
    return n_outputs * (n_outputs + 1) // 2


def packed_diagonal(n_outputs: int) -> NDArray[np.intp]:
    """Return the positions ``(K,)`` of the entries ``(i, i)``."""
    i = np.arange(n_outputs)
    return i * (i + 3) // 2


def packed_lower(n_outputs: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows and columns of the entries, in order."""
    return np.tril_indices(n_outputs)


def pack(hessians: np.ndarray) -> np.ndarray:
    """Return the lower triangles (n, K (K + 1) / 2) of Hessians (n, K, K)."""
    return hessians[(slice(None), *packed_lower(hessians.shape[1]))]


def unpack(packed: np.ndarray, n_outputs: int) -> Floats:
    """Return the symmetric matrices (n, K, K) of packed ones."""
    rows, columns = packed_lower(n_outputs)
    hessians = np.empty((len(packed), n_outputs, n_outputs))
    hessians[:, rows, columns] = packed
    hessians[:, columns, rows] = packed
    return hessians


# --- Hessians that a user's function returns ---


def ensure_nonnegative_hessian(
    h: Floats, choice: str, describe: Callable[[int], str], n_outputs: int | None = None
) -> Floats:
    """Return Hessians without negative entries on the diagonal, as Newton steps need them.

    The user chooses what happens to negative ones (`Custom.hessian`): "exact" raises, "absolute"
    takes the absolute value (of eigenvalues of full Hessians: saddle-free Newton, Dauphin et al.,
    2014), "clip" sets them to 0.

    Raises a ValueError with `choice` "exact", if a diagonal entry is negative beyond rounding.

    `h` (n, 1) or (n, K), float64. `choice`: one of `HESSIAN_CHOICES`. `describe`: names a row in an
    error message.
    """
    if n_outputs is not None and n_outputs > 1 and choice in ("absolute", "clip"):
        values, vectors = np.linalg.eigh(unpack(h, n_outputs))
        values = np.abs(values) if choice == "absolute" else np.maximum(values, 0.0)
        return pack((vectors * values[:, None, :]) @ vectors.transpose(0, 2, 1))
    at = slice(None) if n_outputs is None else packed_diagonal(n_outputs)
    diagonal = h[:, at]
    if choice == "absolute":
        diagonal = np.abs(diagonal)
    elif (diagonal < 0).any():
        if choice == "exact":
            check_hessian_not_negative(diagonal, describe)
        diagonal = np.maximum(diagonal, 0.0)
    h = h.copy()
    h[:, at] = diagonal
    return h


def check_hessian_not_zero(is_zero: NDArray[np.bool_]) -> None:
    """Raise ValueError if an output of the mask (K,) has gradients but a Hessian of 0 in every
    row."""
    if is_zero.any():
        raise ValueError(
            "The custom objective has no second derivative: it returned a Hessian of 0 for output "
            f"{int(np.argmax(is_zero))} in all rows although not all gradients are 0, and a Newton "
            f"step would be infinite. {FIRST_ORDER_HINT}, or return an upper bound of the second "
            "derivative, or None, which stands for 1."
        )


def check_hessian_not_negative(diagonal: Floats, describe: Callable[[int], str]) -> None:
    """Raise ValueError if diagonal entries or eigenvalues (n, m) are negative beyond rounding."""
    negative = diagonal < -_ROUNDING * np.abs(diagonal).max(initial=0.0)
    if negative.any():
        row, k = np.argwhere(negative)[0]
        raise ValueError(
            f"The custom objective has a negative Hessian, {diagonal[row, k]:.6g}, at "
            f"{describe(int(row))}: it is not convex there, and a Newton step would increase the "
            'loss. Use Custom(function, hessian="absolute") to take the absolute value, "clip" to '
            'replace it by 0 or "none" for first-order boosting (Custom is in '
            "polyleaf.objectives), or return an upper bound of the second derivative."
        )


# --- columns: NumPy is several times slower on rows of few columns than on long rows ---


def copy_columns(matrix: np.ndarray, columns: slice) -> np.ndarray:
    """Return a contiguous copy of ``matrix[:, columns]``, or the matrix if these are all its
    columns."""
    selected = matrix[:, columns]
    if selected.flags.c_contiguous or selected.shape[1] > MAX_COPIED_COLUMNS:
        return np.ascontiguousarray(selected)
    copied = np.empty(selected.shape, selected.dtype)
    assign_columns(copied, slice(0, selected.shape[1]), selected)
    return copied


def assign_columns(matrix: np.ndarray, columns: slice, values: np.ndarray) -> None:
    """Set ``matrix[:, columns] = values``."""
    if values.shape[1] > MAX_COPIED_COLUMNS:
        matrix[:, columns] = values
        return
    for k in range(values.shape[1]):
        matrix[:, columns.start + k] = values[:, k]


def apply_rowwise(
    operation: np.ufunc, matrix: np.ndarray, row: np.ndarray, out: np.ndarray
) -> None:
    """Compute ``out[...] = operation(matrix, row)`` of contiguous (n, K) matrices and a row
    (K,)."""
    k = matrix.shape[1]
    n_joined = BLOCK_SIZE // k if matrix.size >= MIN_BLOCKED_SIZE else 0
    n = len(matrix) // n_joined * n_joined if n_joined > 1 else 0
    if n > 0:
        shape = (-1, n_joined * k)
        operation(matrix[:n].reshape(shape), np.tile(row, n_joined), out=out[:n].reshape(shape))
    operation(matrix[n:], row, out=out[n:])


# --- derivatives, and base scores on top of offsets ---


def compute_derivatives(
    bound: BoundObjective, raw: NDArray[np.float32], n_threads: int = 1
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Return gradients (n, K), and Hessians of the bound objective's shape; None: they are 1."""
    shape = bound.hessian_shape()
    g, h = np.empty_like(raw), None if shape is None else np.empty(shape, np.float32)
    bound.derivatives(raw, g, h, n_threads)
    return g, h


def minimise_base_score(
    bound: BoundObjective, offset: NDArray[np.float32], n_threads: int | Context = 1
) -> Floats:
    """Return scores ``(K,)`` that, added to `offset`, minimise the loss: Newton's method per
    output.

    A step that increases the loss is halved until it does not, so the search also converges, if
    slowly, where outputs are coupled or the Hessian is not the second derivative. A function that
    returns derivatives, whose loss is unknown, keeps the base score that it has without offsets.

    `bound`: its base score becomes 0. `offset` (n, K), float32. `n_threads`: in distributed
    training a `Context`, for the loss of the rows of all ranks.
    """

    def raise_scores(base: Floats) -> NDArray[np.float32]:
        return offset + base.astype(np.float32)

    bound.set_base_score(np.zeros(bound.n_outputs))
    base = bound.base_score(n_threads)
    if np.isnan(_mean_loss(bound, raise_scores(base), n_threads)):
        return base
    weight = bound.output_weight
    sums, totals = _core.exact_totals(offset, weight, None, 1, n_threads)[:, 0]
    base = base - np.divide(sums, totals, out=np.zeros_like(base), where=totals > 0)
    loss = _mean_loss(bound, raise_scores(base), n_threads)
    for _ in range(_MAX_STEPS):
        step = _newton_step(bound, raise_scores(base), n_threads)
        while True:
            next_loss = _mean_loss(bound, raise_scores(base + step), n_threads)
            if next_loss <= loss + _TOLERANCE * abs(loss) or np.abs(step).max() <= _TOLERANCE:
                break
            step /= 2
        base, loss = base + step, next_loss
        if (np.abs(step) <= _TOLERANCE * np.maximum(1.0, np.abs(base))).all():
            break
    return base


def _mean_loss(bound: BoundObjective, raw: NDArray[np.float32], n_threads: int | Context) -> float:
    """Return the mean loss of the rows of all ranks.

    It is compared only, with a tolerance far above the rounding of its sum.
    """
    if not isinstance(n_threads, Context):
        return bound.loss(raw, n_threads)
    weight = float(bound.n_rows if bound.weight is None else bound.weight.sum(dtype=np.float64))
    part = bound.loss(raw, n_threads.n_threads) * weight, weight
    parts = get_communicator(n_threads).allgather_objects(part)
    total, weight = (math.fsum(column) for column in zip(*parts, strict=True))
    return total / weight if weight > 0 else 0.0


def _newton_step(
    bound: BoundObjective, raw: NDArray[np.float32], n_threads: int | Context
) -> Floats:
    n = n_threads.n_threads if isinstance(n_threads, Context) else n_threads
    g, h = compute_derivatives(bound, raw, n)
    slope, count = _core.exact_totals(g, None, None, 1, n_threads)[:, 0]
    hessian = count if h is None else _core.exact_totals(h, None, None, 1, n_threads)[0, 0]
    step = np.divide(-slope, hessian, out=np.zeros_like(slope), where=hessian > 0)
    return np.clip(step, -_MAX_STEP, _MAX_STEP)
