"""Training configuration: parameters in frozen groups, resolved and checked against each other.

"auto" and None are replaced wherever the parameters alone decide. A group that does not apply
(linear leaves of a model with constant leaves) does not exist.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

from polyleaf._core import Device
from polyleaf.model.leaf_kinds import DENSE, LINEAR, SPARSE, AnyLeafKind
from polyleaf.objectives import Objective
from polyleaf.runtime import capabilities
from polyleaf.runtime.checks import require
from polyleaf.runtime.context import Context
from polyleaf.settings.param_spec import frozen_config, get_param_specs
from polyleaf.settings.parameters import (
    COUNT_DEFAULTS,
    DEFAULTS,
    DISTRIBUTION_DEFAULTS,
    BoostingParameters,
    HessianParameters,
    LinearLeafParameters,
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
    """Tree growth."""

    colsample_bynode: float
    seed: int  # seed of the features that are sampled at each node
    histogram_memory: int  # bytes


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
    """Sampling of rows and features; see :mod:`polyleaf.training.sampling`."""

    seed: int  # seed of row and feature sampling


class LeafSettings:
    """Settings of a training with one kind of leaves."""

    kind: ClassVar[AnyLeafKind]

    @classmethod
    def make(cls, params: SharedParameters, values: dict[str, object]) -> Any:
        """Return the configuration of these leaves."""
        return _group(cls, values)

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

    @property
    def gain_limits(self) -> dict[str, object]:
        return {"leaf_k": self.leaf_k, "shared_support": self.leaf_output_set == "shared"}


@frozen_config
class LinearLeaf(LeafSettings, LinearLeafParameters):
    """A linear function of a few features (GBDT-PL)."""

    slope_lambda: float  # `linear_lambda`, or `reg_lambda` if that is None

    kind = LINEAR

    @classmethod
    def make(cls, params: SharedParameters, values: dict[str, object]) -> LinearLeaf:
        values["slope_lambda"] = (
            params.reg_lambda if params.linear_lambda is None else params.linear_lambda
        )
        return _group(cls, values)

    @property
    def gain_regressors(self) -> int:
        has_slopes = self.linear_features > 0 and math.isfinite(self.slope_lambda)
        return self.linear_features if has_slopes and self.linear_fit != "post" else -1

    @property
    def shares_weights(self) -> bool:
        return self.linear_fit == "full"


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
    has_sparse_targets: bool  # whether targets, scores and gradients are kept sparse
    position_lambda: float  # of rankings, see `RankerParameters`

    def replace_output_groups(self, groups: list[list[int]] | None) -> TrainConfig:
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
    params: SharedParameters,
    n_rounds: int,
    has_sparse_targets: bool,
    seed: int,
    n_threads: int,
    objective: type[Objective] | None = None,
    device: Device | None = None,
) -> TrainConfig:
    """Check the parameters of an estimator against each other and group them.

    Raises a ValueError if parameters are incompatible; the message says why and what to set.

    Parameters
    ----------
    params : SharedParameters
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
    """
    capabilities.check(parameters=params, has_sparse_y=has_sparse_targets)
    values = {**vars(params), "n_estimators": n_rounds, "seed": seed}
    values["histogram_memory"] = params.histogram_memory or DEFAULT_HISTOGRAM_MEMORY
    rates = get_default_rates(objective)
    values |= {name: rate for name, rate in rates.items() if values[name] is None}
    if params.leaf == "sparse" and params.split_search == "auto":
        values["split_search"] = "count_sketch" if has_sparse_targets else "histogram"
    _check_values(params, values["split_search"])
    _check_effects(params, objective)
    leaf = LEAVES[params.leaf].make(params, values)
    if params.leaf_hessian == "auto" and params.hessian in COUPLED:
        values["leaf_hessian"] = params.hessian
    # A refit of all features of a leaf has one Gram matrix for all outputs.
    if leaf.shares_weights and leaf.gain_regressors >= 0 and params.hessian == "auto":
        values["hessian"] = "shared"
    return TrainConfig(
        _group(BoostingConfig, values),
        _group(GrowthConfig, values),
        _group(RegularisationConfig, values),
        _group(HessianConfig, values),
        _group(SamplingConfig, values),
        leaf,
        Context(n_threads, device=device),
        isinstance(leaf, TopkLeaf) and leaf.split_search != "histogram",
        values.get("position_lambda", 0.0),
    )


def get_default_rates(objective: type[Objective] | None) -> dict[str, float]:
    """Return what None stands for in `learning_rate` and `colsample_bynode`.

    Several tasks learn more slowly in shared trees than each in its own.
    """
    if objective is not None and objective.is_count:
        return COUNT_DEFAULTS
    has_distribution = objective is not None and objective.has_distribution
    return DISTRIBUTION_DEFAULTS if has_distribution else DEFAULTS


def _group(cls: Any, values: dict[str, object]) -> Any:
    return cls(**{field.name: values[field.name] for field in dataclasses.fields(cls)})


# --- values that depend on each other -------------------------------------------------------------


def _check_values(params: SharedParameters, split_search: object) -> None:
    """Check values that depend on other values; features that do not work together are rows of
    `polyleaf.runtime.capabilities`."""
    leaves, depth, rows = params.max_leaves, params.max_depth, params.rows_per_layer
    require(
        leaves is not None or depth is not None,
        "max_leaves=None and max_depth=None give trees without any limit; set one of them "
        f"(max_leaves={SharedParameters.max_leaves} is the default).",
    )
    require(
        leaves is not None or depth is None or depth <= 30,
        f"max_depth={depth} with max_leaves=None allows more than 10^9 leaves; set "
        "max_leaves as well.",
    )
    require(
        rows is None or (len(rows) > 0 and all(map(_is_fraction_or_count, rows))),
        f"rows_per_layer must hold fractions in (0, 1] or whole numbers of rows, got {rows}.",
    )
    require(
        params.sampling_method != "goss" or params.top_rate + params.other_rate <= 1.0,
        f"top_rate + other_rate must be at most 1, got {params.top_rate} + {params.other_rate}.",
    )
    require(
        params.leaf != "linear" or params.linear_fit != "full" or params.linear_features <= 8,
        'linear_fit="full" solves for all features of a leaf at every candidate split and supports '
        f'linear_features up to 8, got {params.linear_features}; use "half_additive".',
    )
    require(
        params.sketch is not None or params.sketch_dim is None or split_search == "count_sketch",
        f"sketch_dim={params.sketch_dim} has no effect without a sketch; set sketch as well, such "
        'as "auto".',
    )


def _check_effects(params: SharedParameters, objective: type[Objective] | None) -> None:
    """Raise for a parameter that has no effect with the values of others, by its declaration."""
    values, taken = {**vars(params)}, frozenset[str]()
    if objective is not None and not isinstance(values["objective"], Objective):
        values["objective"], taken = objective.name, frozenset(objective.parameters)
    for spec in get_param_specs(type(params)):
        value = values[spec.name]
        if not spec.requires or spec.name in taken or spec.is_default(value):
            continue
        if not spec.has_effect(values):
            required = " or ".join(f'{name}="{choice}"' for name, choice in spec.requires.items())
            place = ", by its name" if "objective" in spec.requires else ""
            raise ValueError(
                f"{spec.name}={value!r} has no effect: it requires {required}{place}. Set that, or "
                f"leave {spec.name} out."
            )


def _is_fraction_or_count(x: object) -> bool:
    return isinstance(x, Real) and float(x) > 0 and (float(x) <= 1 or float(x).is_integer())
