"""The contract of an objective: a frozen `Objective`, and the `BoundObjective` that it makes of
data.

The life of an objective:

1. ``get_objective(name_or_callable, **parameters)`` makes one. It is frozen and holds parameters
   only, never data. ``bind_outputs`` fills in what only an estimator knows.
2. ``objective.bind(rows)`` checks the target of a `RowData` and returns a `BoundObjective`. A
   validation set is bound a second time.
3. ``bound.base_score()`` is the constant score that minimises the loss on the training rows.
4. ``bound.set_base_score(base)``: raw scores are relative to it from here on. Every bound objective
   gets the base score of the training set.
5. ``bound.hessian_shape()`` tells which array ``h`` to allocate, or that none is needed.
6. Each round ``bound.derivatives(raw, g, h)`` writes the gradient and the Hessian's diagonal at the
   raw scores, or ``bound.full_hessian(raw, g, h)`` the gradient and the whole Hessian of each row.
7. If ``objective.updates_leaves``, ``bound.update_leaves(...)`` returns leaf values that are no
   Newton steps (medians, quantiles).
8. ``bound.loss(raw)`` is the mean training loss, whose derivative ``g`` is.
9. ``objective.transform(raw + base)`` turns scores into predictions; ``to_dict`` stores the
   objective with a model.

Shapes: ``n`` rows, ``K`` outputs. Raw scores are float32 ``(n, K)``; the base score is float64
``(K,)``. Full Hessians are packed lower triangles (_utils.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf.distributions import Distribution
from polyleaf.objectives._utils import Floats, compute_derivatives, packed_diagonal
from polyleaf.runtime.context import Context, get_communicator
from polyleaf.runtime.row_data import RowData
from polyleaf.user_data.target_scaling import sum_columns

FloatArray = NDArray[np.floating]
Array = np.ndarray

TARGET_KINDS = ("values", "labels", "classes", "relevance")

LINKS = ("identity", "logistic", "softmax", "exponential", "sorted_levels")
"""Names of the links that `Objective.transform` may apply. "sorted_levels" sorts the predictions of
each row and target, so that they rise with `quantile_levels`."""

_Self = TypeVar("_Self", bound="Objective")


@dataclass(frozen=True)
class Objective(ABC):
    """A loss with its link and its parameters; class attributes describe it to the rest of the
    package.

    Attributes
    ----------
    name : str
        Canonical name, which model files keep.
    aliases : tuple of str
        Names of the same loss in other libraries.
    target_kinds : tuple of str
        Kinds of target that it can learn: "values" are float ``(n, K)``; "labels" are the same,
        each 0 or 1 (two classes are one label); "classes" are int32 ids ``(n,)`` of one of K
        classes. A regressor has values. A classifier has labels, or classes if there are three or
        more or the objective takes no labels; an objective for labels only learns each class
        against the rest. "relevance" are float ``(n, K)``, and rows have queries
        (`RowData.query`): a ranker's target.
    parameters : mapping of str to str
        Estimator parameters that it takes, and the fields that they set. "n_outputs" stands for the
        number of classes or labels, which a classifier counts.
    separable : bool
        The loss is a sum over outputs.
    has_full_hessian : bool
        `BoundObjective.full_hessian` gives all second derivatives. True for separable losses;
        another loss overrides that method, or sets this to False.
    is_translation_invariant : bool
        The loss depends on score - target only, so that targets may be shifted and scaled.
    is_scale_dependent : bool
        Derivatives grow with the scale of a target, and nothing else in the loss does. One tree
        for all outputs is then dominated by outputs on large scales (see "auto" of
        `normalize_targets`).
    requires_standardised_target : bool
        Penalties have their documented meaning only for targets of unit standard deviation; "auto"
        of `normalize_targets` standardises them.
    has_distribution : bool
        `distribution` returns the predicted distribution of each row, of which `transform` is the
        mean.
    is_count : bool
        Targets are counts, which changes defaults of the estimator.
    updates_leaves : bool
        `BoundObjective.update_leaves` replaces the Newton step of leaves.
    updates_leaves_distributed : bool
        `update_leaves` also works in distributed training, where it communicates with the other
        ranks.
    balances_totals : bool
        `BoundObjective.find_balance` gives a constant for each tree, with which predictions of the
        training rows add up to their targets.
    is_row_separable : bool
        The derivatives of a row depend on that row only.
    probabilities : bool
        `transform` returns probabilities.
    takes_shares : bool
        "classes" may also be shares of the classes, float32 ``(n, K)`` with rows that sum to 1: a
        row counts as one row per class whose weights are the shares.
    sparse_base_score : float or None
        Base score at which the derivative for a target of 0 is 0, so that rows with few nonzero
        targets have few nonzero derivatives. None if there is none, or if the loss couples the
        outputs of a row.
    default_metric : str
        Name of the metric to evaluate if the user names none. Default: the loss itself.
    has_default_metric : bool
        Whether that metric measures what the objective learns, so that held-out rows can be
        compared by it; not for functions.
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    target_kinds: ClassVar[tuple[str, ...]] = ("values",)
    parameters: ClassVar[Mapping[str, str]] = {}
    separable: ClassVar[bool] = True
    has_full_hessian: ClassVar[bool] = True
    is_translation_invariant: ClassVar[bool] = False
    is_scale_dependent: ClassVar[bool] = False
    requires_standardised_target: ClassVar[bool] = False
    has_distribution: ClassVar[bool] = False
    is_count: ClassVar[bool] = False
    updates_leaves: ClassVar[bool] = False
    updates_leaves_distributed: ClassVar[bool] = False
    balances_totals: ClassVar[bool] = False
    is_row_separable: ClassVar[bool] = True
    probabilities: ClassVar[bool] = False
    takes_shares: ClassVar[bool] = False
    sparse_base_score: ClassVar[float | None] = None
    default_metric: ClassVar[str] = "loss"
    has_default_metric: ClassVar[bool] = True
    _ranges: ClassVar[Mapping[str, tuple[float, float]]] = {}  # numbers that fields lie between

    def __post_init__(self) -> None:
        for field, (low, high) in self._ranges.items():
            value = getattr(self, field)
            if not (isinstance(value, (int, float)) and low < value < high):
                limits = f"lie between {low:g} and {high:g}"
                limits = limits if np.isfinite(high) else "be a finite number > 0"
                raise ValueError(f"Objective {self.name!r}: {field} must {limits}; got {value!r}.")
            object.__setattr__(self, field, float(value))

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if "transform" in vars(cls) and "link" not in vars(cls):
            cls.link = None  # type: ignore[assignment]  # the inherited link would be wrong

    @property
    def link(self) -> str | None:
        """Name of the link that `transform` applies, one of `LINKS`, for exporters; None: none of
        them. A class that overrides `transform` overrides this too, or has no named link."""
        return "identity"

    @property
    def initial_link(self) -> str | None:
        """Name of the link from raw scores to the values that an initial model predicts.

        Locations of distributions of positive numbers are logarithms.
        """
        is_log = self.has_distribution and not self.is_translation_invariant
        return "exponential" if is_log else self.link

    @property
    def has_constant_hessian(self) -> bool:
        """Whether the Hessian is 1 for every unweighted row and output, so that no array is kept
        for it."""
        return False

    @property
    def tasks(self) -> tuple[Any, ...]:
        """`TaskSlice` of each task of a multi-task objective; empty for a single loss."""
        return ()

    @property
    def quantile_levels(self) -> tuple[float, ...]:
        """Quantile levels learned for each column of the target; empty for other losses."""
        return ()

    @property
    def score_names(self) -> tuple[str, ...]:
        """Names of the scores of one column of the target, if there are several."""
        levels = self.quantile_levels
        return tuple(f"q{level:g}" for level in levels) if len(levels) > 1 else ()

    def outputs_per_target(self) -> int:
        """Number of outputs per column of the target: several for quantiles and distributions."""
        return max(1, len(self.quantile_levels))

    def score_columns(self, n_scores: int) -> NDArray[np.intp]:
        """Column of the target of each of `n_scores` raw scores, shape (n_scores,)."""
        return np.arange(n_scores) // self.outputs_per_target()

    def score_quantile_levels(self, n_scores: int) -> Floats:
        """Quantile level of each of `n_scores` raw scores, shape (n_scores,); NaN for other
        scores."""
        levels = self.quantile_levels
        return np.tile(levels or (np.nan,), n_scores // max(1, len(levels)))

    @property
    def offset_mask(self) -> tuple[bool, ...]:
        """Whether an offset is added to each score of one column of the target."""
        return (True,) * self.outputs_per_target()

    def n_scores(self, n_targets: int) -> int:
        """Number of raw scores of a row whose target has `n_targets` columns, or classes."""
        return n_targets * self.outputs_per_target()

    def bind_outputs(self: _Self, n_outputs: int | None, first_order: bool) -> _Self:
        """Return this objective with open parameters set to what an estimator knows.

        Parameters
        ----------
        n_outputs : int, optional
            Number of classes or labels; None for values.
        first_order : bool
            Whether second derivatives will never be used.
        """
        field = self.parameters.get("n_outputs")
        if n_outputs is None or field is None or getattr(self, field) is not None:
            return self
        return replace(self, **{field: n_outputs})

    def get_default_metric(self, kind: str, n_targets: int) -> str:
        """Name of the metric to evaluate if the user names none.

        Parameters
        ----------
        kind : {"regression", "binary", "multiclass", "multilabel"}
            Kind of the target.
        n_targets : int
            Number of its columns, or classes.
        """
        return self.default_metric

    def weigh_held_out(self, rows: RowData) -> RowData:
        """Return held-out rows whose targets have the weights of training (`scale_pos_weight`).

        Parameters
        ----------
        rows : RowData
        """
        return rows

    @abstractmethod
    def bind(self, rows: RowData) -> BoundObjective:
        """Bind the objective to data.

        Parameters
        ----------
        rows : RowData
            Its target is float32 or float64 (n, K), or int32 class ids (n,); float64 is kept until
            the base score has been subtracted. Missing targets are 0 with weight 0. Weights are
            None, or float32 (n,) or (n, K).

        Raises
        ------
        ValueError
            If a target with positive weight is outside the domain of the loss, or shapes do not
            match.
        """

    def transform(self, scores: FloatArray) -> FloatArray:
        """Apply the link: return predictions of raw scores.

        Parameters
        ----------
        scores : ndarray of shape (n, K), float64
            ``raw + base``. Not changed.

        Returns
        -------
        ndarray of shape (n, K), float64
        """
        return scores

    def deviation(self, prediction: FloatArray) -> FloatArray | None:
        """Return the standard deviation of targets around predictions, up to a factor.

        Calibrated intervals are as wide as a multiple of it.

        Parameters
        ----------
        prediction : ndarray, float64
            Predictions in the unit of the target.

        Returns
        -------
        ndarray of the same shape, or None
            None: it does not depend on the prediction.
        """
        return None

    def distribution(self, scores: FloatArray) -> Distribution:
        """Return the predicted distribution of each row and target; only if `has_distribution`.

        Parameters
        ----------
        scores : ndarray of shape (n, K), float64
            ``raw + base``.

        Returns
        -------
        Distribution of shape (n, n_targets)
        """
        raise NotImplementedError(f"Objective {self.name!r} predicts numbers, not distributions.")

    def score_scaling(self, scale: FloatArray, offset: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the factors and summands, each (K,), that map raw scores to the scale of the
        target.

        Parameters
        ----------
        scale, offset : ndarray of shape (n_targets,), float64
            Targets were learned as ``(y - offset) / scale``.
        """
        repeats = self.outputs_per_target()
        return np.repeat(scale, repeats), np.repeat(offset, repeats)

    def metric_parameters(self) -> dict[str, Any]:
        """Parameters of this objective that `default_metric` takes."""
        return {}

    def to_dict(self) -> dict[str, object]:
        """Return the objective as JSON values: its name and parameters, and the import path of a
        class that is not built in."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
        if is_built_in(type(self)):
            return {"name": self.name} | plain
        return {"name": self.name, "class": class_path(type(self))} | plain


def class_path(cls: type[Objective]) -> str:
    """Return the module and qualified name of a class, "module:name"."""
    return f"{cls.__module__}:{cls.__qualname__}"


def find_core_name(cls: type[Objective], available: Container[str]) -> str:
    """Return the first name of a class or of its bases that is in `available`.

    A subclass of a built-in objective with another name or another trait thus uses the same core
    loss.
    """
    names = [vars(base)["name"] for base in cls.__mro__ if "name" in vars(base)]
    return next(name for name in names if name in available)


def is_built_in(cls: type[Objective]) -> bool:
    """Return whether the class is defined in this package."""
    return cls.__module__.startswith(f"{__package__}.")


class BoundObjective(ABC):
    """An objective bound to one data set.

    Attributes
    ----------
    objective : Objective
    rows : RowData
        As `bind` has read them.
    weight : float32 (n, 1) or (n, K), or None
    base : float64 (K,)
        The base score that raw scores are relative to.
    n_rows, n_outputs : int

    Notes
    -----
    The number of threads `n_threads` of a method does not change its result.
    """

    def __init__(self, objective: Objective, rows: RowData, n_outputs: int) -> None:
        self.objective = objective
        self.rows = rows
        self.weight = rows.weight
        self.n_rows = rows.n_rows
        self.n_outputs = n_outputs
        self.base = np.zeros(n_outputs)

    @cached_property
    def target(self) -> Any:
        """The target of the rows."""
        return self.rows.target

    @abstractmethod
    def base_score(self, n_threads: Any = 1) -> Floats:
        """Return the constant scores that minimise the weighted loss (for a Huber loss: the
        median), computed on `n_threads` threads.

        In distributed training `n_threads` is a `Context`, and the loss that of all ranks.

        Returns
        -------
        ndarray of shape (K,), float64
        """

    def set_base_score(self, base: Array) -> None:
        """Take raw scores as relative to `base` ``(K,)`` from now on."""
        base = np.asarray(base, dtype=np.float64)
        if base.shape != (self.n_outputs,) or not np.isfinite(base).all():
            raise ValueError(
                f"base_score must be {self.n_outputs} finite numbers, one for each "
                f"output; got {base!r}."
            )
        self.base = base

    @property
    def kernel_base_score(self) -> NDArray[np.float32]:
        """The float32 vector that kernels add to raw scores."""
        return self.base.astype(np.float32)

    def hessian_shape(self) -> tuple[int, int] | None:
        """Return the shape of ``h``: ``(n, K)``, or ``(n, 1)`` for all outputs together, or None
        if it is 1 everywhere. A constant Hessian with weights equals the weights."""
        if not self.objective.has_constant_hessian:
            return (self.n_rows, self.n_outputs)
        return None if self.weight is None else (self.n_rows, self.weight.shape[1])

    def count_rows(self, n_threads: int | Context = 1) -> Floats:
        """Return the number of rows that the weights of each output stand for, (1,) or (K,).

        It is the total weight, but not less than the number of rows with a positive weight.
        `n_threads`: number of threads; in distributed training a `Context`, for all ranks.
        """
        ranks = get_communicator(n_threads)
        if self.weight is None:
            return np.array([float(ranks.sum(self.n_rows))])
        numbers = np.count_nonzero(self.weight, axis=0)
        ranks.allreduce_sum(numbers)
        return np.maximum(sum_columns(self.weight, ranks), numbers)

    @property
    def target_weight(self) -> NDArray[np.float32] | None:
        """Weight that the loss itself gives to each target, ``(n, K)``, or None if all are 1."""
        return None

    @property
    def output_weight(self) -> NDArray[np.float32] | None:
        """Weight of each row in the loss, ``(n, 1)`` or ``(n, K)``, or None if all are 1. It
        counts rows where Hessians are not used."""
        factor = self.target_weight
        if factor is None or self.weight is None:
            return self.weight if factor is None else factor
        return self.weight * factor

    @property
    def updated_outputs(self) -> NDArray[np.bool_]:
        """Mask (K,) of the outputs whose values `update_leaves` gives."""
        return np.full(self.n_outputs, self.objective.updates_leaves)

    @property
    def zero_hessian_mask(self) -> NDArray[np.bool_]:
        """Mask (K,) of the outputs whose Hessian may be zero in all rows, which has to be
        checked."""
        return np.zeros(self.n_outputs, bool)

    def gain_scale(self, g: Array, h: Array | None, n_threads: int = 1) -> Floats | None:
        """Return the factors of the gradients in the split search, so that gains of outputs add up.

        Parameters
        ----------
        g, h : ndarray
            Gradients and Hessians just computed.
        n_threads : int

        Returns
        -------
        ndarray of shape (K,), float64, or None
            None: gradients are used unchanged.
        """
        return None

    @property
    def adds_trees(self) -> bool:
        """Whether `derivatives` takes a tree to add to the raw scores: the leaf of every row, int32
        ``(n,)``, and leaf values ``(n_leaves, K)``."""
        return False

    @abstractmethod
    def derivatives(self, raw: Array, g: Array, h: Array | None, n_threads: int = 1) -> None:
        """Write the gradient and the Hessian's diagonal, times the weights, at raw scores ``(n,
        K)``.

        Parameters
        ----------
        raw, g : float32 (n, K), C order
        h : float32 of the shape `hessian_shape`, or None if that is None
        n_threads : int
        """

    def expected_derivatives(self, raw: Array, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Return the gradient and the Hessian's diagonal, times the weights; the expectation of the
        Hessian over targets where it is known.

        Parameters
        ----------
        raw : float32 (n, K), C order
            Raw scores.
        n_threads : int

        Returns
        -------
        (ndarray, ndarray)
            Both float32 ``(n, K)``.
        """
        g, h = compute_derivatives(self, raw, n_threads)
        return g, np.broadcast_to(np.float32(1.0) if h is None else h, g.shape)

    def make_device_loss(self, device: _core.Device) -> _core.DeviceLoss | None:
        """Return the same loss for raw scores on `device`, bit for bit; None if the device does not
        support it, and derivatives are computed on the host."""
        return None

    def full_hessian(self, raw: Array, g: Array, h: Array, n_threads: int = 1) -> None:
        """Write the gradient and all second derivatives, times the weights, at raw scores ``(n,
        K)``.

        Parameters
        ----------
        raw, g : float32 (n, K), C order
        h : float32 (n, K (K + 1) / 2), C order
            Packed Hessian of each row. A separable loss writes its diagonal, and zeros elsewhere.
        n_threads : int

        Raises
        ------
        ValueError
            If the objective has no full Hessian.
        """
        if not (self.objective.has_full_hessian and self.objective.separable):
            raise ValueError(
                f'Objective {self.objective.name!r} has no full Hessian, which hessian="full" and '
                'leaf_hessian="full" need; use "diagonal".'
            )
        shape = self.hessian_shape()
        diagonal = None if shape is None else np.empty(shape, np.float32)
        self.derivatives(raw, g, diagonal, n_threads)
        h[...] = 0.0
        h[:, packed_diagonal(self.n_outputs)] = 1.0 if diagonal is None else diagonal

    @abstractmethod
    def loss(self, raw: Array, n_threads: int = 1) -> float:
        """Return the weighted mean of the loss over rows (and outputs, if it is a sum over them).

        ``g`` is its derivative times the sum of the weights. Terms that do not depend on the
        scores are left out.

        Parameters
        ----------
        raw : float32 (n, K), C order
            Raw scores.
        n_threads : int

        Returns
        -------
        float
            NaN for a function that returns derivatives, whose loss is unknown.
        """

    def update_leaves(
        self,
        raw: Array,
        leaf_of_row: Array,
        n_leaves: int,
        rows: Array | None = None,
        multiplier: Array | None = None,
        n_threads: int | Context = 1,
        outputs: Array | None = None,
    ) -> NDArray[np.float32]:
        """Return leaf values that minimise the loss exactly, before shrinkage; only if
        `updates_leaves`.

        Parameters
        ----------
        raw : float32 (n, K), or (n, m) for `outputs`
        leaf_of_row : int32 (n,)
            Leaf of every row; negative for rows in no leaf.
        n_leaves : int
            Number of leaves of the tree.
        rows : uint32 (m,), optional
            Rows to fit on, ascending (the sample of this tree); default: all.
        multiplier : float32 (n,), optional
            Factors of the weights of the rows, from sampling (GOSS); default: 1.
        n_threads : int or Context
            A `Context` in distributed training, if the objective `updates_leaves_distributed`.
        outputs : int32 (m,), optional
            The outputs that the tree is for, ascending; default: all.

        Returns
        -------
        float32 (n_leaves, K), or (n_leaves, m) for `outputs`
        """
        raise NotImplementedError(f"Leaves of {self.objective.name!r} are Newton steps.")

    def find_unit_problem(self, max_steps: float, penalty: float, workers: Context) -> str | None:
        """Return what is wrong with the unit of the targets, for a warning; None: nothing.

        Parameters
        ----------
        max_steps : float
            The sum of the learning rates of all rounds.
        penalty : float
            What the sum of the Hessians of a leaf is compared with.
        workers : Context
        """
        return None

    def find_balance(
        self,
        scores: Array,
        outputs: Array | None,
        workers: Context,
        leaf_of_row: Array,
        listing: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.float64]:
        """Return constants that make the weighted predictions of all rows, of all ranks, add up to
        the weighted targets; only if `balances_totals`.

        Parameters
        ----------
        scores : float32 (n, K), or (n, m) for `outputs`
            Raw scores with offsets.
        outputs : int32 (m,), or None for all
            Outputs that the scores are of, ascending.
        workers : Context
        leaf_of_row : int32 (n,)
        listing : bool (n_leaves, K), or (n_leaves, m) for `outputs`, optional
            Which outputs the constants are added to in each leaf. Default: all.

        Returns
        -------
        float64 (K,), or (m,) for `outputs`
            To be added to the scores; 0 for outputs of another loss.
        """
        raise NotImplementedError(f"Trees of {self.objective.name!r} are not balanced.")


def as_matrix(target: Array) -> FloatArray:
    """Return a float target as C-ordered ``(n, K)``; float64 is kept."""
    target = np.asarray(target)
    if target.dtype != np.float64:
        target = target.astype(np.float32, copy=False)
    if target.ndim == 1:
        target = target[:, None]
    if target.ndim != 2 or target.shape[1] == 0:
        raise ValueError(
            f"The target must have shape (n,) or (n, K) with K >= 1; got {target.shape}."
        )
    return np.ascontiguousarray(target)


def as_matrices(rows: RowData) -> RowData:
    """Return rows with a float target, C-ordered ``(n, K)``, and weights as `as_weight` does."""
    target = as_matrix(rows.target)
    weight = None if rows.weight is None else as_weight(rows, target.shape[1])
    return rows.replace(target=target, weight=weight)


def as_weight(rows: RowData, n_outputs: int = 1) -> NDArray[np.float32] | None:
    """Return weights as C-ordered float32 ``(n, 1)`` or ``(n, n_outputs)``, or None."""
    if rows.weight is None:
        return None
    weight, n_rows = np.asarray(rows.weight, dtype=np.float32), rows.n_rows
    if weight.ndim == 1:
        weight = weight[:, None]
    if weight.shape not in {(n_rows, 1), (n_rows, n_outputs)}:
        raise ValueError(
            f"Weights must have shape ({n_rows},), or ({n_rows}, {n_outputs}) for a weight per row "
            f"and output; got {weight.shape}."
        )
    return np.ascontiguousarray(weight)


def check_domain(valid: NDArray[np.bool_], rows: RowData, name: str, domain: str) -> None:
    """Raise ValueError for the first target outside the domain of the loss; weights of 0 do not
    count."""
    if valid.all():
        return
    bad = ~valid if rows.weight is None else ~valid & (rows.weight > 0)
    if not bad.any():
        return
    row, output = np.argwhere(bad)[0]
    raise ValueError(
        f"Objective {name!r} needs {domain}; row {row}, output {output} of y is "
        f"{rows.target[row, output]!s} "
        f"({int(bad.sum())} such value(s) in all). Change the target or choose another objective."
    )
