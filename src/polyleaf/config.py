"""How one model is boosted: frozen settings, and which parts go together.

Owns the settings of the loop and `check_compatible`, the one place that refuses a combination. Must not know
estimators, data or files.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, Literal

__all__ = ["BoostConfig", "check_compatible"]

Curvature = Literal["auto", "none", "shared", "diagonal", "full", "block"]

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
    curvature, leaf_curvature : {"auto", "none", "shared", "diagonal", "full", "block"}
        Curvature the structure is grown on, and the leaves are fitted with. "none": 1 per row (first order;
        C-GB's squared error of residuals, eq. 10); "shared": one per row, its mean over outputs; "diagonal":
        one per row and output; "full": all pairs of outputs (TFBT, eq. 6 and 7); "block": the same for the
        `block_size` outputs of largest gradient in a node, the others stay (TFBT, section IV, as
        AOSO-LogitBoost). "auto": for leaves "full" or "block" where splits have it, else what the objective
        has; for splits see `derivatives.structure_curvature`.
    block_size : int
        Outputs of a block.
    refresh : {"round", "tree", "layer"}
        When derivatives are computed: once a round, after every single tree (TFBT's tree-per-class; matters
        for one tree per output), or after every layer of a tree (TFBT, section V).
    rows_per_layer : sequence of float or int, or None
        With refresh="layer": rows that each layer is grown on, as fractions of all (float) or numbers of rows
        (int); the last holds for all deeper layers.
    pruning : {"pre", "post"}
        Split only where that gains, or split whatever the gain and cut back (TFBT, section III).
    sketch, sketch_dim
        Columns that stand for the outputs while the structure is sought: see :mod:`polyleaf.sketches`.
    leaf : {"constant", "linear", "sparse"}
        What a leaf holds: a value for each output, a linear function of a few features (GBDT-PL), or a value
        for the `leaf_k` outputs that gain most (GBDT-MO, section III-B; GBDT-SPARSE).
    linear_fit : {"half_additive", "full", "post"}
        How splits are judged where leaves are linear: by linear functions of the feature split on and of what
        the parent has fitted (GBDT-PL, section 4.3); of all features split on above (eq. 6); or as if leaves
        were constant.
    linear_features : int
        Features that a leaf may be linear in: the first that its path splits on. 0: constant leaves.
    linear_lambda : float or None
        L2 penalty on slopes, per standard deviation of the feature; None: `reg_lambda`.
    linear_extrapolation : {"clip", "free"}
        Whether a leaf's values are held within those that its own rows had.
    leaf_k : int
        Outputs of a sparse leaf.
    leaf_support : {"own", "shared"}
        Each leaf chooses its outputs (GBDT-MO, Algorithm 3), or the two children of a node share theirs
        (Algorithm 4).
    split_search : {"histogram", "exact", "sketch"}
        How splits are found: by histograms of all outputs; by exact sums of sparse gradients at every feature
        (GBDT-SPARSE, Algorithm 1); or proposed by histograms of a count-sketch and judged by exact sums. The
        last two are for sparse leaves, and keep targets and scores sparse.
    threshold_step : float
        With split_search="exact": a threshold at every such share of a node's rows; 0: at every bin.
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

    n_estimators: int = 300
    learning_rate: float = 0.1
    multi_strategy: Literal["multi_output_tree", "one_output_per_tree"] = "multi_output_tree"
    curvature: Curvature = "auto"
    leaf_curvature: Curvature = "auto"
    block_size: int = 2
    refresh: Literal["round", "tree", "layer"] = "round"
    rows_per_layer: Sequence[float] | None = None
    pruning: Literal["pre", "post"] = "pre"
    sketch: Any = None
    sketch_dim: int | None = None
    leaf: Literal["constant", "linear", "sparse"] = "constant"
    linear_fit: Literal["half_additive", "full", "post"] = "half_additive"
    linear_features: int = 5
    linear_lambda: float | None = None
    linear_extrapolation: Literal["clip", "free"] = "clip"
    leaf_k: int = 20
    leaf_support: Literal["own", "shared"] = "own"
    split_search: Literal["histogram", "exact", "sketch"] = "histogram"
    threshold_step: float = 0.05
    max_leaves: int | None = 31
    max_depth: int | None = None
    grow_policy: Literal["lossguide", "depthwise"] = "lossguide"
    reg_lambda: float = 1.0
    reg_alpha: float = 0.0
    min_split_gain: float = 0.0
    min_child_weight: float = 1e-3
    min_child_samples: int = 1
    max_delta_step: float = 0.0
    subsample: float = 1.0
    sampling_method: Literal["uniform", "goss"] = "uniform"
    top_rate: float = 0.2
    other_rate: float = 0.1
    colsample_bytree: float = 1.0
    colsample_bynode: float = 0.5
    max_cat_to_onehot: int = 4
    cat_smooth: float = 10.0
    seed: int = 0
    n_threads: int = 1
    histogram_memory: int | None = None

    @property
    def wanted_leaf_curvature(self) -> str:
        """`leaf_curvature`, where "auto" follows splits of full or block curvature."""
        follows = self.leaf_curvature == "auto" and self.curvature in ("full", "block")
        return self.curvature if follows else self.leaf_curvature

    @property
    def slope_lambda(self) -> float:
        """`linear_lambda`, or what stands for it."""
        return self.reg_lambda if self.linear_lambda is None else self.linear_lambda

    @property
    def looks_ahead(self) -> bool:
        """Whether splits are judged by what linear leaves will achieve."""
        has_slopes = self.linear_features > 0 and math.isfinite(self.slope_lambda)
        return self.leaf == "linear" and self.linear_fit != "post" and has_slopes

    @property
    def histogram_memory_bytes(self) -> int:
        return self.histogram_memory or DEFAULT_HISTOGRAM_MEMORY


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
    _check_curvature(config)
    _check_layers(config)
    _check_linear(config)
    if config.sampling_method == "goss" and config.subsample < 1.0:
        raise ValueError(
            'sampling_method="goss" chooses the rows itself (top_rate, other_rate), so subsample must be '
            f"1.0; it is {config.subsample}."
        )
    if config.sampling_method == "goss" and config.top_rate + config.other_rate > 1.0:
        raise ValueError(
            f"top_rate + other_rate must be at most 1, but {config.top_rate} + {config.other_rate} is more."
        )
    _check_sparse_leaves(config)
    if config.sketch is None and config.sketch_dim is not None and config.split_search != "sketch":
        raise ValueError(
            f"sketch_dim={config.sketch_dim} without a sketch means nothing; set sketch as well "
            '("auto", say).'
        )
    if config.sketch is not None and config.multi_strategy == "one_output_per_tree":
        raise ValueError(
            'A sketch stands for many outputs, but multi_strategy="one_output_per_tree" grows a tree for '
            "each; set sketch=None."
        )
    if config.sketch is not None and config.curvature == "diagonal":
        raise ValueError(
            'curvature="diagonal" judges splits by the curvature of each output, which the columns of a '
            'sketch do not have; use "auto", "shared" or "none".'
        )


def _check_sparse_leaves(config: BoostConfig) -> None:
    if config.leaf != "sparse":
        if config.split_search != "histogram":
            raise ValueError(
                f'split_search="{config.split_search}" works on sparse gradients, which only sparse '
                "leaves keep "
                'sparse; set leaf="sparse" as well.'
            )
        return
    if config.multi_strategy == "one_output_per_tree":
        raise ValueError(
            'leaf="sparse" keeps some outputs of a leaf, but multi_strategy="one_output_per_tree" '
            "gives a leaf one "
            'output only; use "multi_output_tree".'
        )
    if {config.curvature, config.wanted_leaf_curvature} & {"full", "block"}:
        raise ValueError(
            'leaf="sparse" chooses outputs one by one, while full and block curvature couple them; '
            'use "diagonal".'
        )
    if config.refresh == "layer":
        raise ValueError(
            'refresh="layer" sums a step of every layer in a leaf, so that the leaf would not stay '
            "sparse; use "
            'leaf="constant" or refresh="round".'
        )
    if config.split_search == "histogram":
        return
    if config.sketch not in (None, "auto", "count_sketch"):
        raise ValueError(
            f"sketch={config.sketch!r} is for dense gradients; those of sparse targets are sketched by a "
            'count-sketch (split_search="sketch" with sketch_dim).'
        )
    for name in ("curvature", "leaf_curvature"):
        if getattr(config, name) == "diagonal":
            raise ValueError(
                f'{name}="diagonal": with sparse targets every output has the same curvature; use "auto".'
            )
    if config.leaf_support == "shared":
        raise ValueError(
            'leaf_support="shared" is GBDT-MO\'s restricted search and needs the histograms of all '
            "outputs; use "
            'split_search="histogram", or leaf_support="own".'
        )


def _check_curvature(config: BoostConfig) -> None:
    kinds = {"curvature": config.curvature, "leaf_curvature": config.wanted_leaf_curvature}
    for name, kind in kinds.items():
        if kind not in ("full", "block"):
            continue
        if config.multi_strategy == "one_output_per_tree":
            raise ValueError(
                f'{name}="{kind}" couples the outputs of a leaf, but multi_strategy="one_output_per_tree" '
                'grows a tree for each; use "diagonal", or one tree for all.'
            )
        if config.sketch is not None and name == "curvature":
            raise ValueError(
                f'curvature="{kind}" needs the Hessian of all outputs, which the columns of a sketch do not '
                "have; set sketch=None or use another curvature. (leaf_curvature may be "
                f'"{kind}": leaves are fitted on all outputs.)'
            )
        if config.reg_alpha > 0 or config.max_delta_step > 0:
            raise ValueError(
                f'{name}="{kind}" couples outputs, while reg_alpha and max_delta_step act on each leaf value '
                'alone; set both to 0, or use "diagonal".'
            )


def _check_linear(config: BoostConfig) -> None:
    if config.leaf != "linear":
        return
    for name, kind in (("curvature", config.curvature), ("leaf_curvature", config.wanted_leaf_curvature)):
        if kind in ("full", "block"):
            raise ValueError(
                f'{name}="{kind}" couples the outputs of a leaf, which linear leaves fit one by one; use '
                '"diagonal", or leaf="constant".'
            )
    if config.reg_alpha > 0 or config.max_delta_step > 0:
        raise ValueError(
            "reg_alpha and max_delta_step act on a leaf's one value, which a linear leaf does not have; set "
            "both to 0 (linear_lambda holds slopes back, linear_extrapolation values)."
        )
    if config.refresh == "layer":
        raise ValueError(
            'refresh="layer" sums the steps of all layers in a leaf, each with features of its own, so that '
            'leaves would outgrow linear_features; use refresh="round", or leaf="constant".'
        )
    if config.linear_fit == "full" and config.linear_features > 8:
        raise ValueError(
            f'linear_fit="full" solves for all features of a leaf at every candidate, and linear_features='
            f'{config.linear_features} is more than the 8 it is made for; use "half_additive".'
        )
    if config.looks_ahead and config.linear_fit == "full" and config.curvature == "diagonal":
        raise ValueError(
            'linear_fit="full" solves one system for all outputs, which curvature="diagonal" would make one '
            'for each; use curvature="shared" or "auto", or linear_fit="half_additive".'
        )


def _check_layers(config: BoostConfig) -> None:
    if config.refresh == "layer" and config.grow_policy != "depthwise":
        raise ValueError(
            'refresh="layer" grows trees layer by layer, but grow_policy="lossguide" splits one node at a '
            'time; set grow_policy="depthwise".'
        )
    rows = config.rows_per_layer
    if rows is None:
        return
    if config.refresh != "layer":
        raise ValueError('rows_per_layer is for layers that are boosted: set refresh="layer" as well.')
    if config.subsample < 1.0 or config.sampling_method == "goss":
        raise ValueError(
            'rows_per_layer chooses the rows itself: subsample must be 1.0 and sampling_method "uniform".'
        )
    if len(rows) == 0 or not all(_is_fraction_or_count(x) for x in rows):
        raise ValueError(
            f"rows_per_layer must hold fractions in (0, 1] or whole numbers of rows, got {list(rows)}."
        )


def _is_fraction_or_count(x: object) -> bool:
    return isinstance(x, Real) and float(x) > 0 and (float(x) <= 1 or float(x).is_integer())
