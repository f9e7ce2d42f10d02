"""Regression on the scale of the target: squared error, absolute error, quantiles, Huber. Owns these losses;
the formulas are in cpp/losses/kernels/elementwise_kernels.h.

The base score is taken off the target once, in float64, so a target of 1e9 ± 1 given as float64 loses
nothing. Quantiles, in base scores and in leaves alike, are the lower ones: the smallest value v such that
rows with value <= v hold at least the level's share of the weight. So the median of an even number of rows is
the lower of the two in the middle, integer weights equal repeated rows, and every value is one that occurs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polyleaf.objectives.base import Array, FloatArray, check_domain, check_positive
from polyleaf.objectives.elementwise import BoundElementwiseObjective, ElementwiseObjective
from polyleaf.objectives.registry import register

__all__ = ["AbsoluteError", "Huber", "Quantile", "SquaredError"]


@dataclass(frozen=True)
class LocationObjective(ElementwiseObjective):
    """A function of score - target. The curvature is taken as 1: exact (squared error), an upper bound
    (Huber), or a mere scale for the split search (absolute error, quantile)."""

    is_translation_invariant: ClassVar[bool] = True

    def check_target(self, target: FloatArray, weight: Array | None) -> None:
        check_domain(np.isfinite(target), target, weight, self.name, "finite targets")

    def best_constant(
        self, problem: BoundElementwiseObjective, n_threads: int
    ) -> NDArray[np.float64]:
        return problem.target_quantile(np.full(problem.n_outputs, 0.5), n_threads)


@register
@dataclass(frozen=True)
class SquaredError(LocationObjective):
    """``(score - y)^2 / 2``. Predicts the mean."""

    name: ClassVar[str] = "squared_error"
    aliases: ClassVar[tuple[str, ...]] = (
        "reg:squarederror",
        "regression",
        "regression_l2",
        "l2",
        "mse",
        "rmse",
        "mean_squared_error",
        "multirmse",
    )
    is_scale_dependent: ClassVar[bool] = True
    sparse_base_score: ClassVar[float | None] = 0.0
    default_metric: ClassVar[str] = "rmse"

    def best_constant(
        self, problem: BoundElementwiseObjective, n_threads: int
    ) -> NDArray[np.float64]:
        return np.nan_to_num(problem.mean_target(n_threads))


@register
@dataclass(frozen=True)
class AbsoluteError(LocationObjective):
    """``|score - y|``. Predicts the median; leaves are renewed to the median of their residuals."""

    name: ClassVar[str] = "absolute_error"
    aliases: ClassVar[tuple[str, ...]] = (
        "reg:absoluteerror",
        "regression_l1",
        "l1",
        "mae",
        "mean_absolute_error",
    )
    updates_leaves: ClassVar[bool] = True
    updates_leaves_distributed: ClassVar[bool] = True
    default_metric: ClassVar[str] = "mae"


@register
@dataclass(frozen=True)
class Huber(LocationObjective):
    """``r^2 / 2`` for residuals up to `delta`, ``delta * (|r| - delta / 2)`` beyond: large residuals count
    linearly.

    Parameters
    ----------
    delta : float, default 1.0
        In units of the target. The base score is the median, which no outlier moves.
    """

    name: ClassVar[str] = "huber"
    parameters: ClassVar[Mapping[str, str]] = {"huber_delta": "delta", "huber_slope": "delta"}
    default_metric: ClassVar[str] = "mae"

    delta: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self.name, "delta", self.delta)
        object.__setattr__(self, "delta", float(self.delta))


@register
@dataclass(frozen=True)
class Quantile(LocationObjective):
    """Pinball loss (Koenker and Bassett, 1978): ``alpha (y - score)`` where y is above, ``(1 - alpha) (score
    - y)`` where it is below. Leaves are renewed to the quantile of their residuals.

    Parameters
    ----------
    alpha : float or sequence of float in (0, 1), default 0.5
        Several levels are learned at once: T targets and A levels are ``T * A`` outputs, the levels of the
        first target first.
    non_crossing : bool, optional
        Sort the predicted quantiles of each row and target, so that a higher level never predicts less
        (Chernozhukov, Fernández-Val and Galichon, 2010). Default: yes where there are several levels.
    """

    name: ClassVar[str] = "quantile"
    aliases: ClassVar[tuple[str, ...]] = ("reg:quantileerror", "pinball", "multiquantile")
    parameters: ClassVar[Mapping[str, str]] = {"quantile_alpha": "alpha"}
    updates_leaves: ClassVar[bool] = True
    updates_leaves_distributed: ClassVar[bool] = True
    default_metric: ClassVar[str] = "quantile"

    alpha: float | tuple[float, ...] = 0.5
    non_crossing: bool | None = None

    def __post_init__(self) -> None:
        levels = np.asarray(self.alpha, dtype=np.float64)
        if levels.ndim > 1 or levels.size == 0 or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(
                f"Objective 'quantile': alpha must be one or more numbers between 0 and 1; got "
                f"{self.alpha!r}."
            )
        if np.unique(levels).size != levels.size:
            raise ValueError(f"Objective 'quantile': alpha lists a level twice: {self.alpha!r}.")
        # A plain float, or a tuple: hashable, and the same after a round trip through JSON.
        object.__setattr__(
            self, "alpha", levels.item() if levels.ndim == 0 else tuple(levels.tolist())
        )

    @property
    def quantile_levels(self) -> tuple[float, ...]:
        return self.alpha if isinstance(self.alpha, tuple) else (self.alpha,)

    def output_parameter(self, n_outputs: int) -> NDArray[np.float64]:
        return np.tile(self.quantile_levels, n_outputs // len(self.quantile_levels))

    def leaf_quantile_level(self, n_outputs: int) -> NDArray[np.float64]:
        return self.output_parameter(n_outputs)

    def best_constant(
        self, problem: BoundElementwiseObjective, n_threads: int
    ) -> NDArray[np.float64]:
        return problem.target_quantile(self.output_parameter(problem.n_outputs), n_threads)

    @property
    def link(self) -> str:
        wanted = len(self.quantile_levels) > 1 and self.non_crossing is not False
        return "sorted_levels" if wanted else "identity"

    def transform(self, scores: FloatArray) -> FloatArray:
        if self.link == "identity":
            return scores
        groups = scores.reshape(-1, len(self.quantile_levels))
        sorted_groups = np.empty_like(groups)
        sorted_groups[:, np.argsort(self.quantile_levels)] = np.sort(groups, axis=1)
        return sorted_groups.reshape(scores.shape)

    def metric_parameters(self) -> dict[str, Any]:
        return {"alpha": self.alpha}
