"""Losses that see one score and one target at a time, computed by the core. Owns the binding of such a loss
to data; must not know any particular one (see location.py, log_link.py, binary.py)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf.objectives.base import (
    Array,
    BoundObjective,
    FloatArray,
    Objective,
    as_matrix,
    as_weight,
    name_within,
)
from polyleaf.runtime.context import Context


@dataclass(frozen=True)
class ElementwiseObjective(Objective):
    """A loss that is a sum over rows and outputs of a function of (score, target, parameter of the
    output)."""

    def core_loss(self) -> _core.Loss:
        """The loss as the core computes it: the one of this name, with its parameters."""
        known = _core.Loss.available()
        name = name_within(type(self), known)
        return _core.Loss(name, {parameter: getattr(self, parameter) for parameter in known[name]})

    @property
    def has_constant_hessian(self) -> bool:
        return self.core_loss().unit_hessian

    @abstractmethod
    def check_target(self, target: FloatArray, weight: Array | None) -> None:
        """Refuse targets outside the domain of the loss.

        Parameters
        ----------
        target : float32 or float64 (n, n_targets)
        weight : float32 (n, 1) or (n, n_targets), or None
            Targets of weight 0 do not count.

        Raises
        ------
        ValueError
            Where one that counts is outside.
        """

    @abstractmethod
    def best_constant(
        self, problem: BoundElementwiseObjective, n_threads: int
    ) -> NDArray[np.float64]:
        """Scores ``(K,)``, float64, that minimise the loss of `problem` over constants; `n_threads` do not
        change them."""

    def output_parameter(self, n_outputs: int) -> NDArray[np.float64]:
        """The loss's number for each output (quantile level, weight of positives), ``(n_outputs,)``."""
        return np.ones(n_outputs)

    def leaf_quantile_level(self, n_outputs: int) -> NDArray[np.float64]:
        """Quantile level ``(n_outputs,)`` to which leaves are renewed, where they are."""
        return np.full(n_outputs, 0.5)

    def bind(self, target: Array, weight: Array | None) -> BoundElementwiseObjective:
        target = as_matrix(target)
        weight = as_weight(weight, *target.shape)
        self.check_target(target, weight)
        repeats = self.outputs_per_target()
        if repeats > 1:
            if weight is not None and weight.shape[1] == target.shape[1] > 1:
                weight = np.repeat(weight, repeats, axis=1)
            target = np.repeat(target, repeats, axis=1)
        return BoundElementwiseObjective(self, target, weight)


class BoundElementwiseObjective(BoundObjective):
    """An `ElementwiseObjective` bound to data: ``target`` is float32 or float64 ``(n, K)``."""

    objective: ElementwiseObjective

    def __init__(
        self, objective: ElementwiseObjective, target: FloatArray, weight: Array | None
    ) -> None:
        super().__init__(objective, target.shape[0], target.shape[1], weight)
        self.target = target
        self._loss = objective.core_loss()
        self._parameter = objective.output_parameter(self.n_outputs).astype(np.float32)
        self._set_kernel_target()

    def _set_kernel_target(self) -> None:
        # The base score is taken off the target in float64, where the loss depends on the difference alone.
        target: Array = self.target
        if self.objective.is_translation_invariant and self.base.any():
            target = target.astype(np.float64) - self.base
        self._kernel_target = np.ascontiguousarray(target, dtype=np.float32)

    @property
    def offset(self) -> NDArray[np.float32]:
        return (
            np.zeros(self.n_outputs, np.float32)
            if self.objective.is_translation_invariant
            else super().offset
        )

    def base_score(self, n_threads: int = 1) -> NDArray[np.float64]:
        return self.objective.best_constant(self, n_threads)

    def set_base_score(self, base: Array) -> None:
        super().set_base_score(base)
        self._set_kernel_target()

    def derivatives(self, raw: Array, g: Array, h: Array | None, n_threads: int = 1) -> None:
        _core.loss_derivatives(
            self._loss,
            raw,
            self._kernel_target,
            self.weight,
            self.offset,
            self._parameter,
            g,
            h,
            n_threads,
        )

    def on_device(self, device: _core.Device) -> _core.DeviceLoss | None:
        if type(self).derivatives is not BoundElementwiseObjective.derivatives:
            return None
        data = self._kernel_target, self.weight, self.offset, self._parameter
        return _core.DeviceLoss(device, self._loss, *data)

    def loss(self, raw: Array, n_threads: int = 1) -> float:
        return _core.loss_mean(
            self._loss,
            raw,
            self._kernel_target,
            self.weight,
            self.offset,
            self._parameter,
            n_threads,
        )

    def update_leaves(
        self,
        raw: Array,
        leaf_of_row: Array,
        n_leaves: int,
        rows: Array | None = None,
        n_threads: int | Context = 1,
    ) -> NDArray[np.float32]:
        level, residual = (
            self.objective.leaf_quantile_level(self.n_outputs),
            self._kernel_target - raw,
        )
        return _core.fit_quantile_leaves(
            residual, self.weight, leaf_of_row, n_leaves, rows, level, n_threads
        )

    def mean_target(self, n_threads: int) -> NDArray[np.float64]:
        """Weighted mean of each output ``(K,)``; NaN where an output has no weight."""
        total, weight = _core.exact_totals(self.target, self.weight, None, 1, n_threads)[:, 0]
        return np.divide(total, weight, out=np.full(self.n_outputs, np.nan), where=weight > 0)

    def target_quantile(self, level: NDArray[np.float64], n_threads: int) -> NDArray[np.float64]:
        """Lower weighted quantile of each output at `level` ``(K,)``; 0 where an output has no weight."""
        found = _core.fit_quantile_leaves(self.target, self.weight, None, 1, None, level, n_threads)
        return found[0].astype(np.float64)
