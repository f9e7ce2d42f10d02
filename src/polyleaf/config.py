"""How one model is boosted: frozen settings, and which parts go together.

Owns the settings of the loop and `check_compatible`, the one place that refuses a combination. Must not know
estimators, data or files.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

__all__ = ["BoostConfig", "check_compatible"]

Curvature = Literal["auto", "none", "shared", "diagonal"]

DEFAULT_HISTOGRAM_MEMORY = 1 << 30


@dataclasses.dataclass(frozen=True)
class BoostConfig:
    """Settings of one boosting run; the parameters of the estimators, resolved.

    Attributes
    ----------
    n_estimators : int
        Rounds. One round adds one tree, or one per output with `multi_strategy="one_output_per_tree"`.
    learning_rate : float
        What leaf values are multiplied by.
    multi_strategy : {"multi_output_tree", "one_output_per_tree"}
        One tree whose leaves hold all outputs (GBDT-MO), or one tree for each output (GBDT-SO).
    curvature, leaf_curvature : {"auto", "none", "shared", "diagonal"}
        Curvature the structure is grown on, and the leaves are fitted with. "none": 1 per row (first order;
        C-GB's squared error of residuals, eq. 10); "shared": one per row, its mean over outputs; "diagonal":
        one per row and output. "auto": for leaves what the objective has, for splits see
        `boosting.structure_curvature`.
    max_leaves, max_depth : int or None
        None: no limit (not both).
    grow_policy : {"lossguide", "depthwise"}
        Best-first or level by level.
    reg_lambda, reg_alpha, max_delta_step : float
        L2 and L1 penalty per leaf value, and the largest leaf value before the learning rate (0: no limit).
    min_split_gain : float
        Least gain of a split, averaged over outputs.
    min_child_weight : float
        Least summed curvature of a child, averaged over outputs.
    min_child_samples : int
        Least number of rows of a child.
    subsample, sampling_method, top_rate, other_rate
        Row sampling: see :mod:`polyleaf.sampling`.
    colsample_bytree, colsample_bynode : float
        Fraction of features a tree, and a node of it, may split on.
    max_cat_to_onehot : int
        Categorical features with at most this many categories in a node are split one against the rest.
    cat_smooth : float
        Added to the curvature of a category when categories are ordered.
    seed : int
        Of row and feature draws.
    n_threads : int
        Threads; the model does not depend on it.
    histogram_memory : int or None
        Bytes of histograms kept for subtraction (None: 1 GiB). Less means more work, never another model.
    """

    n_estimators: int = 100
    learning_rate: float = 0.1
    multi_strategy: Literal["multi_output_tree", "one_output_per_tree"] = "multi_output_tree"
    curvature: Curvature = "auto"
    leaf_curvature: Curvature = "auto"
    max_leaves: int | None = 31
    max_depth: int | None = None
    grow_policy: Literal["lossguide", "depthwise"] = "lossguide"
    reg_lambda: float = 1.0
    reg_alpha: float = 0.0
    min_split_gain: float = 0.0
    min_child_weight: float = 1e-3
    min_child_samples: int = 20
    max_delta_step: float = 0.0
    subsample: float = 1.0
    sampling_method: Literal["uniform", "goss"] = "uniform"
    top_rate: float = 0.2
    other_rate: float = 0.1
    colsample_bytree: float = 1.0
    colsample_bynode: float = 1.0
    max_cat_to_onehot: int = 4
    cat_smooth: float = 10.0
    seed: int = 0
    n_threads: int = 1
    histogram_memory: int | None = None


def check_compatible(config: BoostConfig) -> None:
    """Raise a ValueError that says why, where settings do not go together."""
    if config.max_leaves is None and config.max_depth is None:
        raise ValueError(
            "max_leaves=None and max_depth=None leave trees without any limit; set one of them "
            "(max_leaves=31 is the default)."
        )
    if config.max_leaves is None and config.max_depth is not None and config.max_depth > 30:
        raise ValueError(
            f"max_depth={config.max_depth} with max_leaves=None allows over a thousand million leaves; set "
            "max_leaves as well."
        )
    if config.sampling_method == "goss" and config.subsample < 1.0:
        raise ValueError(
            'sampling_method="goss" chooses the rows itself (top_rate, other_rate), so subsample must be '
            f"1.0; it is {config.subsample}."
        )
    if config.sampling_method == "goss" and config.top_rate + config.other_rate > 1.0:
        raise ValueError(
            f"top_rate + other_rate must be at most 1, but {config.top_rate} + {config.other_rate} is more."
        )
