"""Losses written with JAX: derivatives by automatic differentiation, and checks that boosting can
use them.

Derivatives are exact and in float64, whatever the precision that JAX is set to. Rows pass through
one compiled function in chunks of one size, which bounds the memory for any number of rows and
outputs. JAX uses its own threads, or its own device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

import polyleaf._core as _core
from polyleaf.objectives._utils import (
    FIRST_ORDER_HINT,
    Floats,
    check_hessian_not_negative,
    ensure_nonnegative_hessian,
    packed_diagonal,
    packed_lower,
    unpack,
)
from polyleaf.objectives.base import Array, BoundObjective, Objective
from polyleaf.runtime.context import Context
from polyleaf.runtime.row_data import RowData

if TYPE_CHECKING:
    from jax import Array as JaxArray
    from jax.extend.core import Jaxpr

# Entries of Hessians (float64) in a chunk.
_CHUNK_ENTRIES = 1 << 20
_PROBE_ROWS, _PROBE_OUTPUTS = 8, 16  # on which derivatives are checked

RowLoss: TypeAlias = "Callable[[JaxArray, JaxArray], object]"
Derivatives = dict[str, Floats]


class ConstantLoss(ValueError):
    """A loss that does not depend on the predictions."""


class NotALoss(Exception):
    """JAX cannot trace the function as a loss of one row; the message contains the reason."""


def import_jax() -> ModuleType:
    """Return the module `jax`; raise ImportError with installation instructions."""
    try:
        import jax
    except ImportError:
        raise ImportError(
            "The objective is a loss without derivatives, which needs JAX, but JAX is not "
            'installed: pip install "polyleaf[jax]". Or return (gradient, '
            "hessian) from the function."
        ) from None
    if not hasattr(jax, "enable_x64"):
        raise ImportError(
            f'JAX {jax.__version__} is too old; pip install --upgrade "polyleaf[jax]".'
        )
    return jax


def as_row_loss(function: Callable[..., object], target: Array, n_outputs: int) -> RowLoss:
    """Return `function` as a loss of one row: ``(target of the row, scores (K,)) -> scalar``, in
    JAX.

    It is traced on one row, then on a batch of one row, so functions of all rows that return one
    loss per row are accepted. Only shapes are computed, no values.

    Raises a NotALoss with the error of JAX.
    """
    jax = import_jax()

    def row_loss(y: JaxArray, z: JaxArray) -> object:
        return function(y, z[0] if n_outputs == 1 else z)

    def batch_loss(y: JaxArray, z: JaxArray) -> object:
        return jax.numpy.reshape(function(y[None], z if n_outputs == 1 else z[None]), ())

    with jax.enable_x64(True):
        row = jax.ShapeDtypeStruct(target.shape[1:], target.dtype)
        scores = jax.ShapeDtypeStruct((n_outputs,), np.float64)
        reasons: list[str] = []
        for loss in (row_loss, batch_loss):
            try:
                traced, result = jax.make_jaxpr(loss, return_shape=True)(row, scores)
                reason = _describe_non_loss(result)
            except (
                Exception
            ) as error:  # a function that is not meant for one row may raise anything
                text = str(error).strip() or "no message"
                reason = f"{type(error).__name__}: {text.splitlines()[0]}"
            if reason is None:
                _check_not_constant(traced.jaxpr)
                return loss
            reasons.append(reason)
    raise NotALoss(reasons[0])  # the error for one row is clearer


def _check_not_constant(jaxpr: Jaxpr) -> None:
    """Raise `ConstantLoss` if the result of a traced loss of (target, scores) depends on no
    score."""
    reached = {id(jaxpr.invars[-1])}
    for step in jaxpr.eqns:
        if any(id(value) in reached for value in step.invars):
            reached |= {id(value) for value in step.outvars}
    if id(jaxpr.outvars[0]) not in reached:
        raise ConstantLoss(
            "The custom objective does not depend on the scores, its second argument, so its "
            "derivative is 0 and nothing can be learned. Return (gradient, hessian), or a loss "
            "that uses the scores."
        )


def _describe_non_loss(result: object) -> str | None:
    shape, dtype = getattr(result, "shape", None), getattr(result, "dtype", None)
    if shape is None or dtype is None:
        return f"it returns {type(result).__name__}"
    if shape != ():
        return f"for one row it returns an array of shape {shape} instead of one number"
    if not np.issubdtype(dtype, np.floating):
        return f"it returns {dtype}, which has no derivative"
    return None


class BoundLoss(BoundObjective):
    """A loss bound to data: ``target`` is class ids ``(n,)``, or float64 ``(n,)`` or ``(n, T)``.

    `hessian` is one of `HESSIAN_CHOICES`. The base score minimises the loss over constants (L-BFGS
    from 0).
    """

    def __init__(
        self, objective: Objective, rows: RowData, n_outputs: int, loss: RowLoss, hessian: str
    ) -> None:
        super().__init__(objective, rows, n_outputs)
        self.hessian = hessian
        if rows.weight is not None and rows.weight.shape[1] > 1:
            raise ValueError(
                "The objective is a loss of whole rows, which weights of single outputs (or "
                "missing targets) cannot be applied to. Use one weight per row, or return "
                "(gradient, hessian)."
            )
        self._chunk = max(1, min(max(self.n_rows, 1024), _CHUNK_ENTRIES // n_outputs**2))
        self._jax = import_jax()
        self._functions = _compile_functions(self._jax, loss, n_outputs)
        self._checked: set[str] = set()

    # --- the interface of bound objectives ---

    def base_score(self, n_threads: int | Context = 1) -> Floats:
        from scipy.optimize import minimize

        best = np.inf, np.zeros(self.n_outputs)

        def mean_loss(base: Floats) -> tuple[float, Floats]:
            nonlocal best
            value, slope = self._mean(
                lambda rows: np.broadcast_to(base, (rows.stop - rows.start, self.n_outputs)),
                n_threads,
            )
            if not (np.isfinite(value) and np.isfinite(slope).all()):
                return 1e300, np.zeros_like(base)
            if value < best[0]:
                best = value, base.copy()
            return value, slope

        minimize(mean_loss, best[1], jac=True, method="L-BFGS-B", options={"maxiter": 100})
        return best[1]

    def hessian_shape(self) -> tuple[int, int] | None:
        if self.hessian != "none":
            return (self.n_rows, self.n_outputs)
        return None if self.weight is None else (self.n_rows, 1)

    def derivatives(self, raw: Array, g: Array, h: Array | None, n_threads: int = 1) -> None:
        first_order = self.hessian == "none"
        self._write("slope" if first_order else "diagonal", raw, g, None if first_order else h)
        if h is not None and first_order:
            h[...] = 1.0 if self.weight is None else self.weight

    def full_hessian(self, raw: Array, g: Array, h: Array, n_threads: int = 1) -> None:
        if self.hessian != "none":
            return self._write("full", raw, g, h)
        self._write("slope", raw, g, None)
        h[...] = 0.0
        h[:, packed_diagonal(self.n_outputs)] = 1.0 if self.weight is None else self.weight

    def _write(self, kind: str, raw: Array, g: Array, h: Array | None) -> None:
        """Write the gradient and Hessian, times the weights, of all rows."""
        for rows, derivatives in self._derivatives(kind, raw):
            weight = 1.0 if self.weight is None else self.weight[rows]
            with np.errstate(over="ignore"):
                g[rows] = derivatives["gradient"] * weight
                if h is not None:
                    h[rows] = derivatives["hessian"] * weight
        if not np.isfinite(g).all() or (h is not None and not np.isfinite(h).all()):
            raise ValueError(
                "Derivatives of the loss are beyond the range of float32 (3.4e38). Rescale the "
                "target, or clip the scores inside the loss."
            )

    def loss(self, raw: Array, n_threads: int = 1) -> float:
        return self._mean(lambda rows: raw[rows] + self.base, n_threads)[0]

    # --- evaluation ---

    def _mean(
        self, scores: Callable[[slice], Floats], n_threads: int | Context
    ) -> tuple[float, Floats]:
        """Return the weighted mean loss and its gradient (K,) at `scores(rows)`."""
        parts = []
        for rows in self._slices():
            derivatives = self._evaluate_rows("slope", rows, scores(rows))
            parts.append(np.column_stack([derivatives["value"], derivatives["gradient"]]))
        values = np.concatenate(parts).astype(np.float64)
        sums, totals = _core.exact_totals(values, self.weight, None, 1, n_threads)[:, 0]
        means = sums / totals[0] if totals[0] > 0 else sums * 0.0
        return float(means[0]), means[1:]

    def _slices(self) -> Iterator[slice]:
        for begin in range(0, self.n_rows, self._chunk):
            yield slice(begin, min(begin + self._chunk, self.n_rows))

    def _derivatives(self, kind: str, raw: Array) -> Iterator[tuple[slice, Derivatives]]:
        """Yield rows with their checked gradient and nonnegative Hessian."""
        if kind not in self._checked:
            _check_derivatives(self, raw, kind)
            self._checked.add(kind)
        for rows in self._slices():
            z = raw[rows] + self.base
            derivatives = self._evaluate_rows(kind, rows, z)
            self._check_finite(derivatives, rows, z)
            if "hessian" in derivatives:
                derivatives["hessian"] = ensure_nonnegative_hessian(
                    derivatives["hessian"],
                    self.hessian,
                    partial(self._describe_chunk_row, rows, z),
                    self.n_outputs if kind == "full" else None,
                )
            yield rows, derivatives

    def _evaluate_rows(self, kind: str, rows: slice, z: Floats) -> Derivatives:
        """Evaluate a compiled function on these rows; rows of weight 0 give 0, as if they were
        absent."""
        derivatives = self.evaluate(kind, self.target[rows], z)
        if self.weight is not None:
            absent = self.weight[rows, 0] == 0
            for values in derivatives.values() if absent.any() else ():
                values[absent] = 0.0
        return derivatives

    def evaluate(self, kind: str, target: Array, z: Floats) -> Derivatives:
        """Run a compiled function on any number of rows, in chunks of the size it was compiled
        for."""
        parts = []
        with self._jax.enable_x64(True):
            for begin in range(0, len(z), self._chunk):
                rows = np.minimum(np.arange(begin, begin + self._chunk), len(z) - 1)
                derivatives = self._functions[kind](target[rows], np.ascontiguousarray(z[rows]))
                used = min(self._chunk, len(z) - begin)
                parts.append({name: np.asarray(v)[:used] for name, v in derivatives.items()})
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    # --- error messages ---

    def _describe_chunk_row(self, rows: slice, z: Floats, row: int) -> str:
        return self.describe_row(rows.start + row, z[row])

    def describe_row(self, row: int, z: Floats) -> str:
        """Return a description of a row and its scores `z` (K,)."""
        y, scores = (np.array2string(a, precision=6, threshold=8) for a in (self.target[row], z))
        return f"row {row} (y = {y}, raw scores = {scores})"

    def _check_finite(self, derivatives: Derivatives, rows: slice, z: Floats) -> None:
        bad = ~np.isfinite(derivatives["value"]) | ~np.isfinite(derivatives["gradient"]).all(axis=1)
        if "hessian" in derivatives:
            bad |= ~np.isfinite(derivatives["hessian"]).all(axis=1)
        if not bad.any():
            return
        row = int(np.argmax(bad))
        place, value = self._describe_chunk_row(rows, z, row), derivatives["value"][row]
        if not np.isfinite(value):
            raise ValueError(
                f"The loss is {value} at {place}. Write it so that it is finite for every score, "
                "for example with jax.nn.log_softmax or jax.nn.softplus if log and exp overflow."
            )
        raise ValueError(
            f"The loss is {value:.6g} at {place}, but its derivatives are not finite. In jnp.where "
            "the branch that is not taken must be differentiable, too: guard its argument by a "
            "jnp.where inside it. sqrt and powers have no derivative at 0."
        )


def _compile_functions(
    jax: ModuleType, loss: RowLoss, n_outputs: int
) -> dict[str, Callable[..., dict[str, object]]]:
    """Return compiled functions of a chunk: ``(targets, scores (c, K)) -> {name: float64 (c,
    ...)}``."""
    lower = packed_lower(n_outputs)
    gradient = jax.grad(loss, argnums=1)
    hessian = jax.jacfwd(gradient, argnums=1)  # forward over reverse: one gradient per output

    def slope(y: JaxArray, z: JaxArray) -> dict[str, object]:
        return {"value": loss(y, z), "gradient": gradient(y, z)}

    def diagonal(y: JaxArray, z: JaxArray) -> dict[str, object]:
        return slope(y, z) | {"hessian": jax.numpy.diagonal(hessian(y, z))}

    def full(y: JaxArray, z: JaxArray) -> dict[str, object]:
        return slope(y, z) | {"hessian": hessian(y, z)[lower]}

    return {f.__name__: jax.jit(jax.vmap(f)) for f in (slope, diagonal, full)}


@np.errstate(over="ignore", invalid="ignore")
def _check_derivatives(bound: BoundLoss, raw: Array, kind: str) -> None:
    """Compare derivatives with finite differences at a few rows and outputs, near the given scores;
    second derivatives must not all be 0, nor full Hessians have negative eigenvalues.

    Points at which the loss is not finite are left out: it may be undefined there, and training
    raises an error if that matters.
    """
    present = np.arange(bound.n_rows)
    if bound.weight is not None and bound.weight.any():
        present = np.flatnonzero(bound.weight[:, 0] > 0)
    probed = present[np.unique(np.linspace(0, len(present) - 1, _PROBE_ROWS).astype(int))]
    outputs = np.unique(np.linspace(0, bound.n_outputs - 1, _PROBE_OUTPUTS).astype(int))
    given, targets = raw[probed] + bound.base, bound.target[probed]
    centres = [(given, 1.0), (given, 3.0)]
    if targets.dtype.kind == "f" and targets.size == given.size:  # the loss may be least there
        centres.append((targets.reshape(given.shape), 0.5))
    rng = np.random.default_rng(0)  # a random point does not lie on a kink
    scores = np.concatenate([c + rng.uniform(-spread, spread, c.shape) for c, spread in centres])
    rows = np.tile(probed, len(centres))
    derivatives = bound.evaluate(kind, bound.target[rows], scores)
    is_finite = np.ones(len(rows), bool)
    for values in derivatives.values():
        is_finite &= np.isfinite(values).reshape(len(rows), -1).all(axis=1)
    if not is_finite.any():
        return
    rows, scores = rows[is_finite], scores[is_finite]
    value, gradient = derivatives["value"][is_finite], derivatives["gradient"][is_finite]

    # Below, arrays have an entry for each point and output, which takes a step up or down there.
    point, output = np.repeat(np.arange(len(rows)), len(outputs)), np.tile(outputs, len(rows))
    entry = np.arange(len(point))
    step = np.cbrt(np.finfo(np.float64).eps) * np.maximum(1.0, np.abs(scores).max(axis=1))[point]

    def evaluate_shifted(shift: Floats) -> Derivatives:
        shifted = scores[point]
        shifted[entry, output] += shift
        return bound.evaluate("slope", bound.target[rows[point]], shifted)

    def compare(name: str, derivative: Array, differences: Array, size: Array) -> None:
        rounding = size / step[:, None] * 1e-14
        tolerance = 1e-3 * (np.abs(derivative) + np.abs(differences)) + 1e-5 + rounding
        is_wrong = np.isfinite(differences) & (np.abs(derivative - differences) > tolerance)
        if is_wrong.any():
            wrong, column = np.argwhere(is_wrong)[0]
            raise ValueError(
                f"The {name} of the loss is {derivative[wrong, column]:.6g} for output "
                f"{output[wrong]} of "
                f"{bound.describe_row(rows[point[wrong]], scores[point[wrong]])} according to JAX, "
                f"but {differences[wrong, column]:.6g} by finite differences. Possible causes are "
                "rounding and casts inside the loss (round, floor, astype), jax.lax.stop_gradient "
                "and derivatives written by hand (jax.custom_jvp): remove them, or return "
                "(gradient, hessian) from the function."
            )

    above, below = evaluate_shifted(step), evaluate_shifted(-step)
    slope = gradient[point, output]
    differences = (above["value"] - below["value"]) / (2 * step)
    compare("gradient", slope[:, None], differences[:, None], np.abs(value)[point, None])
    if kind == "slope":
        return
    differences = (above["gradient"] - below["gradient"]) / (2 * step[:, None])
    hessian = derivatives["hessian"][is_finite]
    if kind == "full":
        hessian = unpack(hessian, bound.n_outputs)[point, output]
    else:
        hessian, differences = hessian[point, output, None], differences[entry, output, None]
    largest = np.abs(above["gradient"]).max(axis=1, keepdims=True)
    compare("second derivative", hessian, differences, largest)
    shape = len(rows), len(outputs)
    is_flat = (hessian == 0).all(axis=1).reshape(shape).all(axis=0)
    _check_not_flat(outputs[is_flat & (slope != 0).reshape(shape).any(axis=0)], len(rows))
    if kind == "full" and bound.hessian == "exact":
        hessians = unpack(bound.evaluate("full", targets, given)["hessian"], bound.n_outputs)
        if np.isfinite(hessians).all():
            check_hessian_not_negative(
                np.linalg.eigvalsh(hessians).astype(np.float64),
                lambda i: bound.describe_row(probed[i], given[i]),
            )


def _check_not_flat(outputs: Array, n_points: int) -> None:
    if len(outputs):
        raise ValueError(
            f"The loss has no second derivative: it is 0 for output {outputs[0]} at all {n_points} "
            "points tried, as for |x|, relu, hinges and other piecewise linear functions. "
            f'{FIRST_ORDER_HINT} (that is Custom(loss, hessian="none")), or smooth the loss.'
        )
