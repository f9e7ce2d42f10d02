"""Objectives given as Python functions: calling conventions, and checks of what they return."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polyleaf.objectives._utils import (
    HESSIAN_CHOICES,
    Floats,
    ensure_nonnegative_hessian,
    pack,
    packed_diagonal,
    unpack,
)
from polyleaf.objectives.autodiff import BoundLoss, NotALoss, as_row_loss
from polyleaf.objectives.base import Array, BoundObjective, Objective, as_matrix, as_weight
from polyleaf.runtime.checks import require_choice
from polyleaf.runtime.context import Context
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.types import DataLike
from polyleaf.user_data.validation import describe_signature_mismatch


@dataclass(frozen=True)
class Custom(Objective):
    """A loss that JAX differentiates, or a function that returns derivatives.

    Parameters
    ----------
    function : callable
        What it returns decides which of the two it is.

        ``loss(y, scores) -> loss``, written with JAX: for one row, y is the target (a class id, a
        number, or ``(T,)``), scores are float64 ``(K,)`` (a number for one output) without a link,
        and the loss is one number. A function of all rows that returns one loss per row is
        accepted, too. The base score minimises the loss, and training can report it. Requires
        ``pip install "polyleaf[jax]"``.

        ``function(y_true, y_pred) -> (gradient, hessian)``, the convention of XGBoost and
        LightGBM: `y_true` is the target of all rows, ``(n,)`` for one output or class ids, else
        ``(n, K)``. `y_pred` are scores, float64, ``(n,)`` for one output, else ``(n, K)``. The
        gradient has the shape of `y_pred`; the Hessian is None (1 everywhere), ``(n,)`` or ``(n,
        1)`` (one for all outputs), ``(n, K)``, or full Hessians ``(n, K, K)`` for estimators with
        ``hessian="full"``. Weights are applied to the result, unless the signature has
        `sample_weight`: it then receives them (``(n,)``, ``(n, K)`` or None), and its result
        counts as weighted. The base score is 0 and the loss is unknown (NaN).
    n_outputs : int, optional
        Number of scores. Default: columns of the target; for class ids the largest id plus one.
    hessian : {"exact", "absolute", "clip", "none"}, default "exact"
        Treatment of a negative second derivative (or eigenvalue of a Hessian): raise, take its
        absolute value, or take 0. "none": use 1 in place of second derivatives, also for losses
        that have none.

    Notes
    -----
    An objective read from a model file has no function: it can predict, not train.
    """

    name: ClassVar[str] = "custom"
    target_kinds: ClassVar[tuple[str, ...]] = ("values", "labels", "classes")
    parameters: ClassVar[Mapping[str, str]] = {"n_outputs": "n_outputs"}
    default_metric: ClassVar[str] = "rmse"
    has_default_metric: ClassVar[bool] = False  # which is of scores, not of the loss
    separable: ClassVar[bool] = False

    function: Callable[..., Any] | None = None
    n_outputs: int | None = None
    hessian: str = "exact"

    def __post_init__(self) -> None:
        require_choice(self.hessian, HESSIAN_CHOICES, "Objective 'custom': hessian")

    def n_scores(self, n_targets: int) -> int:
        return self.n_outputs or n_targets

    def bind_outputs(self, n_outputs: int | None, first_order: bool) -> Custom:
        custom = super().bind_outputs(n_outputs, first_order)
        return replace(custom, hessian="none") if first_order else custom

    def get_default_metric(self, kind: str, n_targets: int) -> str:
        if kind != "regression":
            return "merror" if kind == "multiclass" else "error"
        return self.default_metric if self.n_scores(n_targets) == n_targets else "loss"

    def bind(self, rows: RowData) -> BoundCustomObjective | BoundLoss:
        if self.function is None:
            raise ValueError(
                "This objective was read from a model file, which does not contain the function of "
                "a custom objective. Pass the function again to continue training."
            )
        _check_signature(self.function)
        target = np.asarray(rows.target)
        if target.ndim == 1 and target.dtype.kind in "iu":
            n_outputs = self.n_outputs or int(target.max(initial=0)) + 1
            weight = as_weight(rows)
        else:
            target = as_matrix(target)
            n_outputs = self.n_outputs or target.shape[1]
            weight = as_weight(rows, n_outputs)
            target = target[:, 0] if target.shape[1] == 1 else target
        rows = rows.replace(target=target, weight=weight).protect()
        return BoundCustomObjective(self, rows, n_outputs).resolve()

    def to_dict(self) -> dict[str, object]:
        choice = {} if self.hessian == "exact" else {"hessian": self.hessian}
        return {"name": self.name, "n_outputs": self.n_outputs, **choice}


class BoundCustomObjective(BoundObjective):
    """A `Custom` function that returns derivatives, bound to data."""

    objective: Custom

    def __init__(self, objective: Custom, rows: RowData, n_outputs: int) -> None:
        super().__init__(objective, rows, n_outputs)
        self._takes_weight = "sample_weight" in _get_parameters(objective.function)
        self._no_loss_reason = ""
        self._shape: tuple[int, ...] | None = None  # of the returned Hessian; (0,): None

    # --- which of the two ---

    def resolve(self) -> BoundCustomObjective | BoundLoss:
        """Return a `BoundLoss` if the function is a loss, otherwise this.

        If JAX has been imported, the function is traced as a loss, which computes nothing. If not,
        only a function that imports JAX itself can use it; the function is called once to find
        out.
        """
        if self._takes_weight or (not _is_jax_loaded() and self._returns_pair()):
            return self
        target = self.target if self.target.dtype.kind in "iu" else self.target.astype(np.float64)
        assert self.objective.function is not None
        try:
            loss = as_row_loss(self.objective.function, target, self.n_outputs)
        except NotALoss as error:
            self._no_loss_reason = str(error)
            return self
        rows, choice = self.rows.replace(target=target), self.objective.hessian
        return BoundLoss(self.objective, rows, self.n_outputs, loss, choice)

    def _returns_pair(self) -> bool:
        try:
            returned = self._call_function(np.zeros((self.n_rows, self.n_outputs), np.float32))
        except Exception:
            if not _is_jax_loaded():
                raise
            return False
        return _is_pair(returned)

    # --- the interface of bound objectives ---

    def base_score(self, n_threads: int | Context = 1) -> Floats:
        return np.zeros(self.n_outputs)

    def loss(self, raw: Array, n_threads: int = 1) -> float:
        return float("nan")

    def hessian_shape(self) -> tuple[int, int] | None:
        """Return the shape that the function returns at the base score; calls the function once."""
        if self._shape is None:
            _, h = self._evaluate(np.zeros((self.n_rows, self.n_outputs), np.float32))
            self._shape = (0,) if h is None else h.shape[1:]
        if len(self._shape) > 1:
            raise ValueError(
                f"The custom objective returned full Hessians {(self.n_rows, *self._shape)}, which "
                'only hessian="full" with leaf_hessian="full" uses. Set these, or return the '
                f"diagonal of shape {(self.n_rows, self.n_outputs)}."
            )
        columns = self._shape[0]
        if self.weight is not None and not self._takes_weight:
            columns = max(columns, self.weight.shape[1])
        return None if columns == 0 else (self.n_rows, columns)

    @property
    def zero_hessian_mask(self) -> NDArray[np.bool_]:
        return np.ones(self.n_outputs, bool)

    def derivatives(self, raw: Array, g: Array, h: Array | None, n_threads: int = 1) -> None:
        gradient, hessian = self._evaluate(raw)
        weight = 1.0 if self.weight is None or self._takes_weight else self.weight
        n_columns = 0 if h is None else h.shape[1]
        if hessian is not None and (hessian.ndim > 2 or hessian.shape[1] > n_columns):
            first = f"one of {n_columns} column(s)" if n_columns else "None"
            raise ValueError(
                f"The custom objective returned a Hessian of shape {hessian.shape}, but {first} "
                "the first time. It must always return the same shape."
            )
        with np.errstate(over="ignore"):
            g[...] = gradient * weight
            if h is not None:
                h[...] = (1.0 if hessian is None else hessian) * weight
        self._check_range(g, h)

    def full_hessian(self, raw: Array, g: Array, h: Array, n_threads: int = 1) -> None:
        gradient, hessian = self._evaluate(raw)
        if hessian is None:  # 1 everywhere
            hessian = np.ones((self.n_rows, self.n_outputs))
        elif hessian.ndim == 2 and self.n_outputs > 1:
            raise ValueError(
                f"The custom objective returned a Hessian of shape {hessian.shape}, but "
                f'hessian="full" needs {(self.n_rows, self.n_outputs, self.n_outputs)}. Return '
                'full Hessians, or set hessian="diagonal".'
            )
        weight = np.ones((1, 1)) if self.weight is None or self._takes_weight else self.weight
        if weight.shape[1] > 1 and hessian.ndim > 2:
            raise ValueError(
                "The custom objective returned full Hessians, which weights of single outputs (or "
                "missing targets) cannot be applied to. Use one weight per row, or add a parameter "
                "sample_weight to the function and apply the weights there."
            )
        with np.errstate(over="ignore"):
            g[...] = gradient * weight
            if hessian.ndim == 2:
                h[...] = 0.0
                h[:, packed_diagonal(self.n_outputs)] = hessian * weight
            else:
                h[...] = pack(hessian) * weight
        self._check_range(g, h)

    # --- the function and what it returns ---

    def _evaluate(self, raw: Array) -> tuple[Floats, Floats | None]:
        """Return the checked gradient ``(n, K)`` and Hessian ``(n, 1)``, ``(n, K)``, ``(n, K, K)``
        or None of the function."""
        returned = self._call_function(raw)
        if not _is_pair(returned):
            raise ValueError(
                "A custom objective must return two things, (gradient, hessian), or be a loss, one "
                f"number for each row; got {_describe(returned)}. The Hessian may be None."
                + (f" It is not a loss: {self._no_loss_reason}." if self._no_loss_reason else "")
            )
        gradient = self._check_array("gradient", returned[0], {(self.n_rows, self.n_outputs)})
        choice = self.objective.hessian
        if returned[1] is None or choice == "none":
            return gradient, None
        shapes = {
            (self.n_rows, 1),
            (self.n_rows, self.n_outputs),
            (self.n_rows, self.n_outputs, self.n_outputs),
        }
        hessian = self._check_array("Hessian", returned[1], shapes)
        if self.n_outputs == 1:
            hessian = hessian.reshape(-1, 1)
        if hessian.ndim == 2:
            return gradient, ensure_nonnegative_hessian(hessian, choice, _describe_row)
        self._check_symmetric(hessian)
        packed = pack((hessian + hessian.transpose(0, 2, 1)) / 2)
        packed = ensure_nonnegative_hessian(packed, choice, _describe_row, self.n_outputs)
        return gradient, unpack(packed, self.n_outputs)

    def _call_function(self, raw: Array) -> Any:
        scores = raw + self.base
        keywords = {}
        if self._takes_weight:
            weight = self.weight
            if weight is not None and weight.shape[1] == 1:
                weight = weight[:, 0]
            keywords["sample_weight"] = weight
        assert self.objective.function is not None
        return self.objective.function(
            self.target, scores[:, 0] if self.n_outputs == 1 else scores, **keywords
        )

    def _check_array(self, name: str, values: DataLike, shapes: set[tuple[int, ...]]) -> Floats:
        array = np.asarray(values, dtype=np.float64)
        matrix = array[:, None] if array.ndim == 1 else array
        if matrix.shape not in shapes:
            expected = " or ".join(
                str(shape) for shape in sorted(shapes, key=lambda s: (len(s), s))
            )
            if (self.n_rows, 1) in shapes or self.n_outputs == 1:
                expected += f" or ({self.n_rows},)"
            raise ValueError(
                f"The custom objective returned a {name} of shape {array.shape}; "
                f"expected {expected}."
            )
        if not np.isfinite(matrix).all():
            row, *place = np.argwhere(~np.isfinite(matrix))[0].tolist()
            output = place[0] if len(place) == 1 else tuple(place)
            raise ValueError(
                f"The custom objective returned a {name} that is not finite: {matrix[row, *place]} "
                f"at row {row}, output {output}."
            )
        return matrix

    def _check_symmetric(self, hessians: Floats) -> None:
        size = np.abs(hessians).max(axis=(1, 2), initial=0.0)
        odd = np.abs(hessians - hessians.transpose(0, 2, 1)) > 1e-6 * size[:, None, None]
        if odd.any():
            row, i, j = np.argwhere(odd)[0]
            raise ValueError(
                f"The custom objective returned a Hessian that is not symmetric at row {row}: "
                f"entry ({i}, {j}) is {hessians[row, i, j]:.6g}, but ({j}, {i}) is "
                f"{hessians[row, j, i]:.6g}. Return second derivatives, for example (H + "
                "H.transpose(0, 2, 1)) / 2."
            )

    def _check_range(self, g: Array, h: Array | None) -> None:
        if not np.isfinite(g).all() or (h is not None and not np.isfinite(h).all()):
            raise ValueError(
                "The custom objective returned values beyond the range of float32 (3.4e38)."
            )


def _describe_row(row: int) -> str:
    return f"row {row}"


def _check_signature(function: Callable[..., object]) -> None:
    keywords = ("sample_weight",) if "sample_weight" in _get_parameters(function) else ()
    mismatch = describe_signature_mismatch(function, 2, keywords)
    if mismatch:
        raise ValueError(
            "A custom objective is called with two arguments, (y_true, y_pred), and with "
            f"sample_weight if it has a parameter of that name; {mismatch}. Fix its other "
            "arguments with functools.partial or a lambda."
        )


def _is_jax_loaded() -> bool:
    return hasattr(sys.modules.get("jax"), "enable_x64")


def _is_pair(returned: object) -> bool:
    return isinstance(returned, (tuple, list)) and len(returned) == 2


def _describe(returned: object) -> str:
    shape = getattr(returned, "shape", None)
    return type(returned).__name__ + ("" if shape is None else f" of shape {tuple(shape)}")


def _get_parameters(function: Callable[..., object] | None) -> tuple[str, ...]:
    """Return the names of a function's parameters; empty if Python cannot tell (some built-ins)."""
    try:
        return tuple(inspect.signature(function).parameters) if function is not None else ()
    except ValueError:
        return ()
