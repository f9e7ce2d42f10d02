"""Rows whose Hessians differ by orders of magnitude: heavy-tailed weights and exposures.

Splits are found on 16-bit integers and leaf values on 31-bit ones, in units of the largest row. Two
measures keep the other rows in sight where the weights or offsets of a training demand it; other
trainings are not affected.

- No row counts more than `MAX_RATIO` times a light row, the one at the quantile `LIGHT_QUANTILE`:
  the gradients and Hessians of heavier rows are multiplied by a factor below 1.
- If the heaviest row counts more than `ROUNDING_RATIO` light ones, quantised gradients are rounded
  up or down at random, by a hash of the row, so that sums over many light rows are unbiased where
  each of them would be rounded to 0.
"""

from __future__ import annotations

import numpy as np

from polyleaf.data.random_rows import ROUNDING, derive_seed, find_kth_smallest, hash_ids
from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator
from polyleaf.training.sampling import TreeSample

__all__ = ["HeavyRows", "limit_weights"]

MAX_RATIO = 2.0**16
ROUNDING_RATIO = 2.0**11
LIGHT_QUANTILE = 0.1

_LARGEST_INTEGER = 32767  # of quantised gradients, as in the core
_LARGEST_SUM = 2**31 - 1


class HeavyRows:
    """Factors of heavy rows, and unbiased rounding.

    Attributes
    ----------
    factor : ndarray of shape (n_rows, 1) or (n_rows, K), float32, or None
        Factor of the derivatives of each row; None: 1.
    """

    def __init__(
        self,
        factor: np.ndarray | None,
        row_ids: np.ndarray | None,
        seed: int,
        communicator: Communicator,
    ) -> None:
        self.factor, self._row_ids, self._seed = factor, row_ids, seed
        self._communicator = communicator

    @staticmethod
    def find(
        size: np.ndarray,
        row_ids: np.ndarray | None,
        seed: int,
        communicator: Communicator = SINGLE_PROCESS,
    ) -> HeavyRows | None:
        """Return the measures for rows of these sizes; None if they are not needed.

        Parameters
        ----------
        size : ndarray of shape (n_rows, 1) or (n_rows, K), float32
            Hessian of each row before training, 0 for rows without weight.
        row_ids : ndarray of shape (n_rows,), int64, or None
            Id of each row among those of all ranks; None: its position.
        seed : int
        communicator : Communicator
        """
        ratio, limit = np.zeros(size.shape[1]), np.full(size.shape[1], np.inf)
        for k in range(size.shape[1]):
            ratio[k], limit[k] = _measure_column(size[:, k], communicator)
        if not (ratio > ROUNDING_RATIO).any():
            return None
        factor = None
        if (ratio > MAX_RATIO).any():
            positive = np.maximum(size, np.finfo(np.float32).tiny)
            factor = np.minimum(limit / positive, 1.0).astype(np.float32)
        return HeavyRows(factor, row_ids, seed, communicator)

    def round(self, values: np.ndarray, sample: TreeSample, output: int, stream: int) -> np.ndarray:
        """Return derivatives (n_rows, m) as multiples of the steps by which the core quantises
        them, each rounded up or down at random."""
        multiplier = None if sample.multiplier is None else sample.multiplier[:, None]
        used = values if multiplier is None else values * multiplier
        used = used.astype(np.float64)
        in_use = used if sample.rows is None else used[sample.rows]
        largest = np.abs(in_use).max(axis=0, initial=0.0)
        self._communicator.largest(largest)
        if not np.isfinite(largest).all():
            return values  # the core raises
        step = np.where(largest > 0, largest / _LARGEST_INTEGER, 1.0)
        n_used = np.array([len(in_use)], np.int64)
        self._communicator.sum(n_used)
        ids = np.arange(len(values)) if self._row_ids is None else self._row_ids
        for k in range(values.shape[1]):
            seed = derive_seed(self._seed, k, stream + 2 * (output + 1))
            draws = hash_ids(ids, seed, sample.round, ROUNDING) * 2.0**-32
            while True:
                integers = _round_at_random(used[:, k] / step[k], draws)
                here = integers if sample.rows is None else integers[sample.rows]
                total = np.array([np.abs(here).sum()], np.float64).astype(np.int64)
                self._communicator.sum(total)
                if total[0] + n_used[0] <= _LARGEST_SUM:
                    break
                step[k] *= 2.0
            used[:, k] = integers * step[k]
        if multiplier is not None:
            used /= np.where(multiplier > 0, multiplier, 1.0)
        return used.astype(np.float32)


def limit_weights(
    weight: np.ndarray | None, communicator: Communicator = SINGLE_PROCESS
) -> np.ndarray | None:
    """Return weights (n_rows,) of which none is more than `ROUNDING_RATIO` light ones, so that no
    gradient of sparse targets has to be rounded at random."""
    if weight is None:
        return None
    _, limit = _measure_column(weight, communicator)
    return np.minimum(weight, np.float32(limit * (ROUNDING_RATIO / MAX_RATIO)))


def _measure_column(size: np.ndarray, communicator: Communicator) -> tuple[float, float]:
    """Return the ratio of the largest size and the light one, and `MAX_RATIO` light ones."""
    positive = np.ascontiguousarray(size[size > 0], np.float32)
    ends = np.array([-np.inf, -np.inf])  # minus the smallest, and the largest
    if len(positive) > 0:
        ends[:] = -float(positive.min()), float(positive.max())
    communicator.largest(ends)
    if ends[1] <= -ends[0] * ROUNDING_RATIO or not np.isfinite(ends).all():
        return 1.0, np.inf
    n = np.array([len(positive)], np.int64)
    communicator.sum(n)
    # Positive floats are ordered as their bits.
    rank = max(1, int(np.ceil(LIGHT_QUANTILE * int(n[0]))))
    light = find_kth_smallest(positive.view(np.uint32), rank, communicator).view(np.float32)
    return float(ends[1] / light), float(MAX_RATIO * light)


def _round_at_random(values: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Round up with the probability of the fraction; integers but for rounding stay."""
    nearest, lower = np.rint(values), np.floor(values)
    drawn = lower + (draws < values - lower)
    return np.where(np.abs(values - nearest) < 2.0**-8, nearest, drawn)
