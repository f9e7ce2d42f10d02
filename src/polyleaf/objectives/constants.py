"""The best constant on top of scores that differ from row to row, for any loss.

Owns the search. Must not know any particular loss.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyleaf.objectives.base import BoundObjective

__all__ = ["best_constant"]

_MOST_STEPS = 200
_LONGEST_STEP = (
    2.0  # where a loss is all but flat, or as steep as an exponential, Newton's steps are wild
)
_CLOSE = 2.0**-20  # of float32 scores nothing finer is known


def best_constant(
    problem: BoundObjective, offset: NDArray[np.float32], n_threads: int = 1
) -> NDArray[np.float64]:
    """Scores ``(K,)`` that, added to `offset`, minimise the loss: Newton's method, each output for itself.

    Of a function that gives derivatives, whose loss is not known: the base score that it has without offsets.
    A step that makes the loss larger is halved until it does not. So the search also ends well where outputs
    are coupled, or the curvature is not the second derivative, if later.

    Parameters
    ----------
    problem : BoundObjective
        Its base score becomes 0.
    offset : float32 (n, K)
    """
    problem.set_base_score(np.zeros(problem.n_outputs))
    base = problem.base_score(n_threads)
    if np.isnan(problem.loss(_raised(offset, base), n_threads)):
        return base
    base = base - offset.mean(axis=0, dtype=np.float64)
    loss = problem.loss(_raised(offset, base), n_threads)
    for _ in range(_MOST_STEPS):
        step = _step(problem, _raised(offset, base), n_threads)
        while True:
            further = problem.loss(_raised(offset, base + step), n_threads)
            if further <= loss + _CLOSE * abs(loss) or np.abs(step).max() <= _CLOSE:
                break
            step /= 2
        base, loss = base + step, further
        if (np.abs(step) <= _CLOSE * np.maximum(1.0, np.abs(base))).all():
            break
    return base


def _raised(offset: NDArray[np.float32], base: NDArray[np.float64]) -> NDArray[np.float32]:
    return offset + base.astype(np.float32)


def _step(problem: BoundObjective, raw: NDArray[np.float32], n_threads: int) -> NDArray[np.float64]:
    shape = problem.hessian_shape()
    g, h = np.empty_like(raw), None if shape is None else np.empty(shape, np.float32)
    problem.derivatives(raw, g, h, n_threads)
    slope = g.sum(axis=0, dtype=np.float64)
    bend = np.full(len(slope), float(len(g))) if h is None else h.sum(axis=0, dtype=np.float64)
    step = np.divide(-slope, bend, out=np.zeros_like(slope), where=bend > 0)
    return np.clip(step, -_LONGEST_STEP, _LONGEST_STEP)
