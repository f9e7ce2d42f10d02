"""Quantised gradients and Hessians, and their sums (GBDT-MO, Algorithm 1).

There are m Hessian channels: 0 (unit), 1 (shared), K (diagonal) or K (K + 1) / 2 (full: the lower
triangle, row by row).
"""

from dataclasses import dataclass

import numpy as np

F32 = np.float32
MISSING = 255
N_CODES = 256
LARGEST_INTEGER = 32767  # largest quantised derivative: int16 without its lowest value
LARGEST_SUM = 2**31 - 1  # largest sum of channels over any set of rows: histograms are int32
SMALLEST_DERIVATIVE = F32(1e-28)  # columns whose largest magnitude is below count as zero


@dataclass(frozen=True)
class Channels:
    """Quantised derivatives of the rows in use, in the order of `rows`; value = integer * step."""

    kind: str  # "unit", "shared", "diagonal" or "full"
    gradients: np.ndarray  # int64 (n_used, K)
    hessians: np.ndarray  # int64 (n_used, m)
    gradient_steps: np.ndarray  # float32 (K,)
    hessian_steps: np.ndarray  # float32 (m,)

    def dense(self):
        """Return int64 (n_used, K + m): gradient channels, then Hessian channels."""
        return np.hstack([self.gradients, self.hessians])


@dataclass(frozen=True)
class Sums:
    """Channels summed over sets of rows; the leading axis is the set, such as a code or a
    candidate.
    """

    count: np.ndarray  # int64 (C,)
    gradients: np.ndarray  # int64 (C, K)
    hessians: np.ndarray  # int64 (C, m)

    def parts(self):
        return self.count, self.gradients, self.hessians

    def __sub__(self, other):
        return Sums(*(mine - its for mine, its in zip(self.parts(), other.parts(), strict=True)))


def quantise(g, h, kind, rows=None, multiplier=None):
    """Quantise float32 gradients `g` (n, K) and Hessians `h` (n, m) or None to `Channels`.

    m is 1 (shared), K (diagonal) or K (K + 1) / 2 (full: the lower triangle, row after row).

    `rows` (n_used,) are the rows in use (None: all), `multiplier` float32 (n,) their sampling
    multipliers. The unit kind counts a row as 1 for any multiplier.
    """
    gradients, gradient_steps = quantise_columns(select_rows(g, rows, multiplier))
    if kind == "unit":
        h = np.empty((len(g), 0), F32)
    hessians, hessian_steps = quantise_columns(select_rows(h, rows, multiplier))
    return Channels(kind, gradients, hessians, gradient_steps, hessian_steps)


def select_rows(values, rows, multiplier):
    """Return float32 derivatives of the rows in use, times their multipliers."""
    values = np.asarray(values, F32)
    if multiplier is not None:
        values = values * np.asarray(multiplier, F32)[:, None]
    return values if rows is None else values[rows]


def quantise_columns(values):
    """Return int64 of the same shape as `values` (n_used, m), and float32 steps (m,)."""
    columns = [quantise_column(column) for column in values.T]
    integers = np.array([q for q, _ in columns], np.int64).reshape(values.shape[::-1]).T
    return integers, np.array([step for _, step in columns], F32)


def quantise_column(values):
    """Quantise one channel: the largest |value| becomes 32767, or less to fit sums in int32."""
    largest = np.max(np.abs(values))
    if largest < SMALLEST_DERIVATIVE:
        return np.zeros(len(values), np.int64), F32(0)
    inverse, step = F32(LARGEST_INTEGER) / largest, largest / F32(LARGEST_INTEGER)
    integers = np.rint(values * inverse).astype(np.int64)
    total, shift = int(np.abs(integers).sum()), 0
    while (total >> shift) + len(values) > LARGEST_SUM:
        shift += 1
    if shift > 0:
        inverse, step = inverse * F32(2.0**-shift), step * F32(2.0**shift)
        integers = np.rint(values * inverse).astype(np.int64)
    return integers, step


def histogram(codes, channels):
    """Return `Sums` of one feature's rows, one set for each of the 256 codes (GBDT-MO, Algorithm
    1).
    """
    sums = Sums(
        np.bincount(codes, minlength=N_CODES),
        np.zeros((N_CODES, channels.gradients.shape[1]), np.int64),
        np.zeros((N_CODES, channels.hessians.shape[1]), np.int64),
    )
    np.add.at(sums.gradients, codes, channels.gradients)
    np.add.at(sums.hessians, codes, channels.hessians)
    return sums


def take(channels, positions):
    """Return the channels of some of the rows in use."""
    return Channels(
        channels.kind,
        channels.gradients[positions],
        channels.hessians[positions],
        channels.gradient_steps,
        channels.hessian_steps,
    )


def total(channels):
    """Return `Sums` of one set: all rows."""
    return Sums(
        np.array([len(channels.gradients)]),
        channels.gradients.sum(axis=0, keepdims=True),
        channels.hessians.sum(axis=0, keepdims=True),
    )
