"""Losses of one of several classes, which see all scores of a row at once; computed by the core. Owns the
binding of such a loss to class ids; must not know any particular one (see softmax.py, exponential.py)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf.objectives.base import (
    Array,
    BoundObjective,
    FloatArray,
    Objective,
    as_weight,
    name_within,
)


@dataclass(frozen=True)
class MulticlassObjective(Objective):
    """A loss of the scores ``(K,)`` of a row and its class id.

    Parameters
    ----------
    n_classes : int, optional
        Default: the largest class id of the data set prepared, plus one.
    """

    target_kinds: ClassVar[tuple[str, ...]] = ("classes",)
    parameters: ClassVar[Mapping[str, str]] = {"n_outputs": "n_classes", "num_class": "n_classes"}
    default_metric: ClassVar[str] = "mlogloss"
    separable: ClassVar[bool] = False
    probabilities: ClassVar[bool] = True

    n_classes: int | None = None

    def __post_init__(self) -> None:
        if self.n_classes is not None and (
            not isinstance(self.n_classes, int) or self.n_classes < 2
        ):
            raise ValueError(
                f"Objective {self.name!r}: n_classes must be an integer >= 2; got {self.n_classes!r}."
            )

    def n_scores(self, n_targets: int) -> int:
        return self.n_classes or n_targets

    def core_loss(self, n_classes: int) -> _core.ClassLoss:
        """The loss as the core computes it, for `n_classes` classes: the one of this name."""
        return _core.ClassLoss(name_within(type(self), _core.ClassLoss.available()), {})

    @abstractmethod
    def best_constant(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scores ``(K,)`` that minimise the loss over constants, where classes have these `shares` ``(K,)``,
        all positive."""

    @property
    def link(self) -> str:
        return "softmax"

    def transform(self, scores: FloatArray) -> FloatArray:
        return softmax(scores)

    def bind(self, target: Array, weight: Array | None) -> BoundClassObjective:
        label = np.asarray(target)
        if (
            label.ndim != 1
            or label.dtype.kind not in "iu"
            or (label.size == 0 and not self.n_classes)
        ):
            raise ValueError(
                f"Objective {self.name!r} needs integer class ids of shape (n,); got {label.dtype} of shape "
                f"{label.shape}."
            )
        n_classes = self.n_classes or int(label.max()) + 1
        if n_classes < 2:
            raise ValueError(
                f"Objective {self.name!r} needs at least two classes; every row of y is of the same class."
            )
        if label.size > 0 and (label.min() < 0 or label.max() >= n_classes):
            raise ValueError(
                f"Class ids must lie in 0 .. {n_classes - 1}; got {label.min()} .. {label.max()}."
            )
        label = np.ascontiguousarray(label, np.int32)
        return BoundClassObjective(self, label, n_classes, as_weight(weight, label.size, 1))


class BoundClassObjective(BoundObjective):
    """A `MulticlassObjective` bound to data: ``label`` is int32 ``(n,)``."""

    objective: MulticlassObjective

    def __init__(
        self,
        objective: MulticlassObjective,
        label: NDArray[np.int32],
        n_classes: int,
        weight: Array | None,
    ) -> None:
        super().__init__(objective, label.size, n_classes, weight)
        self.label = label
        self._loss = objective.core_loss(n_classes)

    def base_score(self, n_threads: int = 1) -> NDArray[np.float64]:
        """From the classes' shares in the weight; a class that no row has gets half a row."""
        weight = np.ones((self.n_rows, 1), np.float32) if self.weight is None else self.weight
        count = _core.exact_totals(weight, None, self.label, self.n_outputs, n_threads)[0, :, 0]
        if not count.any():
            return np.zeros(self.n_outputs)
        share = count / count.sum()
        return self.objective.best_constant(np.where(share > 0, share, 0.5 / (self.n_rows + 1.0)))

    def derivatives(self, raw: Array, g: Array, h: Array | None, n_threads: int = 1) -> None:
        assert h is not None  # the curvature is never constant
        _core.class_derivatives(
            self._loss, raw, self.label, self.weight, self.offset, g, h, n_threads
        )

    def on_device(self, device: _core.Device) -> _core.DeviceLoss | None:
        is_own = type(self).derivatives is not BoundClassObjective.derivatives
        if is_own or not _core.DeviceLoss.supports(self._loss):
            return None
        return _core.DeviceLoss(device, self._loss, self.label, self.weight, self.offset)

    def full_hessian(self, raw: Array, g: Array, h: Array, n_threads: int = 1) -> None:
        _core.class_hessians(self._loss, raw, self.label, self.weight, self.offset, g, h, n_threads)

    def loss(self, raw: Array, n_threads: int = 1) -> float:
        return _core.class_mean(self._loss, raw, self.label, self.weight, self.offset, n_threads)


def softmax(scores: FloatArray) -> FloatArray:
    """Exponentials of the scores ``(n, K)``, divided by their sum over the row."""
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    exponentials /= exponentials.sum(axis=1, keepdims=True)
    return exponentials
