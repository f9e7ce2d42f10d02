"""An objective given as a Python function. Owns the calling conventions and the checks of what comes back;
must not know the losses of the core, nor how a loss is differentiated (autodiff.py)."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polyleaf.inputs.functions import describe_signature_mismatch
from polyleaf.objectives import curvature as curvatures
from polyleaf.objectives.autodiff import BoundLoss, NotALoss, as_row_loss
from polyleaf.objectives.base import (
    TARGET_KINDS,
    Array,
    BoundObjective,
    Objective,
    as_matrix,
    as_weight,
    stored_name,
)
from polyleaf.objectives.packed_symmetric import pack, packed_diagonal, unpack


@dataclass(frozen=True)
class Custom(Objective):
    """A loss, whose derivatives JAX finds; or a function that returns derivatives.

    Parameters
    ----------
    function : callable
        Which of the two it is, is seen from what it returns.

        ``loss(y, scores) -> loss``, written with JAX: of one row, y is the target (a class id, a number, or
        ``(T,)``), scores are float64 ``(K,)`` (a number for one output) with no link applied, and the loss is
        one number. A function of all rows at once that returns one loss per row is taken as well. The base
        score minimises it, and training can tell the loss. Needs the extra: ``pip install "polyleaf[jax]"``.

        ``function(y_true, y_pred) -> (gradient, curvature)``, the convention of XGBoost and LightGBM:
        `y_true` is the target of all rows, ``(n,)`` for one output or class ids, else ``(n, K)``. `y_pred`
        are scores, float64, ``(n,)`` for one output, else ``(n, K)``. The gradient has the shape of `y_pred`;
        the curvature is None (1 throughout), ``(n,)`` or ``(n, 1)`` (one for all outputs), ``(n, K)``, or the
        Hessians ``(n, K, K)`` where ``hessian="full"``. Weights are applied to what comes back, unless the
        signature has `sample_weight`: it then gets them (``(n,)``, ``(n, K)`` or None), and what comes back
        is taken as weighted. The base score is 0 and the loss is not known (NaN).
    n_outputs : int, optional
        Number of scores. Default: columns of the target; for class ids the largest id plus one.
    hessian : {"exact", "absolute", "clip", "none"}, default "exact"
        Where a second derivative (or an eigenvalue of a Hessian) is negative: raise, take its absolute value,
        or take 0. "none": no second derivative is used, 1 stands for it, as for losses that have none.

    Notes
    -----
    An objective read from a model file has no function: it can predict, not train.
    """

    name: ClassVar[str] = "custom"
    target_kinds: ClassVar[tuple[str, ...]] = TARGET_KINDS
    parameters: ClassVar[Mapping[str, str]] = {"n_outputs": "n_outputs"}
    default_metric: ClassVar[str] = "rmse"
    separable: ClassVar[bool] = False

    function: Callable[..., Any] | None = None
    n_outputs: int | None = None
    hessian: str = "exact"

    def __post_init__(self) -> None:
        if self.hessian not in curvatures.CHOICES:
            raise ValueError(
                f"Objective 'custom': hessian must be one of {', '.join(curvatures.CHOICES)}; got "
                f"{self.hessian!r}."
            )

    def n_scores(self, n_targets: int) -> int:
        return self.n_outputs or n_targets

    def bind_outputs(self, n_outputs: int | None, first_order: bool) -> Custom:
        suited = super().bind_outputs(n_outputs, first_order)
        return replace(suited, hessian="none") if first_order else suited

    def get_default_metric(self, kind: str, n_targets: int) -> str:
        if kind != "regression":
            return "merror" if kind == "multiclass" else "error"
        return self.default_metric if self.n_scores(n_targets) == n_targets else "loss"

    def bind(self, target: Array, weight: Array | None) -> BoundCustomObjective | BoundLoss:
        if self.function is None:
            raise ValueError(
                "This objective came from a model file, which does not hold the function of a custom "
                "objective. To train on, pass the function again."
            )
        _check_signature(self.function)
        target = np.asarray(target)
        if target.ndim == 1 and target.dtype.kind in "iu":
            n_outputs = self.n_outputs or int(target.max(initial=0)) + 1
            weight = as_weight(weight, target.size, 1)
        else:
            target = as_matrix(target)
            n_outputs = self.n_outputs or target.shape[1]
            weight = as_weight(weight, target.shape[0], n_outputs)
            target = target[:, 0] if target.shape[1] == 1 else target
        return BoundCustomObjective(self, target, n_outputs, weight).resolved()

    def to_dict(self) -> dict[str, Any]:
        choice = {} if self.hessian == "exact" else {stored_name("hessian"): self.hessian}
        return {"name": self.name, "n_outputs": self.n_outputs, **choice}


class BoundCustomObjective(BoundObjective):
    """`Custom` with a function that returns derivatives, bound to data."""

    objective: Custom

    def __init__(
        self, objective: Custom, target: Array, n_outputs: int, weight: Array | None
    ) -> None:
        super().__init__(objective, len(target), n_outputs, weight)
        self.target = target
        self._takes_weight = "sample_weight" in _parameters(objective.function)
        self._why_no_loss = ""
        self._shape: tuple[int, ...] | None = None  # of the curvature as returned; (0,): None

    # --- which of the two ---

    def resolved(self) -> BoundCustomObjective | BoundLoss:
        """This problem, or the same of a loss where the function is one.

        Where JAX has been imported, the function is traced as a loss, which computes nothing. Where it has
        not, a function that uses it cannot exist, unless it imports it itself; it is called once to see.
        """
        if self._takes_weight or (not _jax_is_loaded() and self._returns_pair()):
            return self
        target = self.target if self.target.dtype.kind in "iu" else self.target.astype(np.float64)
        assert self.objective.function is not None
        try:
            loss = as_row_loss(self.objective.function, target, self.n_outputs)
        except NotALoss as error:
            self._why_no_loss = str(error)
            return self
        curvature = self.objective.hessian
        return BoundLoss(self.objective, loss, curvature, target, self.n_outputs, self.weight)

    def _returns_pair(self) -> bool:
        try:
            returned = self._returned(np.zeros((self.n_rows, self.n_outputs), np.float32))
        except Exception:
            if not _jax_is_loaded():
                raise
            return False
        return _is_pair(returned)

    # --- what a BoundObjective does ---

    def base_score(self, n_threads: int = 1) -> NDArray[np.float64]:
        return np.zeros(self.n_outputs)

    def loss(self, raw: Array, n_threads: int = 1) -> float:
        return float("nan")

    def hessian_shape(self) -> tuple[int, int] | None:
        """As the function returns it at the base score; asks the function once."""
        if self._shape is None:
            _, h = self._call(np.zeros((self.n_rows, self.n_outputs), np.float32))
            self._shape = (0,) if h is None else h.shape[1:]
        if len(self._shape) > 1:
            raise ValueError(
                f"The custom objective returned Hessians {(self.n_rows, *self._shape)}, which only "
                'hessian="full" with leaf_hessian="full" uses. Set these, or return the diagonal of '
                f"shape {(self.n_rows, self.n_outputs)}."
            )
        columns = self._shape[0]
        if self.weight is not None and not self._takes_weight:
            columns = max(columns, self.weight.shape[1])
        return None if columns == 0 else (self.n_rows, columns)

    @property
    def zero_hessian_mask(self) -> NDArray[np.bool_]:
        return np.ones(self.n_outputs, bool)

    def derivatives(self, raw: Array, g: Array, h: Array | None, n_threads: int = 1) -> None:
        gradient, curvature = self._call(raw)
        weight = 1.0 if self.weight is None or self._takes_weight else self.weight
        with np.errstate(over="ignore"):
            g[...] = gradient * weight
            if h is not None:
                curvature = np.ones((1, 1)) if curvature is None else curvature
                if curvature.ndim > 2 or curvature.shape[1] > h.shape[1]:
                    raise ValueError(
                        f"The custom objective returned a curvature of shape {curvature.shape}, but one of "
                        f"{h.shape[1]} column(s) the first time. It must always return the same shape."
                    )
                h[...] = curvature * weight
            elif curvature is not None:
                raise ValueError(
                    "The custom objective returned a curvature, but None the first time."
                )
        self._check_range(g, h)

    def full_hessian(self, raw: Array, g: Array, h: Array, n_threads: int = 1) -> None:
        gradient, curvature = self._call(raw)
        if curvature is None:  # 1 throughout
            curvature = np.ones((self.n_rows, self.n_outputs))
        elif curvature.ndim == 2 and self.n_outputs > 1:
            raise ValueError(
                f'The custom objective returned a curvature of shape {curvature.shape}, but hessian="full" '
                f"needs the Hessians, {(self.n_rows, self.n_outputs, self.n_outputs)}. Return these, or set "
                'hessian="diagonal".'
            )
        weight = np.ones((1, 1)) if self.weight is None or self._takes_weight else self.weight
        if weight.shape[1] > 1 and curvature.ndim > 2:
            raise ValueError(
                "The custom objective returned Hessians, which weights of single outputs (or missing "
                "targets) cannot enter. Weigh rows, or take a parameter sample_weight and apply them in the "
                "function."
            )
        with np.errstate(over="ignore"):
            g[...] = gradient * weight
            if curvature.ndim == 2:
                h[...] = 0.0
                h[:, packed_diagonal(self.n_outputs)] = curvature * weight
            else:
                h[...] = pack(curvature) * weight
        self._check_range(g, h)

    # --- the function and what it returns ---

    def _call(self, raw: Array) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Gradient ``(n, K)`` and curvature ``(n, 1)``, ``(n, K)``, ``(n, K, K)`` or None, as the function
        returns them; checked."""
        returned = self._returned(raw)
        if not _is_pair(returned):
            raise ValueError(
                "A custom objective must return two things, (gradient, curvature), or be a loss, one number "
                f"for each row; got {_described(returned)}. The curvature may be None."
                + (f" It is no loss: {self._why_no_loss}." if self._why_no_loss else "")
            )
        gradient = self._checked("gradient", returned[0], {(self.n_rows, self.n_outputs)})
        if returned[1] is None or self.objective.hessian == "none":
            return gradient, None
        shapes = {
            (self.n_rows, 1),
            (self.n_rows, self.n_outputs),
            (self.n_rows, self.n_outputs, self.n_outputs),
        }
        curvature = self._checked("curvature", returned[1], shapes)
        if self.n_outputs == 1:
            curvature = curvature.reshape(-1, 1)
        if curvature.ndim == 2:
            return gradient, curvatures.settled(curvature, self.objective.hessian, self._row)
        self._check_symmetric(curvature)
        packed = pack((curvature + curvature.transpose(0, 2, 1)) / 2)
        packed = curvatures.settled(packed, self.objective.hessian, self._row, self.n_outputs)
        return gradient, unpack(packed, self.n_outputs)

    def _returned(self, raw: Array) -> Any:
        scores = raw + self.base
        keywords = {}
        if self._takes_weight:
            flat = self.weight is not None and self.weight.shape[1] == 1
            keywords["sample_weight"] = self.weight[:, 0] if flat else self.weight  # type: ignore[index]
        assert self.objective.function is not None
        return self.objective.function(
            self.target, scores[:, 0] if self.n_outputs == 1 else scores, **keywords
        )

    def _checked(self, what: str, values: Any, shapes: set[tuple[int, ...]]) -> NDArray[np.float64]:
        array = np.asarray(values, dtype=np.float64)
        matrix = array[:, None] if array.ndim == 1 else array
        if matrix.shape not in shapes:
            wanted = " or ".join(str(shape) for shape in sorted(shapes, key=lambda s: (len(s), s)))
            raise ValueError(
                f"The custom objective returned a {what} of shape {array.shape}; expected {wanted}"
                f"{f' or ({self.n_rows},)' if (self.n_rows, 1) in shapes or self.n_outputs == 1 else ''}."
            )
        if not np.isfinite(matrix).all():
            row, *place = np.argwhere(~np.isfinite(matrix))[0].tolist()
            output = place[0] if len(place) == 1 else tuple(place)
            raise ValueError(
                f"The custom objective returned a {what} that is not finite: {matrix[row, *place]} at row "
                f"{row}, output {output}."
            )
        return matrix

    def _check_symmetric(self, hessians: NDArray[np.float64]) -> None:
        size = np.abs(hessians).max(axis=(1, 2), initial=0.0)
        odd = np.abs(hessians - hessians.transpose(0, 2, 1)) > 1e-6 * size[:, None, None]
        if odd.any():
            row, i, j = np.argwhere(odd)[0]
            raise ValueError(
                f"The custom objective returned a Hessian that is not symmetric at row {row}: entry ({i}, "
                f"{j}) is {hessians[row, i, j]:.6g}, but ({j}, {i}) is {hessians[row, j, i]:.6g}. Return "
                "second derivatives, for example (H + H.transpose(0, 2, 1)) / 2."
            )

    def _row(self, row: int) -> str:
        return f"row {row}"

    def _check_range(self, g: Array, h: Array | None) -> None:
        if not np.isfinite(g).all() or (h is not None and not np.isfinite(h).all()):
            raise ValueError(
                "The custom objective returned values beyond the range of float32 (3.4e38)."
            )


def _check_signature(function: Callable[..., Any]) -> None:
    why = describe_signature_mismatch(
        function, 2, ("sample_weight",) if "sample_weight" in _parameters(function) else ()
    )
    if why:
        raise ValueError(
            "A custom objective is called with two arguments, (y_true, y_pred), and with sample_weight where "
            f"it has a parameter of that name; {why}. Fix its other arguments with functools.partial or a "
            "lambda."
        )


def _jax_is_loaded() -> bool:
    return hasattr(sys.modules.get("jax"), "enable_x64")


def _is_pair(returned: Any) -> bool:
    return isinstance(returned, (tuple, list)) and len(returned) == 2


def _described(returned: Any) -> str:
    shape = getattr(returned, "shape", None)
    return type(returned).__name__ + ("" if shape is None else f" of shape {tuple(shape)}")


def _parameters(function: Callable[..., Any] | None) -> tuple[str, ...]:
    """Names of the parameters of `function`; none where Python cannot tell (some built-ins)."""
    try:
        return tuple(inspect.signature(function).parameters) if function is not None else ()
    except ValueError:
        return ()
