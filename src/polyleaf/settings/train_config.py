"""What a run is handed: the parameters in frozen parts, resolved, each for the rooms that read it.

Owns which parameters go together. Must not know estimators, data or files; defaults and meanings are those of
`parameters.py`.

What a part holds is made sense of here, once: "auto" has become what it stands for wherever the parameters
alone can say. A part that does not apply (thresholds without an exact search) does not exist.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeVar

from polyleaf._core import Device
from polyleaf.inputs.multitask import TaskKey, get_task_name
from polyleaf.objectives import objective_class
from polyleaf.runtime.context import Context
from polyleaf.settings.param_spec import Frozen
from polyleaf.settings.parameters import (
    COUNT_DEFAULTS,
    DEFAULTS,
    DISTRIBUTION_DEFAULTS,
    BoostingParameters,
    HessianParameters,
    LinearLeafParameters,
    MultiTaskParameters,
    OutputParameters,
    PenaltyParameters,
    RegressorParameters,
    SamplingParameters,
    SharedParameters,
    TopkLeafParameters,
    TreeParameters,
)

__all__ = [
    "ConstantLeaf",
    "HessianConfig",
    "GrowthConfig",
    "Leaf",
    "LinearLeaf",
    "BoostingConfig",
    "SamplingConfig",
    "TrainConfig",
    "RegularisationConfig",
    "TopkLeaf",
    "make_train_config",
]

T = TypeVar("T")

DEFAULT_HISTOGRAM_MEMORY = 1 << 30
COUPLED = ("full", "block")


@dataclass(kw_only=True)
class BoostingConfig(BoostingParameters, OutputParameters, Frozen):
    """The loop: how many rounds, of which trees, at which derivatives, and how many outputs stand for all.

    `n_estimators` are the rounds to do in this run.
    """

    n_estimators: int
    learning_rate: float


@dataclass(kw_only=True)
class GrowthConfig(TreeParameters, Frozen):
    """How one tree grows.

    Attributes
    ----------
    seed : int
        Of the features that each node sees.
    """

    colsample_bynode: float
    seed: int

    @property
    def histogram_memory_bytes(self) -> int:
        return self.histogram_memory or DEFAULT_HISTOGRAM_MEMORY


@dataclass(kw_only=True)
class RegularisationConfig(PenaltyParameters, Frozen):
    """What bounds the step of a leaf, in gains as in leaf values."""


@dataclass(kw_only=True)
class HessianConfig(HessianParameters, Frozen):
    """Which second derivatives the structure is grown on, and the leaves are fitted with.

    "none": 1 per row (first order; C-GB's squared error of residuals, eq. 10); "shared": one per row, its
    mean over outputs; "diagonal": one per row and output; "full": all pairs of outputs (TFBT, eq. 6 and 7);
    "block": the same for the `block_size` outputs of largest gradient in a node, the others stay (TFBT,
    section IV, as AOSO-LogitBoost). "auto" depends on the objective: see `derivatives`. Leaves that follow
    the splits say "full" or "block" here.
    """

    @property
    def is_coupled(self) -> bool:
        """Whether anybody asks for whole Hessians."""
        return self.hessian in COUPLED or self.leaf_hessian in COUPLED

    @property
    def split_block_size(self) -> int:
        """Outputs that a node solves for; 0: all."""
        return self.block_size if self.hessian == "block" else 0

    @property
    def leaf_block_size(self) -> int:
        """Outputs that a leaf solves for; 0: all."""
        return self.block_size if self.leaf_hessian == "block" else 0


@dataclass(kw_only=True)
class SamplingConfig(SamplingParameters, Frozen):
    """Which rows and features a tree sees; see :mod:`polyleaf.training.sampling`.

    Attributes
    ----------
    seed : int
        Of row and feature draws.
    """

    seed: int


@dataclass(frozen=True)
class ConstantLeaf:
    """A value for each output."""


@dataclass(kw_only=True)
class TopkLeaf(TopkLeafParameters, Frozen):
    """A value for the `leaf_k` outputs that gain most (GBDT-MO, section III-B; GBDT-SPARSE).

    `split_search` is resolved. The support is each leaf's own (GBDT-MO, Algorithm 3), or shared by the two
    children of a node (Algorithm 4). The exact search is GBDT-SPARSE's Algorithm 1.
    """

    @property
    def has_sparse_targets(self) -> bool:
        """Whether targets, scores and gradients hold few of very many outputs."""
        return self.split_search != "histogram"


@dataclass(kw_only=True)
class LinearLeaf(LinearLeafParameters, Frozen):
    """A linear function of a few features (GBDT-PL).

    Attributes
    ----------
    slope_lambda : float
        `linear_lambda`, or what stands for it.
    """

    slope_lambda: float

    @property
    def scores_linear_leaves(self) -> bool:
        """Whether splits are judged by what linear leaves will achieve."""
        has_slopes = self.linear_features > 0 and math.isfinite(self.slope_lambda)
        return self.linear_fit != "post" and has_slopes


Leaf = ConstantLeaf | TopkLeaf | LinearLeaf


@dataclass(frozen=True)
class TrainConfig:
    """All parts of one run."""

    boosting: BoostingConfig
    growth: GrowthConfig
    regularisation: RegularisationConfig
    hessian: HessianConfig
    sampling: SamplingConfig
    leaf: Leaf
    workers: Context

    @property
    def has_sparse_targets(self) -> bool:
        """Whether targets, scores and gradients hold few of very many outputs."""
        return isinstance(self.leaf, TopkLeaf) and self.leaf.has_sparse_targets

    def on(self, device: Device | None) -> TrainConfig:
        """The same on a device; None: on the processor."""
        return dataclasses.replace(self, workers=dataclasses.replace(self.workers, device=device))


def make_train_config(
    p: SharedParameters, rounds: int, sparse_targets: bool, seed: int, n_threads: int
) -> TrainConfig:
    """The parts that parameters make.

    Parameters
    ----------
    p : SharedParameters
        Of an estimator, each allowed by itself.
    rounds : int
        To do in this run.
    sparse_targets : bool
        Whether y is a sparse matrix: what `split_search="auto"` looks at.
    seed, n_threads : int
        What `random_state` and `n_jobs` come to.

    Raises
    ------
    ValueError
        Where parameters do not go together; it says why, and what to do.
    """
    if isinstance(p, MultiTaskParameters):
        _check_tasks(p)
    growth, leaf = _growth(p, seed), _leaf(p, sparse_targets)
    if p.device == "cuda":
        _check_device(p, leaf)
    return TrainConfig(
        growth=growth,
        regularisation=_part(RegularisationConfig, p),
        hessian=_hessian(p, leaf),
        sampling=_sampling(p, seed),
        leaf=leaf,
        boosting=_boosting(p, leaf, rounds),
        workers=Context(n_threads),
    )


def _part(cls: type[T], p: SharedParameters, **resolved: Any) -> T:
    """A part with the values of the parameters that it has, or what they have become."""
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    stands_for = {name: value for name, value in _defaults(p).items() if getattr(p, name) is None}
    resolved = stands_for | resolved
    return cls(**{name: resolved[name] if name in resolved else getattr(p, name) for name in names})


def _defaults(p: SharedParameters) -> dict[str, float]:
    """What None stands for, with the objective that there is, or the objectives of tasks."""
    if isinstance(p, MultiTaskParameters):
        each = [_of_task(key, objective) for key, objective in (p.objective or {}).items()] or [
            DEFAULTS
        ]
        # Several learn more slowly in shared trees than each in its own: docs/tasks.md.
        return each[0] if len(each) == 1 else DEFAULTS
    return _of_objective(p.objective) if isinstance(p, RegressorParameters) else DEFAULTS


def _of_task(key: TaskKey, objective: Any) -> dict[str, float]:
    try:
        return _of_objective(objective)
    except ValueError as error:
        raise ValueError(f"Task {get_task_name(key)!r}: {error}") from None


def _of_objective(objective: Any) -> dict[str, float]:
    cls = objective_class(objective)
    if cls.is_count:
        return COUNT_DEFAULTS
    return DISTRIBUTION_DEFAULTS if cls.has_distribution else DEFAULTS


def _refuse(condition: object, sentence: str) -> None:
    if condition:
        raise ValueError(sentence)


# --- which parameters go together ------------------------------------------------------------------


def _growth(p: SharedParameters, seed: int) -> GrowthConfig:
    _refuse(
        p.max_leaves is None and p.max_depth is None,
        "max_leaves=None and max_depth=None leave trees without any limit; set one of them "
        f"(max_leaves={SharedParameters.max_leaves} is the default).",
    )
    _refuse(
        p.max_leaves is None and p.max_depth is not None and p.max_depth > 30,
        f"max_depth={p.max_depth} with max_leaves=None allows over a thousand million leaves; set max_leaves "
        "as well.",
    )
    _refuse(
        p.interaction_constraints is not None and p.projection is not None,
        "interaction_constraints names features of X, which trees do not see where projection makes others "
        "of them; set one of the two to None.",
    )
    _refuse(
        p.feature_penalties is not None and p.projection is not None,
        "feature_penalties names features of X, which trees do not see where projection makes others of "
        "them; set one of the two to None.",
    )
    if p.monotone_constraints is not None:
        _check_monotone(p)
    return _part(GrowthConfig, p, seed=seed)


def _check_monotone(p: SharedParameters) -> None:
    """Refuse what would not obey directions."""
    _refuse(
        p.projection is not None,
        "monotone_constraints names features of X, which trees do not see where projection makes others of "
        "them; set one of the two to None.",
    )
    _refuse(
        p.leaf == "linear",
        "monotone_constraints orders the values of leaves, but within a linear leaf values change with every "
        'row, and may cross those of its neighbours; use leaf="constant".',
    )
    _refuse(
        p.leaf == "sparse",
        "monotone_constraints orders the values of leaves, and outputs that a sparse leaf does not hold "
        'would have to move as well; use leaf="constant".',
    )
    for name in ("hessian", "leaf_hessian"):
        _refuse(
            getattr(p, name) in COUPLED,
            f'{name}="{getattr(p, name)}" moves the outputs of a leaf together, while monotone_constraints '
            'moves some of them alone; use "diagonal".',
        )
    _refuse(
        p.sketch is not None,
        "monotone_constraints is of outputs, but the columns of a sketch, by which splits are found, are "
        "mixtures of them; set sketch=None.",
    )


def _check_device(p: SharedParameters, leaf: Leaf) -> None:
    """Refuse what a device does not do yet."""
    not_yet = {'leaf="linear"': p.leaf == "linear", **_sparse_labels(leaf)}
    asked = [what for what, is_asked in not_yet.items() if is_asked]
    _refuse(
        asked,
        f'device="cuda" does not take {" or ".join(asked)} yet; use device="cpu", which makes the same '
        "model.",
    )


def _sparse_labels(leaf: Leaf) -> dict[str, bool]:
    """How targets that stay sparse were asked for, where they were."""
    if not isinstance(leaf, TopkLeaf):
        return {}
    return {
        f'split_search="{leaf.split_search}", with which y stays sparse,': leaf.has_sparse_targets
    }


def _check_tasks(p: MultiTaskParameters) -> None:
    """Refuse what would compare leaf values of unlike tasks."""
    if p.objective is not None and len(p.objective) == 1:
        return
    _refuse(
        p.leaf == "sparse",
        'leaf="sparse" keeps the outputs of a leaf that gain most, and leaf values of several tasks have no '
        'common unit to compare these in; use leaf="constant".',
    )
    _refuse(
        p.reg_alpha > 0 or p.max_delta_step > 0,
        "reg_alpha and max_delta_step bound leaf values in their own unit, which several tasks do not share; "
        "set both to 0 (reg_lambda has no unit).",
    )


def _hessian(p: SharedParameters, leaf: Leaf) -> HessianConfig:
    follows = p.leaf_hessian == "auto" and p.hessian in COUPLED
    of_leaves = p.hessian if follows else p.leaf_hessian
    for name, kind in (("hessian", p.hessian), ("leaf_hessian", of_leaves)):
        if kind not in COUPLED:
            continue
        _refuse(
            p.multi_strategy == "one_output_per_tree",
            f'{name}="{kind}" couples the outputs of a leaf, but multi_strategy="one_output_per_tree" grows '
            'a tree for each; use "diagonal", or one tree for all.',
        )
        _refuse(
            p.sketch is not None and name == "hessian",
            f'hessian="{kind}" needs the Hessian of all outputs, which the columns of a sketch do not '
            f'have; set sketch=None or use another curvature. (leaf_hessian may be "{kind}": leaves are '
            "fitted on all outputs.)",
        )
        _refuse(
            p.reg_alpha > 0 or p.max_delta_step > 0,
            f'{name}="{kind}" couples outputs, while reg_alpha and max_delta_step act on each leaf value '
            'alone; set both to 0, or use "diagonal".',
        )
        _refuse(
            p.leaf == "linear",
            f'{name}="{kind}" couples the outputs of a leaf, which linear leaves fit one by one; use '
            '"diagonal", or leaf="constant".',
        )
        _refuse(
            p.leaf == "sparse",
            'leaf="sparse" chooses outputs one by one, while full and block curvature couple them; use '
            '"diagonal".',
        )
    # A refit of all features of a leaf has one Gram matrix for all outputs.
    one_gram = (
        isinstance(leaf, LinearLeaf) and leaf.scores_linear_leaves and leaf.linear_fit == "full"
    )
    of_splits = "shared" if one_gram and p.hessian == "auto" else p.hessian
    return _part(HessianConfig, p, hessian=of_splits, leaf_hessian=of_leaves)


def _sampling(p: SharedParameters, seed: int) -> SamplingConfig:
    goss, rows = p.sampling_method == "goss", p.rows_per_layer
    if rows is not None:
        _refuse(
            p.boosting_step != "layer",
            'rows_per_layer is for layers that are boosted: set boosting_step="layer" as well.',
        )
        _refuse(
            p.subsample < 1.0 or goss,
            'rows_per_layer chooses the rows itself: subsample must be 1.0 and sampling_method "uniform".',
        )
        _refuse(
            len(rows) == 0 or not all(_is_fraction_or_count(x) for x in rows),
            f"rows_per_layer must hold fractions in (0, 1] or whole numbers of rows, got {list(rows)}.",
        )
    _refuse(
        goss and p.subsample < 1.0,
        'sampling_method="goss" chooses the rows itself (top_rate, other_rate), so subsample must be 1.0; it '
        f"is {p.subsample}.",
    )
    _refuse(
        goss and p.top_rate + p.other_rate > 1.0,
        f"top_rate + other_rate must be at most 1, but {p.top_rate} + {p.other_rate} is more.",
    )
    return _part(SamplingConfig, p, seed=seed)


def _is_fraction_or_count(x: object) -> bool:
    return isinstance(x, Real) and float(x) > 0 and (float(x) <= 1 or float(x).is_integer())


def _leaf(p: SharedParameters, sparse_targets: bool) -> Leaf:
    if p.leaf == "sparse":
        return _sparse_leaf(p, sparse_targets)
    _refuse(
        p.split_search in ("exact", "count_sketch"),
        f'split_search="{p.split_search}" works on sparse gradients, which only sparse leaves keep sparse; '
        'set leaf="sparse" as well.',
    )
    return _linear_leaf(p) if p.leaf == "linear" else ConstantLeaf()


def _sparse_leaf(p: SharedParameters, sparse_targets: bool) -> TopkLeaf:
    _refuse(
        p.multi_strategy == "one_output_per_tree",
        'leaf="sparse" keeps some outputs of a leaf, but multi_strategy="one_output_per_tree" gives a leaf '
        'one output only; use "multi_output_tree".',
    )
    _refuse(
        p.boosting_step == "layer",
        'boosting_step="layer" sums a step of every layer in a leaf, so that the leaf would not stay sparse; use '
        'leaf="constant" or boosting_step="round".',
    )
    auto = "count_sketch" if sparse_targets else "histogram"
    leaf = _part(TopkLeaf, p, split_search=auto if p.split_search == "auto" else p.split_search)
    if leaf.has_sparse_targets:
        _check_sparse_labels(p)
    return leaf


def _check_sparse_labels(p: SharedParameters) -> None:
    _refuse(
        p.sketch not in (None, "auto", "count_sketch"),
        f"sketch={p.sketch!r} is for dense gradients; those of sparse targets are sketched by a count-sketch "
        '(split_search="count_sketch" with sketch_dim).',
    )
    for name in ("hessian", "leaf_hessian"):
        _refuse(
            getattr(p, name) == "diagonal",
            f'{name}="diagonal": with sparse targets every output has the same curvature; use "auto".',
        )
    _refuse(
        p.leaf_output_set == "shared",
        'leaf_output_set="shared" is GBDT-MO\'s restricted search and needs the histograms of all outputs; use '
        'split_search="histogram", or leaf_output_set="own".',
    )


def _linear_leaf(p: SharedParameters) -> LinearLeaf:
    _refuse(
        p.reg_alpha > 0 or p.max_delta_step > 0,
        "reg_alpha and max_delta_step act on a leaf's one value, which a linear leaf does not have; set both "
        "to 0 (linear_lambda holds slopes back, linear_extrapolation values).",
    )
    _refuse(
        p.boosting_step == "layer",
        'boosting_step="layer" sums the steps of all layers in a leaf, each with features of its own, so that '
        'leaves would outgrow linear_features; use boosting_step="round", or leaf="constant".',
    )
    _refuse(
        p.linear_fit == "full" and p.linear_features > 8,
        'linear_fit="full" solves for all features of a leaf at every candidate, and linear_features='
        f'{p.linear_features} is more than the 8 it is made for; use "half_additive".',
    )
    slope_lambda = p.reg_lambda if p.linear_lambda is None else p.linear_lambda
    leaf = _part(LinearLeaf, p, slope_lambda=slope_lambda)
    _refuse(
        leaf.scores_linear_leaves and leaf.linear_fit == "full" and p.hessian == "diagonal",
        'linear_fit="full" solves one system for all outputs, which hessian="diagonal" would make one for '
        'each; use hessian="shared" or "auto", or linear_fit="half_additive".',
    )
    return leaf


def _boosting(p: SharedParameters, leaf: Leaf, rounds: int) -> BoostingConfig:
    _refuse(
        p.boosting_step == "layer" and p.grow_policy != "depthwise",
        'boosting_step="layer" grows trees layer by layer, but grow_policy="lossguide" splits one node at a time; '
        'set grow_policy="depthwise".',
    )
    proposes = isinstance(leaf, TopkLeaf) and leaf.split_search == "count_sketch"
    _refuse(
        p.sketch is None and p.sketch_dim is not None and not proposes,
        f'sketch_dim={p.sketch_dim} without a sketch means nothing; set sketch as well ("auto", say).',
    )
    _refuse(
        p.sketch is not None and p.multi_strategy == "one_output_per_tree",
        'A sketch stands for many outputs, but multi_strategy="one_output_per_tree" grows a tree for each; '
        "set sketch=None.",
    )
    _refuse(
        p.sketch is not None and p.hessian == "diagonal",
        'hessian="diagonal" judges splits by the curvature of each output, which the columns of a sketch '
        'do not have; use "auto", "shared" or "none".',
    )
    return _part(BoostingConfig, p, n_estimators=rounds)
