"""Which rows and which features a tree sees: uniform row sampling, GOSS, features per tree.

Owns what is drawn from and how many are taken. Must not know how chance chooses (`inputs.draws`), or what an
objective, a tree or an estimator is: it sees gradients, a seed and a round.
"""

from __future__ import annotations

import math
from numbers import Integral
from typing import NamedTuple

import numpy as np

from polyleaf.communicator import Communicator
from polyleaf.inputs.draws import FEATURES, ROWS, draw, draw_of
from polyleaf.settings.settings import Sampling

__all__ = ["Draw", "Numbered", "Sampler", "numbers_of_rows", "sample_features", "sample_rows"]

_BLOCK = 1 << 15  # rows squared at a time: keeps the temporary array in cache


class Draw(NamedTuple):
    """What chance gave one round: the rows and features its trees see; None: all.

    Attributes
    ----------
    round : int
    rows, multiplier
        As `sample_rows` gives them.
    features
        As `sample_features` gives them.
    is_chance : bool
        Whether trees of another round may see others.
    """

    round: int
    rows: np.ndarray | None
    multiplier: np.ndarray | None
    features: np.ndarray | None
    is_chance: bool

    @property
    def sample(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Rows and multiplier: what the core is told."""
        return self.rows, self.multiplier


class Numbered(NamedTuple):
    """Which rows a rank has, of those that all ranks have between them.

    Attributes
    ----------
    numbers : ndarray of shape (n_usable,), int64
        Of this rank's rows that have any weight, in order: how many such rows come before each, wherever
        they are.
    n : int
        Rows that have any weight, of all ranks.
    communicator : Communicator
    """

    numbers: np.ndarray
    n: int
    communicator: Communicator

    def draw(self, count: int, seed: int, round: int, stream: int) -> np.ndarray:
        """Mask of this rank's rows among `count` that are drawn of all."""
        if count >= self.n:
            return np.ones(len(self.numbers), bool)
        return draw_of(self.numbers, count, seed, round, stream, self.communicator)


class Sampler:
    """Draws, round after round.

    Parameters
    ----------
    settings : Sampling
    telling : ndarray of shape (n_features,), bool
        The features to draw from.
    weight : ndarray of shape (n_rows,) or (n_rows, K), or None
        A row of weight 0 is as good as absent.
    nodes_draw : bool
        Whether each node draws from the features of its tree.
    numbered : Numbered, optional
        Where other ranks have further rows: what these are.
    """

    def __init__(
        self,
        settings: Sampling,
        telling: np.ndarray,
        weight: np.ndarray | None,
        nodes_draw: bool,
        numbered: Numbered | None = None,
    ) -> None:
        self._settings, self._nodes_draw = settings, nodes_draw
        self._telling = telling if telling.any() else np.ones_like(telling)
        self._usable, self._numbered = _rows_of_weight(weight), numbered

    def draw(self, g: np.ndarray, round: int, layer: int = 0) -> Draw:
        """The rows and features of a round, or of a layer; parameters as those of `sample_rows`."""
        rows, multiplier = sample_rows(self._settings, g, round, self._usable, layer, self._numbered)
        features = sample_features(self._settings, self._telling, round)
        some_features = self._nodes_draw or self._settings.colsample_bytree < 1.0
        is_chance = some_features or rows is not self._usable
        return Draw(round, rows, multiplier, features, is_chance)


def _rows_of_weight(weight: np.ndarray | None) -> np.ndarray | None:
    """Rows that have any weight, uint32 ascending; None: all."""
    if weight is None:
        return None
    used = weight > 0 if weight.ndim == 1 else (weight > 0).any(axis=1)
    return None if used.all() else np.flatnonzero(used).astype(np.uint32)


def numbers_of_rows(weight: np.ndarray | None, numbered: Numbered | None) -> np.ndarray | None:
    """Of each row that has any weight how many such rows come before it, wherever they lie; of others 0.

    Parameters
    ----------
    weight : ndarray of shape (n_rows,) or (n_rows, K), or None
    numbered : Numbered, optional
        Where other ranks have further rows.

    Returns
    -------
    ndarray of shape (n_rows,), int64, or None
        None: each row's place.
    """
    usable = _rows_of_weight(weight)
    if weight is None or usable is None:
        return None if numbered is None else numbered.numbers
    numbers = np.zeros(len(weight), np.int64)
    numbers[usable] = np.arange(len(usable)) if numbered is None else numbered.numbers
    return numbers


def sample_rows(
    settings: Sampling,
    g: np.ndarray,
    round: int,
    usable: np.ndarray | None = None,
    layer: int = 0,
    numbered: Numbered | None = None,
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Draw the rows of one tree, or of one of its layers.

    Parameters
    ----------
    settings : Sampling
    g : ndarray of shape (n_rows, n_outputs) or (n_rows,), float32
        Gradients of this round, or their norms. Uniform sampling reads the number of rows only.
    round : int
        Number of the round, counted from the very first one (a resumed training goes on counting).
    usable : ndarray of shape (n_usable,), uint32, ascending, optional
        The rows to draw from (those of positive weight, say). All rows when None.
    layer : int
        Depth of the nodes that are about to be split. Matters for `rows_per_layer`, whose draws contain each
        other, and for GOSS, which sees the layer's gradients.
    numbered : Numbered, optional
        Where other ranks have further rows, for uniform sampling: which these are.

    Returns
    -------
    rows : ndarray of shape (n_sampled,), uint32, ascending, or None
        The rows in use; None: all of them.
    multiplier : ndarray of shape (n_rows,), float32, or None
        What the derivatives of a row are to be multiplied by; None: one.

    Notes
    -----
    Uniform: `ceil(subsample * n)` rows without replacement. GOSS (Ke et al., "LightGBM", NeurIPS 2017,
    section 3 and algorithm 2): the `top_rate * n` rows of largest gradient, here its Euclidean norm over
    outputs, are kept; `other_rate * n` of the rest are drawn and multiplied by `(1 - top_rate) /
    other_rate`.
    """
    if settings.sampling_method == "goss":
        return _goss(settings, g, round, usable)
    n = numbered.n if numbered is not None else len(g) if usable is None else len(usable)
    count = _rows_wanted(settings, n, layer)
    if settings.subsample >= 1.0 and count >= n:
        return usable, None
    by = settings.seed, round, ROWS
    chosen = np.flatnonzero(draw(n, count, *by) if numbered is None else numbered.draw(count, *by))
    return (chosen.astype(np.uint32) if usable is None else usable[chosen]), None


def _rows_wanted(settings: Sampling, n: int, layer: int) -> int:
    if settings.rows_per_layer is None:
        return _count(settings.subsample, n)
    wanted = settings.rows_per_layer[min(layer, len(settings.rows_per_layer) - 1)]
    return int(wanted) if isinstance(wanted, Integral) or wanted > 1 else _count(float(wanted), n)


def sample_features(settings: Sampling, telling: np.ndarray, round: int) -> np.ndarray | None:
    """Draw the features of one tree: `ceil(colsample_bytree * n)` of n that tell rows apart.

    Parameters
    ----------
    settings : Sampling
    telling : ndarray of shape (n_features,), bool
    round : int

    Returns
    -------
    mask : ndarray of shape (n_features,), bool, or None
        True: the tree may split on this feature; None: on all.
    """
    if settings.colsample_bytree >= 1.0:
        return None if telling.all() else telling
    n, mask = int(np.count_nonzero(telling)), np.zeros(len(telling), bool)
    mask[telling] = draw(n, _count(settings.colsample_bytree, n), settings.seed, round, FEATURES)
    return mask


def _goss(
    settings: Sampling, g: np.ndarray, round: int, usable: np.ndarray | None
) -> tuple[np.ndarray | None, np.ndarray | None]:
    norm = _squared_norm(g)
    if usable is not None:
        norm = norm[usable]
    n = len(norm)
    n_top = min(n, _count(settings.top_rate, n))
    n_other = min(n - n_top, _count(settings.other_rate, n))
    if n_top + n_other >= n:
        return usable, None
    top = _largest(norm, n_top)
    rest = np.flatnonzero(~top)
    other = rest[draw(len(rest), n_other, settings.seed, round, ROWS)]

    kept = top
    kept[other] = True
    rows = np.flatnonzero(kept).astype(np.uint32)
    if usable is not None:
        rows, other = usable[rows], usable[other]
    multiplier = np.ones(len(g), np.float32)
    multiplier[other] = np.float32((1.0 - settings.top_rate) / settings.other_rate)
    return rows, multiplier


def _squared_norm(g: np.ndarray) -> np.ndarray:
    """Sum of squares over outputs, added by halving: one order of additions on every processor."""
    if g.ndim == 1 or g.shape[1] == 1:
        flat = g.reshape(-1)
        return flat * flat
    norm = np.empty(len(g), np.float32)
    for start in range(0, len(g), _BLOCK):
        squares = np.square(g[start : start + _BLOCK])
        width = squares.shape[1]
        while width > 1:
            half = (width + 1) // 2
            squares[:, : width - half] += squares[:, half:width]
            width = half
        norm[start : start + _BLOCK] = squares[:, 0]
    return norm


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """Mask of the `count` largest values; among equal ones the first (argpartition leaves that open)."""
    if count <= 0:
        return np.zeros(len(values), bool)
    threshold = np.partition(values, len(values) - count)[len(values) - count]
    mask = values > threshold
    ties = np.flatnonzero(values == threshold)
    mask[ties[: count - int(np.count_nonzero(mask))]] = True
    return mask


def _count(fraction: float, n: int) -> int:
    # 0.1 * 30 is 3.0000000000000004 in floating point: that must be 3 rows, not 4.
    return max(1, math.ceil(round(fraction * n, 6)))
