"""Yes or no, for one label or many: logistic and squared hinge. Owns these losses. Targets are 0 or 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from polyleaf.objectives.base import Array, FloatArray, check_domain
from polyleaf.objectives.elementwise import BoundElementwiseObjective, ElementwiseObjective
from polyleaf.objectives.registry import register

__all__ = ["Logistic", "SquaredHinge"]


def _half_a_row(problem: BoundElementwiseObjective) -> float:
    """Share that a label (or its absence) gets when no row has it: half a row more than all."""
    return 0.5 / (problem.n_rows + 1.0)


@register
@dataclass(frozen=True)
class Logistic(ElementwiseObjective):
    """Cross-entropy ``-s y ln p - (1 - y) ln(1 - p)`` with ``p = 1 / (1 + e^-score)``, label by label.

    Parameters
    ----------
    scale_pos_weight : float or sequence of float, default 1.0
        The weight ``s`` of positives, one for all labels or one for each.

    Notes
    -----
    Targets may be probabilities in [0, 1]. The curvature ``p (1 - p)`` is floored at 1e-16, for it underflows
    where a score is beyond ±87.
    """

    name: ClassVar[str] = "logistic"
    aliases: ClassVar[tuple[str, ...]] = (
        "binary:logistic",
        "reg:logistic",
        "binary",
        "binary_crossentropy",
        "cross_entropy",
        "xentropy",
        "log_loss",
        "logloss",
        "multilogloss",
        "multilabel",
    )
    target_kinds: ClassVar[tuple[str, ...]] = ("values", "labels")
    parameters: ClassVar[Mapping[str, str]] = {"scale_pos_weight": "scale_pos_weight"}
    default_metric: ClassVar[str] = "logloss"
    probabilities: ClassVar[bool] = True

    scale_pos_weight: float | tuple[float, ...] = 1.0

    def __post_init__(self) -> None:
        values = np.asarray(self.scale_pos_weight, dtype=np.float64)
        if values.ndim > 1 or values.size == 0 or not (np.isfinite(values) & (values > 0)).all():
            raise ValueError(
                "Objective 'logistic': scale_pos_weight must be a finite number > 0, or one for each label; "
                f"got {self.scale_pos_weight!r}."
            )
        object.__setattr__(
            self, "scale_pos_weight", values.item() if values.ndim == 0 else tuple(values.tolist())
        )

    def output_parameter(self, n_outputs: int) -> NDArray[np.float64]:
        values = np.asarray(self.scale_pos_weight, dtype=np.float64)
        if values.ndim == 1 and values.size != n_outputs:
            raise ValueError(
                f"scale_pos_weight has {values.size} numbers, but y has {n_outputs} label(s)."
            )
        return np.array(np.broadcast_to(values, (n_outputs,)))

    def check_target(self, target: FloatArray, weight: Array | None) -> None:
        check_domain((target >= 0) & (target <= 1), target, weight, self.name, "targets in [0, 1]")

    def best_constant(
        self, problem: BoundElementwiseObjective, n_threads: int
    ) -> NDArray[np.float64]:
        mean = problem.mean_target(n_threads)
        least = _half_a_row(problem)
        mean = np.where(
            mean <= 0, least, np.where(mean >= 1, 1 - least, np.where(np.isnan(mean), 0.5, mean))
        )
        return np.log(self.output_parameter(problem.n_outputs) * mean) - np.log1p(-mean)

    @property
    def link(self) -> str:
        return "logistic"

    def transform(self, scores: FloatArray) -> FloatArray:
        small = np.exp(-np.abs(scores))
        return np.where(scores >= 0, 1.0, small) / (1.0 + small)


@register
@dataclass(frozen=True)
class SquaredHinge(ElementwiseObjective):
    """``max(0, 1 - t score)^2 / 2`` with ``t = 2 y - 1``. A score above 0 says yes; there are no
    probabilities.

    The curvature is taken as 1, which it is inside the margin and which bounds it (0) outside: no step
    overshoots.
    """

    name: ClassVar[str] = "squared_hinge"
    target_kinds: ClassVar[tuple[str, ...]] = ("labels",)
    default_metric: ClassVar[str] = "error"
    sparse_base_score: ClassVar[
        float | None
    ] = -1.0  # at the margin of "no" (GBDT-SPARSE, eq. 9, moved and doubled)

    def check_target(self, target: FloatArray, weight: Array | None) -> None:
        check_domain((target == 0) | (target == 1), target, weight, self.name, "targets 0 or 1")

    def best_constant(
        self, problem: BoundElementwiseObjective, n_threads: int
    ) -> NDArray[np.float64]:
        return np.nan_to_num(2.0 * problem.mean_target(n_threads) - 1.0)
