"""What an objective is. Owns the contract; must not know trees, boosting or any particular loss.

The life of an objective:

1. ``get_objective(name_or_callable, **parameters)`` makes one (``objectives/__init__.py``). It is frozen and
   holds parameters only, never data. ``bind_outputs`` gives it what an estimator knows.
2. ``objective.bind(target, weight)`` checks the target's domain and binds it: a `BoundObjective`. A validation
   set is a second `BoundObjective` of the same objective.
3. ``problem.base_score()`` is the best constant for the training rows.
4. ``problem.set_base_score(base)``: raw scores are relative to it from here on (every problem gets the training
   set's base).
5. ``problem.hessian_shape()`` says which array ``h`` to allocate, or that none is needed.
6. Each round ``problem.derivatives(raw, g, h)`` writes the gradient and the curvature at the raw scores; or
   ``problem.full_hessian(raw, g, h)`` the gradient and the Hessian of each row, where one is wanted.
7. Where ``objective.updates_leaves``, ``problem.update_leaves(...)`` gives the leaf values of a tree, which
   Newton's step cannot (medians, quantiles).
8. ``problem.loss(raw)`` is the mean training loss, whose derivative ``g`` is.
9. ``objective.transform(raw + base)`` turns scores into predictions; ``to_dict`` keeps the objective with a
   model.

Shapes: ``n`` rows, ``K`` outputs. Raw scores are float32 ``(n, K)``; the base score is float64 ``(K,)``. A
Hessian is packed (packed.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf.distributions import Distribution
from polyleaf.objectives.packed_symmetric import packed_diagonal
from polyleaf.runtime.context import Context
from polyleaf.runtime.stored_names import to_stored

FloatArray = NDArray[np.floating[Any]]
Array = NDArray[Any]

TARGET_KINDS = ("values", "labels", "classes")

LINKS = ("identity", "logistic", "softmax", "exponential", "sorted_levels")
"""Names of what `Objective.transform` may be. "sorted_levels": each row's predictions of one target are
sorted, so that they rise with `levels`."""

_Self = TypeVar("_Self", bound="Objective")


@dataclass(frozen=True)
class Objective(ABC):
    """A loss with its link and its parameters, and what it says of itself: the class attributes.

    Attributes
    ----------
    name : str
        Canonical name, which a model file keeps.
    aliases : tuple of str
        Names that other libraries have for it.
    target_kinds : tuple of str
        What it learns from: "values" are float ``(n, K)``, "labels" are that, each 0 or 1 (of two classes:
        one label), "classes" are int32 ids ``(n,)`` of one of K classes. A regressor has values. A classifier
        has labels, or classes where there are three or more, or no labels are taken; of an objective for
        labels only it asks for each class against the rest.
    parameters : mapping of str to str
        Arguments of estimators that it takes, and the fields that they are for. "n_outputs" stands for the
        number of classes or labels, which a classifier counts.
    separable : bool
        The loss is a sum over outputs.
    full_hessian : bool
        All second derivatives exist: `BoundObjective.full_hessian` gives them. It does where the loss is
        separable; another loss overrides it, or says False here.
    location : bool
        It depends on score - target alone, so that targets may be moved and scaled.
    is_scale_dependent : bool
        Its derivatives grow with the unit of a target, and nothing else in it does: of one tree's outputs
        those on large scales decide, unless they are brought nearer ("auto" of `normalize_targets` does).
    requires_standardised_target : bool
        Penalties mean what they say only for targets of deviation 1: "auto" of `normalize_targets` learns
        them in that unit.
    has_distribution : bool
        `distribution` gives what is predicted of each row, of which `transform` is the mean.
    of_counts : bool
        Targets are counts, which parameters that are left open go by.
    updates_leaves : bool
        `BoundObjective.update_leaves` has values to give, which no Newton step would.
    updates_leaves_distributed : bool
        It has them also where other ranks have further rows, whom it asks for what theirs are.
    by_row : bool
        What splits and leaves see of a row depends on that row alone, and not on which others there are.
    probabilities : bool
        `transform` gives probabilities.
    sparse_base_score : float or None
        The base score at which a target of 0 has the derivative 0, so that rows with few targets that are not
        0 have few derivatives; None: there is none, or the loss cannot do without all outputs of a row.
    default_metric : str
        Name of the metric evaluated when the user names none. Default: the loss itself.
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    target_kinds: ClassVar[tuple[str, ...]] = ("values",)
    parameters: ClassVar[Mapping[str, str]] = {}
    separable: ClassVar[bool] = True
    full_hessian: ClassVar[bool] = True
    is_translation_invariant: ClassVar[bool] = False
    is_scale_dependent: ClassVar[bool] = False
    requires_standardised_target: ClassVar[bool] = False
    has_distribution: ClassVar[bool] = False
    is_count: ClassVar[bool] = False
    updates_leaves: ClassVar[bool] = False
    updates_leaves_distributed: ClassVar[bool] = False
    is_row_separable: ClassVar[bool] = True
    probabilities: ClassVar[bool] = False
    sparse_base_score: ClassVar[float | None] = None
    default_metric: ClassVar[str] = "loss"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "transform" in vars(cls) and "link" not in vars(cls):
            cls.link = None  # type: ignore[assignment]  # that of the class it derives from would be wrong

    @property
    def link(self) -> str | None:
        """What `transform` does, for whoever predicts without it: one of `LINKS`; None: nothing with a name.
        A class that overrides `transform` overrides this too, or has none."""
        return "identity"

    @property
    def has_constant_hessian(self) -> bool:
        """Whether the curvature is 1 for every unweighted row and output, so that no array is kept for it."""
        return False

    @property
    def tasks(self) -> tuple[Any, ...]:
        """Where several losses are learned side by side: `TaskSlice` of each (tasks.py); none for one loss."""
        return ()

    @property
    def quantile_levels(self) -> tuple[float, ...]:
        """Levels of the quantiles that are learned for each column of the target; none for other losses."""
        return ()

    @property
    def score_names(self) -> tuple[str, ...]:
        """What the scores of one column of the target are called, where there are several."""
        return (
            tuple(f"q{level:g}" for level in self.quantile_levels)
            if len(self.quantile_levels) > 1
            else ()
        )

    def outputs_per_target(self) -> int:
        """Outputs learned for each column of the target: more than one for several quantiles, and where a
        spread is learned."""
        return max(1, len(self.quantile_levels))

    def score_columns(self, n_scores: int) -> NDArray[np.intp]:
        """The column of the target that each of `n_scores` raw scores is learned from, (n_scores,)."""
        return np.arange(n_scores) // self.outputs_per_target()

    def score_quantile_levels(self, n_scores: int) -> NDArray[np.float64]:
        """The level of each of `n_scores` raw scores that is a quantile, (n_scores,); NaN for others."""
        return np.tile(
            self.quantile_levels or (np.nan,), n_scores // max(1, len(self.quantile_levels))
        )

    @property
    def offset_mask(self) -> tuple[bool, ...]:
        """Of the scores of one column of the target, which an offset moves."""
        return (True,) * self.outputs_per_target()

    def n_scores(self, n_targets: int) -> int:
        """Raw scores of a row whose target has `n_targets` columns, or classes."""
        return n_targets * self.outputs_per_target()

    def bind_outputs(self: _Self, n_outputs: int | None, first_order: bool) -> _Self:
        """This objective with what an estimator knows, where its parameters leave that open.

        Parameters
        ----------
        n_outputs : int, optional
            Number of classes or labels; None for values.
        first_order : bool
            Nobody will ask for second derivatives.
        """
        field = self.parameters.get("n_outputs")
        if n_outputs is None or field is None or getattr(self, field) is not None:
            return self
        return replace(self, **{field: n_outputs})

    def get_default_metric(self, kind: str, n_targets: int) -> str:
        """Name of the metric evaluated when the user names none.

        Parameters
        ----------
        kind : {"regression", "binary", "multiclass", "multilabel"}
            Of the target.
        n_targets : int
            Its columns, or classes.

        Returns
        -------
        str
        """
        return self.default_metric

    @abstractmethod
    def bind(self, target: Array, weight: Array | None) -> BoundObjective:
        """Bind the objective to data.

        Parameters
        ----------
        target : float32 or float64 (n, K), or int32 class ids (n,)
            float64 is kept until the base score has been taken off. Missing targets are 0 with weight 0.
        weight : None, or float32 (n,) or (n, K)

        Raises
        ------
        ValueError
            When a target with positive weight lies outside the domain of the loss, or shapes do not fit.
        """

    def transform(self, scores: FloatArray) -> FloatArray:
        """Predictions from raw scores: the link.

        Parameters
        ----------
        scores : ndarray of shape (n, K), float64
            ``raw + base``. Not changed.

        Returns
        -------
        ndarray of shape (n, K), float64
        """
        return scores

    def distribution(self, scores: FloatArray) -> Distribution:
        """What is predicted of each row and target; asked for where `has_distribution`.

        Parameters
        ----------
        scores : ndarray of shape (n, K), float64
            ``raw + base``.

        Returns
        -------
        Distribution of shape (n, n_targets)
        """
        raise NotImplementedError(
            f"Objective {self.name!r} predicts numbers, and no distribution of them."
        )

    def score_scaling(self, scale: FloatArray, offset: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What raw scores are multiplied by, and what is added then, each (K,).

        Parameters
        ----------
        scale, offset : ndarray of shape (n_targets,), float64
            Targets were learned as ``(y - offset) / scale``.
        """
        repeats = self.outputs_per_target()
        return np.repeat(scale, repeats), np.repeat(offset, repeats)

    def metric_parameters(self) -> dict[str, Any]:
        """Parameters that `default_metric` takes over from this objective."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """The objective as JSON values: its name and parameters; of a class that is not built in also its
        `origin`, which tells who loads it what to register."""
        rename = stored_name if is_built_in(type(self)) else str
        values = {rename(field.name): getattr(self, field.name) for field in fields(self)}
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
        if is_built_in(type(self)):
            return to_stored({"name": self.name} | plain)
        return {"name": self.name, "class": origin(type(self))} | plain


def stored_name(field: str) -> str:
    """Return the key of a built-in objective's field in model files: "hessian" is "curvature" there."""
    return field.replace("hessian", "curvature")


def origin(cls: type[Objective]) -> str:
    """Module and qualified name of a class, "module:name"."""
    return f"{cls.__module__}:{cls.__qualname__}"


def name_within(cls: type[Objective], known: Container[str]) -> str:
    """The first name of a class and those it derives from that is among `known`.

    So the core's loss is found for a class that is one of this package's but for some trait, and its name.
    """
    names = [vars(base)["name"] for base in cls.__mro__ if "name" in vars(base)]
    return next(name for name in names if name in known)


def is_built_in(cls: type[Objective]) -> bool:
    """Whether the class is one of this package's."""
    return cls.__module__.startswith(f"{__package__}.")


class BoundObjective(ABC):
    """An objective bound to one data set.

    Attributes
    ----------
    objective : Objective
    weight : float32 (n, 1) or (n, K), or None
    base : float64 (K,)
    n_rows, n_outputs : int
    """

    def __init__(
        self, objective: Objective, n_rows: int, n_outputs: int, weight: Array | None
    ) -> None:
        self.objective = objective
        self.n_rows = n_rows
        self.n_outputs = n_outputs
        self.weight = weight
        self.base = np.zeros(n_outputs)

    @abstractmethod
    def base_score(self, n_threads: int = 1) -> NDArray[np.float64]:
        """The constant scores that minimise the weighted loss (for a Huber loss: the median).

        Parameters
        ----------
        n_threads : int
            Threads; the result does not depend on it.

        Returns
        -------
        ndarray of shape (K,), float64
        """

    def set_base_score(self, base: Array) -> None:
        """Take raw scores as relative to `base` ``(K,)`` from now on."""
        base = np.asarray(base, dtype=np.float64)
        if base.shape != (self.n_outputs,) or not np.isfinite(base).all():
            raise ValueError(
                f"The base score must be {self.n_outputs} finite numbers, one for each output; got {base!r}."
            )
        self.base = base

    @property
    def offset(self) -> NDArray[np.float32]:
        """What kernels add to raw scores: the base score, in float32."""
        return self.base.astype(np.float32)

    def hessian_shape(self) -> tuple[int, int] | None:
        """Shape of ``h``: ``(n, K)``, or ``(n, 1)`` where it serves all outputs, or None where it is 1
        throughout. A constant curvature is that of the weights, where there are any."""
        if not self.objective.has_constant_hessian:
            return (self.n_rows, self.n_outputs)
        return None if self.weight is None else (self.n_rows, self.weight.shape[1])

    @property
    def updated_outputs(self) -> NDArray[np.bool_]:
        """Of which outputs `update_leaves` gives the values, (K,)."""
        return np.full(self.n_outputs, self.objective.updates_leaves)

    @property
    def zero_hessian_mask(self) -> NDArray[np.bool_]:
        """Of which outputs nobody has seen yet that they have curvature, (K,)."""
        return np.zeros(self.n_outputs, bool)

    def gain_scale(
        self, g: Array, h: Array | None, n_threads: int = 1
    ) -> NDArray[np.float64] | None:
        """What gradients are multiplied by where splits are judged, so that gains of unlike losses add up.

        Parameters
        ----------
        g, h
            What `derivatives` has just written.
        n_threads : int
            Threads; the result does not depend on it.

        Returns
        -------
        ndarray of shape (K,), float64, or None
            None: nothing.
        """
        return None

    @abstractmethod
    def derivatives(self, raw: Array, g: Array, h: Array | None, n_threads: int = 1) -> None:
        """Write the gradient and the curvature, times the weights, at raw scores float32 ``(n, K)``.

        Parameters
        ----------
        raw, g : float32 (n, K), C order
        h : float32, shaped as `hessian_shape` says, or None where it says None
        n_threads : int
            Threads; the result does not depend on it.
        """

    def on_device(self, device: _core.Device) -> _core.DeviceLoss | None:
        """The same derivatives where raw scores lie on `device`, bit for bit; None: the device does not know
        them, and they are computed here."""
        return None

    def full_hessian(self, raw: Array, g: Array, h: Array, n_threads: int = 1) -> None:
        """Write the gradient and all second derivatives, times the weights, at raw scores float32 ``(n, K)``.

        Parameters
        ----------
        raw, g : float32 (n, K), C order
        h : float32 (n, K (K + 1) / 2), C order
            The Hessian of each row, packed. Of a separable loss: its curvature on the diagonal, zeros
            elsewhere.
        n_threads : int
            Threads; the result does not depend on it.

        Raises
        ------
        ValueError
            Where the objective has no full Hessian.
        """
        if not (self.objective.full_hessian and self.objective.separable):
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
        """Weighted mean of the loss over rows (and outputs, where it is a sum over them).

        ``g`` is its derivative times the sum of the weights. Terms that do not depend on the scores are left
        out.

        Parameters
        ----------
        raw : float32 (n, K), C order
            Raw scores.
        n_threads : int
            Threads; the result does not depend on it.

        Returns
        -------
        float
            NaN for a function that returns derivatives, whose loss is not known.
        """

    def update_leaves(
        self,
        raw: Array,
        leaf_of_row: Array,
        n_leaves: int,
        rows: Array | None = None,
        n_threads: int | Context = 1,
    ) -> NDArray[np.float32]:
        """Leaf values that minimise the loss exactly, before shrinkage; asked for where `updates_leaves`.

        Parameters
        ----------
        raw : float32 (n, K)
        leaf_of_row : int32 (n,)
            Leaf of every row; negative for rows in no leaf.
        n_leaves : int
            Of the tree.
        rows : uint32 (m,), optional
            The rows to fit on, ascending (the sample of this tree); all by default.
        n_threads : int or Context
            `Context` where other ranks have further rows, which is asked of `updates_leaves_distributed` alone.

        Returns
        -------
        float32 (n_leaves, K)
        """
        raise NotImplementedError(f"Leaves of {self.objective.name!r} are Newton steps.")


def as_matrix(target: Array) -> FloatArray:
    """A float target as C-ordered ``(n, K)``; float64 is kept."""
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


def as_weight(weight: Array | None, n_rows: int, n_outputs: int) -> NDArray[np.float32] | None:
    """Weights as C-ordered float32 ``(n, 1)`` or ``(n, n_outputs)``, or None."""
    if weight is None:
        return None
    weight = np.asarray(weight, dtype=np.float32)
    if weight.ndim == 1:
        weight = weight[:, None]
    if weight.shape not in {(n_rows, 1), (n_rows, n_outputs)}:
        raise ValueError(
            f"Weights must have shape ({n_rows},), or ({n_rows}, {n_outputs}) for a weight per row and "
            f"output; got {weight.shape}."
        )
    return np.ascontiguousarray(weight)


def check_domain(
    valid: NDArray[np.bool_], target: Array, weight: Array | None, name: str, domain: str
) -> None:
    """Raise ValueError naming the first target outside the domain of the loss. Rows of weight 0 do not
    count."""
    if valid.all():
        return
    bad = ~valid if weight is None else ~valid & (weight > 0)
    if not bad.any():
        return
    row, output = np.argwhere(bad)[0]
    raise ValueError(
        f"Objective {name!r} needs {domain}; row {row}, output {output} of y is {target[row, output]!s} "
        f"({int(bad.sum())} such value(s) in all). Change the target or choose another objective."
    )


def check_positive(name: str, parameter: str, value: float) -> None:
    """Raise ValueError unless `value` is a finite number above 0."""
    if not (isinstance(value, (int, float)) and np.isfinite(value) and value > 0):
        raise ValueError(
            f"Objective {name!r}: {parameter} must be a finite number > 0; got {value!r}."
        )
