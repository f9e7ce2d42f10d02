"""What a predicted distribution answers. Owns shapes, and what follows from a few functions of a family.

Must not know models, objectives or how scores came about. A family is a frozen dataclass whose fields are
arrays of one shape, (n_rows,) or (n_rows, n_targets), its parameters; it says density, distribution function
and quantiles, and how it is made of the two scores that are learned for it. All functions broadcast values
against parameters as NumPy does, and follow the names of SciPy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Distribution", "Floats", "check_coverage"]

Floats = NDArray[np.float64]


def check_coverage(coverage: float) -> None:
    """ValueError unless it is a share of rows that an interval can be asked to hold."""
    try:
        is_share = bool(0 < coverage < 1)
    except (TypeError, ValueError):  # no number, or several
        is_share = False
    if not is_share:
        raise ValueError(f"coverage must lie between 0 and 1, got {coverage!r}.")


@dataclass(frozen=True, eq=False)
class Distribution(ABC):
    """Distributions of one family, with parameters of their own.

    Indexing (`distribution[rows]`) chooses among them; `len` is the number of rows.

    Attributes
    ----------
    is_discrete : bool
        Values are whole numbers; `logpdf` is then the logarithm of their probabilities.
    """

    is_discrete: ClassVar[bool] = False

    # --- by family -----------------------------------------------------------------------------------

    @abstractmethod
    def mean(self) -> Floats:
        """Means."""

    @abstractmethod
    def std(self) -> Floats:
        """Standard deviations."""

    @abstractmethod
    def logpdf(self, y: ArrayLike) -> Floats:
        """Natural logarithms of the densities at y; of counts: of the probabilities.

        Parameters
        ----------
        y : array-like of shape (n_rows,) or (n_rows, n_targets), or a number
            In the unit of the target. Broadcast against the distributions, as NumPy does.

        Returns
        -------
        ndarray of the shape of both, broadcast; float64
            -inf where there is none.
        """

    @abstractmethod
    def cdf(self, y: ArrayLike) -> Floats:
        """Probabilities of values up to y.

        Parameters
        ----------
        y : array-like of shape (n_rows,) or (n_rows, n_targets), or a number
            In the unit of the target. Broadcast against the distributions, as NumPy does.

        Returns
        -------
        ndarray of the shape of both, broadcast; float64
            From 0 to 1.
        """

    @abstractmethod
    def sf(self, y: ArrayLike) -> Floats:
        """Probabilities of values above y: 1 - cdf, with its digits where that is next to 0.

        Parameters
        ----------
        y : array-like of shape (n_rows,) or (n_rows, n_targets), or a number
            In the unit of the target. Broadcast against the distributions, as NumPy does.

        Returns
        -------
        ndarray of the shape of both, broadcast; float64
            From 0 to 1.
        """

    @abstractmethod
    def ppf(self, q: ArrayLike) -> Floats:
        """Quantiles: the values below which lies the probability q.

        Parameters
        ----------
        q : array-like of shape (n_rows,) or (n_rows, n_targets), or a number
            From 0 to 1. Broadcast against the distributions, as NumPy does.

        Returns
        -------
        ndarray of the shape of both, broadcast; float64
            In the unit of the target.
        """

    @abstractmethod
    def isf(self, q: ArrayLike) -> Floats:
        """The values above which lies the probability q.

        Parameters
        ----------
        q : array-like of shape (n_rows,) or (n_rows, n_targets), or a number
            From 0 to 1. Broadcast against the distributions, as NumPy does.

        Returns
        -------
        ndarray of the shape of both, broadcast; float64
            In the unit of the target.
        """

    @abstractmethod
    def crps(self, y: ArrayLike) -> Floats:
        """Continuous ranked probability scores of outcomes y.

        Of two forecasts the one with the smaller mean is better (Gneiting and Raftery, "Strictly proper
        scoring rules, prediction, and estimation", JASA 102, 2007).

        Parameters
        ----------
        y : array-like of shape (n_rows,) or (n_rows, n_targets), or a number
            In the unit of the target. Broadcast against the distributions, as NumPy does.

        Returns
        -------
        ndarray of the shape of both, broadcast; float64
            In the unit of the target; 0 where all the probability lies at y.
        """

    @abstractmethod
    def rvs(self, size: int | tuple[int, ...] = (), random_state: Any = None) -> NDArray[Any]:
        """Random values.

        Parameters
        ----------
        size : int or tuple of int
            How many for each distribution.
        random_state : int, numpy.random.Generator or None

        Returns
        -------
        ndarray, of the shape ``size`` followed by that of the distributions
        """

    # --- what follows --------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Of every parameter."""
        return np.shape(self._parameters()[0])

    def median(self) -> Floats:
        """Medians."""
        return self.ppf(0.5)

    def interval(self, coverage: float = 0.9) -> Floats:
        """Bounds of the central intervals that hold so much of the probability.

        Parameters
        ----------
        coverage : float in (0, 1)

        Returns
        -------
        ndarray, of the shape of the distributions followed by 2
            Lower and upper bound.
        """
        check_coverage(coverage)
        tail = (1.0 - coverage) / 2.0
        return np.stack([self.ppf(tail), self.isf(tail)], axis=-1)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, at: Any) -> Self:
        chosen = {
            field.name: getattr(self, field.name)[at]
            for field in fields(self)
            if _varies(self, field)
        }
        return replace(self, **chosen)

    def _parameters(self) -> list[Floats]:
        return [getattr(self, field.name) for field in fields(self) if _varies(self, field)]

    def _size(self, size: int | tuple[int, ...]) -> tuple[int, ...]:
        return ((size,) if isinstance(size, int) else tuple(size)) + self.shape


def _varies(distribution: Distribution, field: Any) -> bool:
    """Whether a field is an array of one number a distribution, and not one number for all."""
    return isinstance(getattr(distribution, field.name), np.ndarray)
