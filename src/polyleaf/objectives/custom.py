"""A loss given as a Python function of targets and scores. Owns the calling convention and the checks of what
comes back; must not know the losses of the core."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polyleaf.objectives.base import Array, Objective, Problem, as_matrix, as_weight


@dataclass(frozen=True)
class Custom(Objective):
    """``function(y_true, y_pred) -> (gradient, curvature)``, the convention of XGBoost and LightGBM.

    Parameters
    ----------
    function : callable
        `y_true` is the target as bound: ``(n,)`` for one output or class ids, else ``(n, K)``. `y_pred` are
        scores (no link applied), float64, ``(n,)`` for one output, else ``(n, K)``. The gradient has the
        shape of `y_pred`; the curvature is None (1 throughout), ``(n,)`` or ``(n, 1)`` (one for all outputs)
        or ``(n, K)``. Weights are applied to what comes back, unless the signature has `sample_weight`: it
        then gets them (``(n,)``, ``(n, K)`` or None), and what comes back is taken as weighted.
    n_outputs : int, optional
        Number of scores. Default: columns of the target; for class ids the largest id plus one.

    Notes
    -----
    The base score is 0 and the loss is not known (NaN). An objective read from a model file has no function:
    it can predict, not train.
    """

    name: ClassVar[str] = "custom"
    default_metric: ClassVar[str] = "rmse"
    separable: ClassVar[bool] = False

    function: Callable[..., tuple[Any, Any]] | None = None
    n_outputs: int | None = None

    def prepare(self, target: Array, weight: Array | None) -> CustomProblem:
        if self.function is None:
            raise ValueError(
                "This objective came from a model file, which does not hold the function of a custom "
                "objective. To "
                "train on, pass the function again."
            )
        target = np.asarray(target)
        if target.ndim == 1 and target.dtype.kind in "iu":
            n_outputs = self.n_outputs or int(target.max(initial=0)) + 1
            return CustomProblem(self, target, n_outputs, as_weight(weight, target.size, 1))
        target = as_matrix(target)
        n_outputs = self.n_outputs or target.shape[1]
        return CustomProblem(self, target, n_outputs, as_weight(weight, target.shape[0], n_outputs))

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "n_outputs": self.n_outputs}


class CustomProblem(Problem):
    """`Custom` bound to data."""

    objective: Custom

    def __init__(self, objective: Custom, target: Array, n_outputs: int, weight: Array | None) -> None:
        super().__init__(objective, len(target), n_outputs, weight)
        self.target = target
        self._takes_weight = "sample_weight" in _parameters(objective.function)
        self._curvature_columns: int | None = (
            None  # of what the function returns; 0: None. Known after a first call.
        )

    def base_score(self, n_threads: int = 1) -> NDArray[np.float64]:
        return np.zeros(self.n_outputs)

    def loss(self, raw: Array, n_threads: int = 1) -> float:
        return float("nan")

    def curvature_shape(self) -> tuple[int, int] | None:
        """As the function returns it at the base score; asks the function once."""
        if self._curvature_columns is None:
            _, curvature = self._call(np.zeros((self.n_rows, self.n_outputs), np.float32))
            self._curvature_columns = 0 if curvature is None else curvature.shape[1]
        columns = self._curvature_columns
        if self.weight is not None and not self._takes_weight:
            columns = max(columns, self.weight.shape[1])
        return None if columns == 0 else (self.n_rows, columns)

    def derivatives(self, raw: Array, g: Array, h: Array | None, n_threads: int = 1) -> None:
        gradient, curvature = self._call(raw)
        weight = 1.0 if self.weight is None or self._takes_weight else self.weight
        with np.errstate(over="ignore"):
            g[...] = gradient * weight
            if h is not None:
                curvature = np.ones((1, 1)) if curvature is None else curvature
                if curvature.shape[1] > h.shape[1]:
                    raise ValueError(
                        f"The custom objective returned a curvature of {curvature.shape[1]} columns, but one "
                        f"of "
                        f"{h.shape[1]} the first time. It must always return the same shape."
                    )
                h[...] = curvature * weight
            elif curvature is not None:
                raise ValueError("The custom objective returned a curvature, but None the first time.")
        if not np.isfinite(g).all() or (h is not None and not np.isfinite(h).all()):
            raise ValueError("The custom objective returned values beyond the range of float32 (3.4e38).")

    def _call(self, raw: Array) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Gradient ``(n, K)`` and curvature ``(n, 1)``, ``(n, K)`` or None, checked, as the function returns
        them."""
        scores = raw + self.base
        single = self.n_outputs == 1
        y_true = self.target[:, 0] if self.target.ndim == 2 and self.target.shape[1] == 1 else self.target
        keywords = {}
        if self._takes_weight:
            flat = self.weight is not None and self.weight.shape[1] == 1
            keywords["sample_weight"] = self.weight[:, 0] if flat else self.weight  # type: ignore[index]
        assert self.objective.function is not None
        returned = self.objective.function(y_true, scores[:, 0] if single else scores, **keywords)
        if not isinstance(returned, (tuple, list)) or len(returned) != 2:
            raise ValueError(
                "A custom objective must return two things, (gradient, curvature); got "
                f"{type(returned).__name__}. The curvature may be None."
            )
        gradient = self._checked("gradient", returned[0], {(self.n_rows, self.n_outputs)})
        if returned[1] is None:
            return gradient, None
        shapes = {(self.n_rows, 1), (self.n_rows, self.n_outputs)}
        curvature = self._checked("curvature", returned[1], shapes)
        if (curvature < 0).any():
            raise ValueError(
                f"The custom objective returned a negative curvature ({np.min(curvature)}). Return an upper "
                f"bound of the "
                "second derivative, its absolute value, or None."
            )
        return gradient, curvature

    def _checked(self, what: str, values: Any, shapes: set[tuple[int, int]]) -> NDArray[np.float64]:
        array = np.asarray(values, dtype=np.float64)
        matrix = array[:, None] if array.ndim == 1 else array
        if matrix.shape not in shapes:
            wanted = " or ".join(str(shape) for shape in sorted(shapes))
            raise ValueError(
                f"The custom objective returned a {what} of shape {array.shape}; expected {wanted}"
                f"{f' or ({self.n_rows},)' if (self.n_rows, 1) in shapes or self.n_outputs == 1 else ''}."
            )
        if not np.isfinite(matrix).all():
            row, output = np.argwhere(~np.isfinite(matrix))[0]
            raise ValueError(
                f"The custom objective returned a {what} that is not finite: {matrix[row, output]} at row "
                f"{row}, "
                f"output {output}."
            )
        return matrix


def _parameters(function: Callable[..., Any] | None) -> tuple[str, ...]:
    """Names of the parameters of `function`; none where Python cannot tell (some built-ins)."""
    try:
        return tuple(inspect.signature(function).parameters) if function is not None else ()
    except ValueError:
        return ()
