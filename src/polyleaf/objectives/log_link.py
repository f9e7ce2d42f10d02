"""Positive targets with a log link: Poisson, Gamma, Tweedie. Owns these losses and the choice of their
curvature.

All three are deviances whose variance is ``mean^p`` (p = 1, 2, in between; Jørgensen, 1987). With the model's
part ``b = e^((2-p) z)`` and the data's part ``s = y e^((1-p) z)`` of a score z the gradient is ``b - s``.

Curvature ``"symmetric"`` (the default) is ``(b + s) / 2``. For a leaf whose rows share one score, the exact
step is ``ln(S / B)`` (sums of s and b) and Newton's with this curvature is ``2 (S - B) / (S + B)``: the first
Padé approximant of that logarithm, never longer than it and never longer than 2. The second derivative
``(2-p) b + (p-1) s`` (``"exact"``) has the step ``S / B - 1`` for Poisson, which overshoots without bound
where a leaf is far above its score; other libraries bound it with ``max_delta_step``. For Tweedie with p =
1.5 the two are the same.

Held-out Poisson deviance on hourly bike rentals (UCI; one split; XGBoost's trees of depth 6):

    trees                     10     30    100    300
    rate 0.1, symmetric     39.7   10.8   5.66   5.18
    rate 0.1, exact         44.2   13.3   6.08   5.37
    rate 0.3, symmetric     10.8   6.43   5.84   5.99
    rate 0.3, exact         12.3   6.71   5.72   5.83

So it is faster early and at a small rate, and slightly behind late at a large one; the default rests on the
bound, not on these figures. Gamma was not measured.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf.objectives.base import Array, FloatArray, check_domain
from polyleaf.objectives.elementwise import BoundElementwiseObjective, ElementwiseObjective
from polyleaf.objectives.registry import register

__all__ = ["Gamma", "Poisson", "Tweedie"]


@dataclass(frozen=True)
class LogLinkObjective(ElementwiseObjective):
    """Deviance of variance ``mean^power`` with a log link; predictions are ``e^score``.

    Parameters
    ----------
    hessian : {"symmetric", "exact"}, default "symmetric"
        See the top of this file.
    """

    hessian: str = "symmetric"

    def __post_init__(self) -> None:
        if self.hessian not in ("symmetric", "exact"):
            raise ValueError(
                f"Objective {self.name!r}: hessian must be 'symmetric' or 'exact'; got {self.hessian!r}."
            )

    @property
    @abstractmethod
    def power(self) -> float:
        """Power of the mean that the variance is."""

    def core_loss(self) -> _core.Loss:
        model, data = (
            (0.5, 0.5) if self.hessian == "symmetric" else (2.0 - self.power, self.power - 1.0)
        )
        numbers = {"variance_power": self.power, "model_hessian": model, "data_hessian": data}
        return _core.Loss("log_link", numbers)

    def check_target(self, target: FloatArray, weight: Array | None) -> None:
        valid = np.isfinite(target) & (target > 0 if self.power == 2 else target >= 0)
        check_domain(
            valid, target, weight, self.name, f"targets {'> 0' if self.power == 2 else '>= 0'}"
        )

    def best_constant(
        self, problem: BoundElementwiseObjective, n_threads: int
    ) -> NDArray[np.float64]:
        mean = problem.mean_target(n_threads)
        if (mean == 0).any():
            output = int(np.argmax(mean == 0))
            raise ValueError(
                f"Objective {self.name!r} needs a target above 0 somewhere: output {output} of y is 0 in "
                "every row, so the logarithm of its mean does not exist. Leave that output out."
            )
        return np.log(np.where(np.isnan(mean), 1.0, mean))

    @property
    def link(self) -> str:
        return "exponential"

    def transform(self, scores: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return np.exp(scores)


@register
@dataclass(frozen=True)
class Poisson(LogLinkObjective):
    """``e^z - y z``, for counts."""

    name: ClassVar[str] = "poisson"
    aliases: ClassVar[tuple[str, ...]] = ("count:poisson",)
    is_count: ClassVar[bool] = True
    default_metric: ClassVar[str] = "poisson_deviance"

    @property
    def power(self) -> float:
        return 1.0


@register
@dataclass(frozen=True)
class Gamma(LogLinkObjective):
    """``y e^-z + z``, for positive amounts."""

    name: ClassVar[str] = "gamma"
    aliases: ClassVar[tuple[str, ...]] = ("reg:gamma",)
    default_metric: ClassVar[str] = "gamma_deviance"

    @property
    def power(self) -> float:
        return 2.0


@register
@dataclass(frozen=True)
class Tweedie(LogLinkObjective):
    """``e^((2-p) z) / (2-p) - y e^((1-p) z) / (1-p)``, for amounts that are often zero.

    Parameters
    ----------
    variance_power : float in (1, 2), default 1.5
    """

    name: ClassVar[str] = "tweedie"
    aliases: ClassVar[tuple[str, ...]] = ("reg:tweedie",)
    parameters: ClassVar[Mapping[str, str]] = {"tweedie_variance_power": "variance_power"}
    default_metric: ClassVar[str] = "tweedie_deviance"

    variance_power: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 < self.variance_power < 2:
            raise ValueError(
                "Objective 'tweedie': variance_power must lie between 1 and 2 (1 is 'poisson', 2 is "
                f"'gamma'); got {self.variance_power!r}."
            )
        object.__setattr__(self, "variance_power", float(self.variance_power))

    @property
    def power(self) -> float:
        return self.variance_power

    def metric_parameters(self) -> dict[str, Any]:
        return {"power": self.variance_power}
