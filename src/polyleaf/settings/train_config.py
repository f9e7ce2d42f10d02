"""Training configuration: parameters in frozen groups, resolved and checked against each other.

"auto" and None are replaced wherever the parameters alone decide. A group that does not apply
(linear leaves of a model with constant leaves) does not exist.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

from polyleaf._core import Device
from polyleaf.model.leaf_kinds import DENSE, LINEAR, SPARSE, AnyLeafKind
from polyleaf.objectives import Objective
from polyleaf.runtime.context import Context
from polyleaf.settings.param_spec import frozen_config
from polyleaf.settings.parameters import (
    COUNT_DEFAULTS,
    DEFAULTS,
    DISTRIBUTION_DEFAULTS,
    BoostingParameters,
    HessianParameters,
    LinearLeafParameters,
    MultiTaskParameters,
    OutputParameters,
    RegularisationParameters,
    SamplingParameters,
    SharedParameters,
    TopkLeafParameters,
    TreeParameters,
)

DEFAULT_HISTOGRAM_MEMORY = 1 << 30
COUPLED = ("full", "block")  # values of hessian and leaf_hessian that couple outputs


@frozen_config
class BoostingConfig(BoostingParameters, OutputParameters):
    """Boosting loop. `n_estimators` is the number of rounds of this run."""

    n_estimators: int
    learning_rate: float


@frozen_config
class GrowthConfig(TreeParameters):
    """Tree growth.

    Attributes
    ----------
    seed : int
        Seed of the features that are sampled at each node.
    """

    colsample_bynode: float
    seed: int

    @property
    def histogram_memory_bytes(self) -> int:
        return self.histogram_memory or DEFAULT_HISTOGRAM_MEMORY


@frozen_config
class RegularisationConfig(RegularisationParameters):
    """Regularisation of leaf values, in split gains and leaves."""


@frozen_config
class HessianConfig(HessianParameters):
    """Parts of the Hessian that split gains and leaf values use.

    "none": 1 per row (first order; C-GB's squared error of residuals, eq. 10); "shared": one per
    row, its mean over outputs; "diagonal": one per row and output; "full": all pairs of outputs
    (TFBT, eq. 6 and 7); "block": the pairs of the `block_size` outputs with the largest gradients
    in a node, while other outputs stay (TFBT, section IV, as AOSO-LogitBoost). "auto" depends on
    the objective and is resolved in training. `leaf_hessian` is resolved if `hessian` is "full" or
    "block".
    """

    @property
    def is_coupled(self) -> bool:
        """Whether splits or leaves use full Hessians."""
        return self.hessian in COUPLED or self.leaf_hessian in COUPLED

    @property
    def split_block_size(self) -> int:
        """Outputs that a split solves for; 0: all."""
        return self.block_size if self.hessian == "block" else 0

    @property
    def leaf_block_size(self) -> int:
        """Outputs that a leaf solves for; 0: all."""
        return self.block_size if self.leaf_hessian == "block" else 0


@frozen_config
class SamplingConfig(SamplingParameters):
    """Sampling of rows and features; see :mod:`polyleaf.training.sampling`.

    Attributes
    ----------
    seed : int
        Seed of row and feature sampling.
    """

    seed: int


class LeafSettings:
    """Settings and limits of a training with one kind of leaves.

    Attributes
    ----------
    conflicts : dict of str -> str
        Subject that cannot be combined with these leaves -> message: "monotone_constraints",
        "tasks", "one_output_per_tree", "layer", "coupled" (the start is the parameter and value).
    """

    kind: ClassVar[AnyLeafKind]
    conflicts: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def make(cls, p: SharedParameters, values: dict[str, object]) -> Any:
        """Check the parameters of these leaves, and return their configuration."""
        return _group(cls, values)

    @property
    def has_sparse_targets(self) -> bool:
        """Whether targets, scores and gradients are kept sparse."""
        return False

    @property
    def gain_regressors(self) -> int:
        """Most regressors of a node in split gains; -1: gains are those of constant leaves."""
        return -1

    @property
    def shares_weights(self) -> bool:
        """Whether one weight of a row must hold for all outputs."""
        return False

    @property
    def gain_limits(self) -> dict[str, object]:
        """Limits of leaf values in split gains, as arguments of the core's `SplitConfig`."""
        return {}

    @property
    def unsupported_on_gpu(self) -> str | None:
        """The argument that a GPU does not support."""
        return None


@dataclass(frozen=True)
class ConstantLeaf(LeafSettings):
    """A value for each output."""

    kind = DENSE


@frozen_config
class TopkLeaf(LeafSettings, TopkLeafParameters):
    """Values of the `leaf_k` outputs with the largest gains (GBDT-MO, section III-B; GBDT-SPARSE).

    `split_search` is resolved. The outputs are each leaf's own (GBDT-MO, Algorithm 3), or shared by
    the two children of a node (Algorithm 4). The exact search is GBDT-SPARSE's Algorithm 1.
    """

    kind = SPARSE
    conflicts: ClassVar[Mapping[str, str]] = {
        "monotone_constraints": "monotone_constraints cannot be combined with sparse leaves, "
        "because outputs that a leaf does not hold would have to change as well; use "
        'leaf="constant".',
        "tasks": 'leaf="sparse" compares the gains of outputs, but the leaf values of different '
        'tasks have no common unit; use leaf="constant".',
        "coupled": 'couples outputs, but leaf="sparse" chooses them one by one; use "diagonal".',
        "one_output_per_tree": 'leaf="sparse" chooses among the outputs of a leaf, but '
        'multi_strategy="one_output_per_tree" has one output per leaf; use "multi_output_tree".',
        "layer": 'boosting_step="layer" sums the steps of all layers in a leaf, which would not '
        'stay sparse; use leaf="constant" or boosting_step="round".',
    }

    @classmethod
    def make(cls, p: SharedParameters, values: dict[str, object]) -> TopkLeaf:
        leaf = _group(cls, values)
        if leaf.has_sparse_targets:
            _check_sparse_targets(p)
        return leaf

    @property
    def has_sparse_targets(self) -> bool:
        return self.split_search != "histogram"

    @property
    def gain_limits(self) -> dict[str, object]:
        return {"leaf_k": self.leaf_k, "shared_support": self.leaf_output_set == "shared"}

    @property
    def unsupported_on_gpu(self) -> str | None:
        argument = f'split_search="{self.split_search}" (sparse targets)'
        return argument if self.has_sparse_targets else None


@frozen_config
class LinearLeaf(LeafSettings, LinearLeafParameters):
    """A linear function of a few features (GBDT-PL).

    Attributes
    ----------
    slope_lambda : float
        `linear_lambda`, or `reg_lambda` if that is None.
    """

    slope_lambda: float

    kind = LINEAR
    conflicts: ClassVar[Mapping[str, str]] = {
        "monotone_constraints": "monotone_constraints cannot be combined with linear leaves, whose "
        "values change within the leaf and may cross those of its neighbours; use "
        'leaf="constant".',
        "coupled": "couples the outputs of a leaf, but linear leaves fit them one by one; use "
        '"diagonal", or leaf="constant".',
        "layer": 'boosting_step="layer" sums the linear functions of all layers in a leaf, which '
        'would exceed linear_features; use boosting_step="round", or leaf="constant".',
    }

    @classmethod
    def make(cls, p: SharedParameters, values: dict[str, object]) -> LinearLeaf:
        _check_linear_leaf(p)
        values["slope_lambda"] = p.reg_lambda if p.linear_lambda is None else p.linear_lambda
        return _group(cls, values)

    @property
    def gain_regressors(self) -> int:
        has_slopes = self.linear_features > 0 and math.isfinite(self.slope_lambda)
        return self.linear_features if has_slopes and self.linear_fit != "post" else -1

    @property
    def shares_weights(self) -> bool:
        return self.linear_fit == "full"

    @property
    def unsupported_on_gpu(self) -> str | None:
        return 'leaf="linear"'


Leaf = ConstantLeaf | TopkLeaf | LinearLeaf

LEAVES: dict[str, type[Leaf]] = {"constant": ConstantLeaf, "sparse": TopkLeaf, "linear": LinearLeaf}
"""The values of the parameter `leaf`."""


@dataclass(frozen=True)
class TrainConfig:
    """All groups of one training."""

    boosting: BoostingConfig
    growth: GrowthConfig
    regularisation: RegularisationConfig
    hessian: HessianConfig
    sampling: SamplingConfig
    leaf: Leaf
    workers: Context

    @property
    def has_sparse_targets(self) -> bool:
        """Whether targets, scores and gradients are kept sparse."""
        return self.leaf.has_sparse_targets

    def replace_output_groups(self, groups: list[list[int]]) -> TrainConfig:
        """Return the same configuration with other groups of outputs."""
        return dataclasses.replace(
            self, boosting=dataclasses.replace(self.boosting, output_groups=groups)
        )

    def replace_n_estimators(self, n: int) -> TrainConfig:
        """Return the same configuration with another number of rounds."""
        return dataclasses.replace(
            self, boosting=dataclasses.replace(self.boosting, n_estimators=n)
        )


def make_train_config(
    p: SharedParameters,
    n_rounds: int,
    has_sparse_targets: bool,
    seed: int,
    n_threads: int,
    objective: type[Objective] | None = None,
    device: Device | None = None,
) -> TrainConfig:
    """Check the parameters of an estimator against each other and group them.

    Parameters
    ----------
    p : SharedParameters
        Parameters that are valid one by one.
    n_rounds : int
        Rounds of this run.
    has_sparse_targets : bool
        Whether y is a sparse matrix, which `split_search="auto"` depends on.
    seed, n_threads : int
        Values of `random_state` and `n_jobs`.
    objective : type, optional
        Class of the objective; None: several, or unknown before y is read.
    device : Device, optional
        GPU to train on.

    Raises
    ------
    ValueError
        If parameters are incompatible; the message says why and what to set.
    """
    if isinstance(p, MultiTaskParameters):
        _check_tasks(p)
    _check_growth(p)
    values = {**vars(p), "n_estimators": n_rounds, "seed": seed}
    rates = _get_default_rates(objective)
    values |= {name: rate for name, rate in rates.items() if values[name] is None}
    leaf = _make_leaf(p, has_sparse_targets, values)
    if p.device == "cuda":
        _check_device(p, leaf)
    _check_hessian(p, leaf, values)
    _check_sampling(p)
    _check_boosting(p, values["split_search"])
    return TrainConfig(
        _group(BoostingConfig, values),
        _group(GrowthConfig, values),
        _group(RegularisationConfig, values),
        _group(HessianConfig, values),
        _group(SamplingConfig, values),
        leaf,
        Context(n_threads, device=device),
    )


def _get_default_rates(objective: type[Objective] | None) -> dict[str, float]:
    """Return what None stands for in `learning_rate` and `colsample_bynode`.

    Several tasks learn more slowly in shared trees than each in its own.
    """
    if objective is not None and objective.is_count:
        return COUNT_DEFAULTS
    has_distribution = objective is not None and objective.has_distribution
    return DISTRIBUTION_DEFAULTS if has_distribution else DEFAULTS


def _group(cls: Any, values: dict[str, object]) -> Any:
    return cls(**{field.name: values[field.name] for field in dataclasses.fields(cls)})


def _raise_if(condition: object, message: str) -> None:
    if condition:
        raise ValueError(message)


# --- compatibility of parameters ------------------------------------------------------------------


def _check_growth(p: SharedParameters) -> None:
    _raise_if(
        p.max_leaves is None and p.max_depth is None,
        "max_leaves=None and max_depth=None give trees without any limit; set one of them "
        f"(max_leaves={SharedParameters.max_leaves} is the default).",
    )
    _raise_if(
        p.max_leaves is None and p.max_depth is not None and p.max_depth > 30,
        f"max_depth={p.max_depth} with max_leaves=None allows more than 10^9 leaves; set "
        "max_leaves as well.",
    )
    for name in ("interaction_constraints", "feature_penalties", "monotone_constraints"):
        _raise_if(
            getattr(p, name) is not None and p.projection is not None,
            f"{name} refers to features of X, but trees are grown on projected features; set "
            f"{name}=None or projection=None.",
        )
    if p.monotone_constraints is not None:
        _check_monotone(p)


def _raise_if_conflict(p: SharedParameters, subject: str, start: str = "") -> None:
    conflicts = LEAVES[p.leaf].conflicts
    _raise_if(subject in conflicts, start + conflicts.get(subject, ""))


def _check_monotone(p: SharedParameters) -> None:
    _raise_if_conflict(p, "monotone_constraints")
    for name in ("hessian", "leaf_hessian"):
        _raise_if(
            getattr(p, name) in COUPLED,
            f'{name}="{getattr(p, name)}" couples the outputs of a leaf, but monotone_constraints '
            'apply to single outputs; use "diagonal".',
        )
    _raise_if(
        p.sketch is not None,
        "monotone_constraints apply to outputs, but the columns of a sketch, on which splits are "
        "found, are mixtures of outputs; set sketch=None.",
    )


def _check_device(p: SharedParameters, leaf: Leaf) -> None:
    argument = "output_groups" if p.output_groups is not None else leaf.unsupported_on_gpu
    _raise_if(
        argument is not None,
        f'device="cuda" does not support {argument} yet; use device="cpu", which gives the same '
        "model.",
    )


def _check_tasks(p: MultiTaskParameters) -> None:
    if p.objective is not None and len(p.objective) == 1:
        return
    _raise_if_conflict(p, "tasks")
    _raise_if(
        p.reg_alpha > 0 or p.max_delta_step > 0,
        "reg_alpha and max_delta_step limit leaf values in their own unit, which differs between "
        "tasks; set both to 0 (reg_lambda has no unit).",
    )


def _check_hessian(p: SharedParameters, leaf: Leaf, values: dict[str, object]) -> None:
    """Check `hessian` and `leaf_hessian`, and resolve them in `values` where parameters decide."""
    if p.leaf_hessian == "auto" and p.hessian in COUPLED:
        values["leaf_hessian"] = p.hessian
    for name in ("hessian", "leaf_hessian"):
        kind = values[name]
        if kind not in COUPLED:
            continue
        _raise_if(
            p.multi_strategy == "one_output_per_tree",
            f'{name}="{kind}" couples the outputs of a leaf, but '
            'multi_strategy="one_output_per_tree" grows a tree for each; use "diagonal", or one '
            "tree for all outputs.",
        )
        _raise_if(
            p.output_groups is not None,
            f'{name}="{kind}" couples all outputs of a leaf, but output_groups gives trees to some '
            'of them; use "diagonal", or output_groups=None.',
        )
        _raise_if(
            p.sketch is not None and name == "hessian",
            f'hessian="{kind}" needs the Hessian of all outputs, which a sketch does not have; set '
            f'sketch=None or use another hessian. (leaf_hessian may be "{kind}".)',
        )
        _raise_if(
            p.reg_alpha > 0 or p.max_delta_step > 0,
            f'{name}="{kind}" couples outputs, but reg_alpha and max_delta_step apply to single '
            'leaf values; set both to 0, or use "diagonal".',
        )
        _raise_if_conflict(p, "coupled", f'{name}="{kind}" ')
    # A refit of all features of a leaf has one Gram matrix for all outputs.
    if leaf.shares_weights and leaf.gain_regressors >= 0:
        _raise_if(
            p.hessian == "diagonal",
            'linear_fit="full" solves one system for all outputs, but hessian="diagonal" needs one '
            'for each; use hessian="shared" or "auto", or linear_fit="half_additive".',
        )
        values["hessian"] = "shared" if p.hessian == "auto" else p.hessian


def _check_sampling(p: SharedParameters) -> None:
    is_goss, rows = p.sampling_method == "goss", p.rows_per_layer
    if rows is not None:
        _raise_if(
            p.boosting_step != "layer",
            'rows_per_layer requires layer-by-layer boosting: set boosting_step="layer" as well.',
        )
        _raise_if(
            p.subsample < 1.0 or is_goss,
            "rows_per_layer replaces other row sampling: subsample must be 1.0 and sampling_method "
            '"uniform".',
        )
        _raise_if(
            len(rows) == 0 or not all(_is_fraction_or_count(x) for x in rows),
            "rows_per_layer must hold fractions in (0, 1] or whole numbers of rows, got "
            f"{list(rows)}.",
        )
    _raise_if(
        is_goss and p.subsample < 1.0,
        'sampling_method="goss" samples rows by top_rate and other_rate, so subsample must be 1.0; '
        f"got {p.subsample}.",
    )
    _raise_if(
        is_goss and p.top_rate + p.other_rate > 1.0,
        f"top_rate + other_rate must be at most 1, got {p.top_rate} + {p.other_rate}.",
    )


def _is_fraction_or_count(x: object) -> bool:
    return isinstance(x, Real) and float(x) > 0 and (float(x) <= 1 or float(x).is_integer())


def _make_leaf(p: SharedParameters, has_sparse_targets: bool, values: dict[str, object]) -> Leaf:
    leaf = LEAVES[p.leaf]
    if leaf.kind.lists_outputs and p.split_search == "auto":
        values["split_search"] = "count_sketch" if has_sparse_targets else "histogram"
    _raise_if(
        p.split_search in ("exact", "count_sketch") and not leaf.kind.lists_outputs,
        f'split_search="{p.split_search}" requires sparse gradients, which only sparse leaves '
        'keep; set leaf="sparse" as well.',
    )
    for subject, is_set in (
        ("one_output_per_tree", p.multi_strategy == "one_output_per_tree"),
        ("layer", p.boosting_step == "layer"),
    ):
        if is_set:
            _raise_if_conflict(p, subject)
    return leaf.make(p, values)


def _check_sparse_targets(p: SharedParameters) -> None:
    _raise_if(
        p.output_groups is not None,
        "output_groups needs a dense y or sparse leaves whose splits use histograms, but sparse "
        'targets are trained together; use split_search="histogram", or output_groups=None.',
    )
    _raise_if(
        p.sketch not in (None, "auto", "count_sketch"),
        f"sketch={p.sketch!r} is for dense gradients; with sparse targets the sketch is a "
        'count-sketch (split_search="count_sketch" with sketch_dim).',
    )
    for name in ("hessian", "leaf_hessian"):
        _raise_if(
            getattr(p, name) == "diagonal",
            f'{name}="diagonal": with sparse targets every output has the same Hessian; use '
            '"auto".',
        )
    _raise_if(
        p.leaf_output_set == "shared",
        'leaf_output_set="shared" is GBDT-MO\'s restricted search and needs the histograms of all '
        'outputs; use split_search="histogram", or leaf_output_set="own".',
    )


def _check_linear_leaf(p: SharedParameters) -> None:
    _raise_if(
        p.reg_alpha > 0 or p.max_delta_step > 0,
        "reg_alpha and max_delta_step apply to constant leaf values, which linear leaves do not "
        "have; set both to 0 (linear_lambda regularises slopes, linear_extrapolation limits "
        "values).",
    )
    _raise_if(
        p.linear_fit == "full" and p.linear_features > 8,
        'linear_fit="full" solves for all features of a leaf at every candidate split and supports '
        f'linear_features up to 8, got {p.linear_features}; use "half_additive".',
    )


def _check_boosting(p: SharedParameters, split_search: object) -> None:
    _raise_if(
        p.boosting_step == "layer" and p.grow_policy != "depthwise",
        'boosting_step="layer" grows trees layer by layer, but grow_policy="lossguide" splits one '
        'node at a time; set grow_policy="depthwise".',
    )
    _raise_if(
        p.sketch is None and p.sketch_dim is not None and split_search != "count_sketch",
        f"sketch_dim={p.sketch_dim} has no effect without a sketch; set sketch as well, such as "
        '"auto".',
    )
    _raise_if(
        p.sketch is not None and p.multi_strategy == "one_output_per_tree",
        'A sketch stands for many outputs, but multi_strategy="one_output_per_tree" grows a tree '
        "for each; set sketch=None.",
    )
    _raise_if(
        p.output_groups is not None and p.multi_strategy == "one_output_per_tree",
        'multi_strategy="one_output_per_tree" grows a tree for each output, but output_groups '
        'says which share trees; leave multi_strategy at "multi_output_tree".',
    )
    _raise_if(
        p.sketch is not None and p.output_groups is not None,
        "A sketch stands for all outputs, but output_groups grows trees for some of them; set "
        "sketch=None.",
    )
    _raise_if(
        p.sketch is not None and p.hessian == "diagonal",
        'hessian="diagonal" needs the Hessian of each output, which a sketch does not have; use '
        '"auto", "shared" or "none".',
    )
