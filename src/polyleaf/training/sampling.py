"""Which rows and which features a tree sees: uniform row sampling, GOSS, features per tree.

Owns what is drawn from and how many are taken. Must not know how chance chooses (`inputs.draws`), or what an
objective, a tree or an estimator is: it sees gradients, a seed and a round.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral
from typing import NamedTuple

import numpy as np

from polyleaf.data.random import FEATURES, ROWS, draw, draw_ids, find_kth_smallest
from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator
from polyleaf.settings.train_config import SamplingConfig

__all__ = ["Draw", "GlobalRowIds", "Sampler", "global_row_ids", "sample_features", "sample_rows"]

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
    """

    round: int
    rows: np.ndarray | None
    multiplier: np.ndarray | None
    features: np.ndarray | None

    @property
    def sample(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Rows and multiplier: what the core is told."""
        return self.rows, self.multiplier


class GlobalRowIds(NamedTuple):
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

    @staticmethod
    def alone(n: int) -> GlobalRowIds:
        """The rows of a machine that has all of them."""
        return GlobalRowIds(np.arange(n), n, SINGLE_PROCESS)

    def draw(self, count: int, seed: int, round: int, stream: int) -> np.ndarray:
        """Mask of this rank's rows among `count` that are drawn of all."""
        if count >= self.n:
            return np.ones(len(self.numbers), bool)
        return draw_ids(self.numbers, count, seed, round, stream, self.communicator)


class Sampler:
    """Draws, round after round.

    Parameters
    ----------
    settings : SamplingConfig
    telling : ndarray of shape (n_features,), bool
        The features to draw from.
    n_rows : int
    weight : ndarray of shape (n_rows,) or (n_rows, K), or None
        A row of weight 0 is as good as absent.
    nodes_draw : bool
        Whether each node draws from the features of its tree.
    numbered : GlobalRowIds, optional
        Where other ranks have further rows: which these are.

    Attributes
    ----------
    is_chance : bool
        Whether trees of another round may see other rows or features.
    """

    def __init__(
        self,
        settings: SamplingConfig,
        telling: np.ndarray,
        n_rows: int,
        weight: np.ndarray | None,
        nodes_draw: bool,
        numbered: GlobalRowIds | None = None,
    ) -> None:
        self._settings, self._usable, self._n_rows = settings, _rows_of_weight(weight), n_rows
        self._telling = telling if telling.any() else np.ones_like(telling)
        self._numbered = numbered
        n = _n_usable(n_rows, self._usable) if numbered is None else numbered.n
        some_features = nodes_draw or settings.colsample_bytree < 1.0
        self.is_chance = some_features or not _takes_all(settings, n, layer=0)

    def draw(self, gradients: Callable[[], np.ndarray], round: int, layer: int = 0) -> Draw:
        """The rows and features of a round, or of a layer.

        Parameters
        ----------
        gradients : callable
            Gives `g` of `sample_rows`; called only where they decide which rows are taken.
        round, layer : int
            As those of `sample_rows`.
        """
        by_gradients = self._settings.sampling_method == "goss"
        g = gradients() if by_gradients else np.broadcast_to(np.float32(0.0), (self._n_rows, 1))
        rows, multiplier = sample_rows(
            self._settings, g, round, self._usable, layer, self._numbered
        )
        features = sample_features(self._settings, self._telling, round)
        return Draw(round, rows, multiplier, features)


def _rows_of_weight(weight: np.ndarray | None) -> np.ndarray | None:
    """Rows that have any weight, uint32 ascending; None: all."""
    if weight is None:
        return None
    used = weight > 0 if weight.ndim == 1 else (weight > 0).any(axis=1)
    return None if used.all() else np.flatnonzero(used).astype(np.uint32)


def global_row_ids(weight: np.ndarray | None, numbered: GlobalRowIds | None) -> np.ndarray | None:
    """Of each row that has any weight how many such rows come before it, wherever they lie; of others 0.

    Parameters
    ----------
    weight : ndarray of shape (n_rows,) or (n_rows, K), or None
    numbered : GlobalRowIds, optional
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
    settings: SamplingConfig,
    g: np.ndarray,
    round: int,
    usable: np.ndarray | None = None,
    layer: int = 0,
    numbered: GlobalRowIds | None = None,
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Draw the rows of one tree, or of one of its layers.

    Parameters
    ----------
    settings : SamplingConfig
    g : ndarray of shape (n_rows, n_outputs) or (n_rows,), float32
        Gradients of this round, or their norms. Uniform sampling reads the number of rows only.
    round : int
        Number of the round, counted from the very first one (a resumed training goes on counting).
    usable : ndarray of shape (n_usable,), uint32, ascending, optional
        The rows to draw from (those of positive weight, say). All rows when None.
    layer : int
        Depth of the nodes that are about to be split. Matters for `rows_per_layer`, whose draws contain each
        other, and for GOSS, which sees the layer's gradients.
    numbered : GlobalRowIds, optional
        Where other ranks have further rows: which these are.

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
    outputs, the first on ties, are kept; `other_rate * n` of the rest are drawn and multiplied by
    `(1 - top_rate) / other_rate`.
    """
    n = _n_usable(len(g), usable) if numbered is None else numbered.n
    if _takes_all(settings, n, layer):
        return usable, None
    numbered = GlobalRowIds.alone(n) if numbered is None else numbered
    if settings.sampling_method == "goss":
        return _goss(settings, g, round, usable, numbered)
    count = _rows_wanted(settings, n, layer)
    chosen = np.flatnonzero(numbered.draw(count, settings.seed, round, ROWS))
    return (chosen.astype(np.uint32) if usable is None else usable[chosen]), None


def _n_usable(n_rows: int, usable: np.ndarray | None) -> int:
    return n_rows if usable is None else len(usable)


def _takes_all(settings: SamplingConfig, n: int, layer: int) -> bool:
    """Whether all of n rows are taken."""
    if settings.sampling_method == "goss":
        return sum(_kept_and_drawn(settings, n)) >= n
    return settings.subsample >= 1.0 and _rows_wanted(settings, n, layer) >= n


def _rows_wanted(settings: SamplingConfig, n: int, layer: int) -> int:
    if settings.rows_per_layer is None:
        return _count(settings.subsample, n)
    wanted = settings.rows_per_layer[min(layer, len(settings.rows_per_layer) - 1)]
    return int(wanted) if isinstance(wanted, Integral) or wanted > 1 else _count(float(wanted), n)


def sample_features(settings: SamplingConfig, telling: np.ndarray, round: int) -> np.ndarray | None:
    """Draw the features of one tree: `ceil(colsample_bytree * n)` of n that tell rows apart.

    Parameters
    ----------
    settings : SamplingConfig
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


def _kept_and_drawn(settings: SamplingConfig, n: int) -> tuple[int, int]:
    """How many of n rows GOSS keeps for their large gradients, and how many it draws from the rest."""
    n_top = min(n, _count(settings.top_rate, n))
    return n_top, min(n - n_top, _count(settings.other_rate, n))


def _goss(
    settings: SamplingConfig,
    g: np.ndarray,
    round: int,
    usable: np.ndarray | None,
    numbered: GlobalRowIds,
) -> tuple[np.ndarray, np.ndarray]:
    norm = _squared_norm(g)
    if usable is not None:
        norm = norm[usable]
    n_top, n_other = _kept_and_drawn(settings, numbered.n)
    kept = _largest(norm, n_top, numbered)
    rest = np.flatnonzero(~kept)
    by = settings.seed, round, ROWS
    other = rest[draw_ids(numbered.numbers[rest], n_other, *by, numbered.communicator)]
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


def _largest(norm: np.ndarray, count: int, numbered: GlobalRowIds) -> np.ndarray:
    """Mask of this rank's rows among the `count` of largest norm that all have; of equal ones the first."""
    ranks, communicator = (
        ~norm.view(np.uint32),
        numbered.communicator,
    )  # norms order as their bits do
    last = find_kth_smallest(ranks, count, communicator)
    mask = ranks < last
    ties = np.flatnonzero(ranks == last)
    n_before = np.array([np.count_nonzero(mask)])
    communicator.sum(n_before)
    mask[ties[_first(numbered.numbers[ties], count - int(n_before[0]), communicator)]] = True
    return mask


def _first(numbers: np.ndarray, count: int, communicator: Communicator) -> np.ndarray:
    """Mask of this rank's numbers among the `count` smallest that all have between them."""
    numbers = numbers.astype(np.uint32)
    return numbers <= find_kth_smallest(numbers, count, communicator)


def _count(fraction: float, n: int) -> int:
    # 0.1 * 30 is 3.0000000000000004 in floating point: that must be 3 rows, not 4.
    return max(1, math.ceil(round(fraction * n, 6)))
