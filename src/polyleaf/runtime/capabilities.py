"""What works with what: the features of fits and models, and where each of them is refused.

A feature is a row of `FEATURES`: how its use is found, and the sentences that users get at the
places, and beside the other features, where it is not available. Everything else works, which
`tests/whole/test_capabilities.py` tries cell by cell. A place, such as an export, calls `check`;
the page "What works with what" of the documentation is generated from the table.

The table lies in the lowest layer, because all others read it. It therefore imports none of them,
and looks at the attributes of the objects that it is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn, TypeAlias

from polyleaf.runtime.cuda import is_device_array

PLACES = {
    "dask": "Dask",
    "many_dask_rows": "Dask, more than 10⁶ rows",
    "search": "search",
    "memory_estimate": "`memory_estimate`",
    "refit": "`refit`",
    "new_outputs": "new classes and targets",
    "new_columns": "new columns",
    "topk": "`predict_topk`",
    "sparse_predictions": "`predict(sparse=True)`",
    "predictor": "`predictor()`",
    "device_predictor": "`predictor(device=)`",
    "model_file": "model file",
    "exports": "ONNX, C",
    "onnx_3": "ONNX, `opset_ml=3`",
    "treelite": "Treelite",
    "xgboost": "XGBoost",
    "skl2onnx": "skl2onnx",
    "shap_trees": "`export_shap_trees`",
    "report": "report",
}
"""Where features can be used besides `fit`, with the headings of their columns."""

WITHIN = {
    "many_dask_rows": "dask",
    "device_predictor": "predictor",
    **dict.fromkeys(("onnx_3", "treelite", "xgboost", "skl2onnx"), "exports"),
}
"""Places that another place is a part of: what that refuses, they refuse as well."""


@dataclass(frozen=True)
class Use:
    """What is known of a fit or of a model; None: nothing."""

    parameters: Any = None  # parameters of a fit
    model: Any = None  # model to continue if there are parameters, otherwise the model that is used
    objective: Any = None
    metrics: Any = None
    X: Any = None  # features as the user passed them
    evaluated: Any = None  # the same of the evaluation sets
    weight: Any = None  # weights of the rows of X as the user passed them
    offset: Any = None
    has_positions: bool | None = None
    target: Any = None  # encoded y
    has_sparse_y: bool = False
    members: Any = None  # members of the model in training

    @property
    def estimator(self) -> str:
        """The name of the estimator."""
        return type(self.parameters).__name__

    def get(self, name: str) -> Any:
        """Return the value of a parameter; None also if there is no such parameter."""
        return None if self.parameters is None else vars(self.parameters).get(name)

    @cached_property
    def names(self) -> set[str]:
        """Attributes that are known, and parameters of other values than their defaults."""
        facts = {
            name for name, fact in vars(self).items() if fact is not None and fact is not False
        }
        cls, values = type(self.parameters), getattr(self.parameters, "__dict__", {})
        changed = {name for name, v in values.items() if v is not getattr(cls, name, None)}
        return facts | changed


Find: TypeAlias = Callable[[Use], "str | None"]
"""Returns how the user asked for a feature, such as 'leaf="linear"', or None if it is not used."""


def _never(use: Use) -> None:
    """Find a feature that only its places can see, which call `refuse`."""


@dataclass(frozen=True)
class Feature:
    """One row of the table."""

    title: str  # name of the feature in the documentation, Markdown
    find: Find  # finds its use; `_never` if only the places can see it
    # Place or other feature -> the sentence that users get. It may contain `{this}` and `{other}`,
    # what `find` returned for the two features, and attributes of `{use}`.
    refused: Mapping[str, str]


def check(place: str | None = None, **facts: Any) -> None:
    """Raise a ValueError if a feature is not available at a place, or beside another feature.

    `place`: key of `PLACES`; None: the features are checked against each other. `facts`: attributes
    of `Use`.
    """
    refusal = find_refusal(place, Use(**facts))
    if refusal is not None:
        raise ValueError(refusal)


def refuse(feature: str, column: str, /, **values: object) -> NoReturn:
    """Raise the sentence of a feature and a column, a place or other feature, as a ValueError.

    `values` replace the names in braces.
    """
    raise ValueError(FEATURES[feature].refused[column].format(**values))


def find_refusal(place: str | None, use: Use) -> str | None:
    """Return the sentence for the first feature that is not available, or None if all are."""
    if place is not None:
        for feature in FEATURES.values():
            words = feature.find(use) if place in feature.refused else None
            if words is not None:
                return feature.refused[place].format(this=words, use=use)
        return None
    used = {}
    for name in _IN_PAIRS:
        words = FEATURES[name].find(use)
        if words is not None:
            used[name] = words
    for name, words in used.items():
        for other, sentence in FEATURES[name].refused.items():
            if other in used:
                return sentence.format(this=words, other=used[other], use=use)
    return None


# --- how features are found -----------------------------------------------------------------------


def _of(*names: str) -> Callable[[Find], Find]:
    """Decorate a finder that reads these attributes of `Use`, or parameters.

    It does not run if the attributes are unknown and the parameters have their defaults.
    """

    def decorate(find: Find) -> Find:
        def find_if_set(use: Use) -> str | None:
            return None if use.names.isdisjoint(names) else find(use)

        return find_if_set

    return decorate


def _argument(name: str, *values: str) -> Find:
    """Find a parameter that has one of these values, or any if none is listed, except None."""

    def find(use: Use) -> str | None:
        value = use.get(name)
        if value is None or (values and not (isinstance(value, str) and value in values)):
            return None
        return f'{name}="{value}"' if values else name

    return find


def _find_tasks(use: Use) -> str | None:
    objective = use.get("objective")
    is_multitask = hasattr(type(use.parameters), "task_weight")
    return "objective" if is_multitask and (objective is None or len(objective) != 1) else None


def _find_ranking(use: Use) -> str | None:
    kinds = getattr(use.objective or getattr(use.model, "objective", None), "target_kinds", ())
    is_ranker = hasattr(type(use.parameters), "goal_weights")
    return "ranking" if is_ranker or "relevance" in kinds else None


@_of("position_lambda")
def _find_position_lambda(use: Use) -> str | None:
    penalty = use.get("position_lambda")
    return f"position_lambda={penalty!r}" if penalty > 0 else None


def _find_no_positions(use: Use) -> str | None:
    return "no positions" if use.has_positions is False else None


@_of("leaf", "split_search")
def _find_sparse_targets(use: Use) -> str | None:
    """Find targets, scores and gradients that are kept sparse."""
    search = use.get("split_search")
    if search == "auto" and use.get("leaf") == "sparse" and use.has_sparse_y:
        search = "count_sketch"
    is_sparse = search in ("exact", "count_sketch")
    return f'split_search="{search}" (sparse targets)' if is_sparse else None


@_of("has_sparse_y")
def _find_sparse_y(use: Use) -> str | None:
    return "sparse y" if use.has_sparse_y and use.get("leaf") == "sparse" else None


@_of("leaf")
def _find_full_linear_fit(use: Use) -> str | None:
    if use.get("leaf") != "linear" or use.get("linear_fit") != "full":
        return None
    slope_lambda = use.get("linear_lambda")
    has_slopes = slope_lambda is None or math.isfinite(slope_lambda)
    return 'linear_fit="full"' if has_slopes and use.get("linear_features") > 0 else None


@_of("reg_alpha", "max_delta_step")
def _find_leaf_limits(use: Use) -> str | None:
    has_limits = use.get("reg_alpha") > 0 or use.get("max_delta_step") > 0
    return "reg_alpha and max_delta_step" if has_limits else None


@_of("warm_start")
def _find_warm_start(use: Use) -> str | None:
    return "warm_start" if use.get("warm_start") else None


@_of("members", "model")
def _find_members(use: Use) -> str | None:
    members = use.members or getattr(use.model, "metadata", {}).get("members", ())
    return "a model of several members (quality)" if len(members) > 1 else None


@_of("subsample")
def _find_subsample(use: Use) -> str | None:
    return "subsample" if use.get("subsample") < 1 else None


@_of("sketch")
def _find_dense_sketch(use: Use) -> str | None:
    sketch = use.get("sketch")
    is_dense = sketch is not None and sketch not in ("auto", "count_sketch")
    return f"sketch={sketch!r}" if is_dense else None


@_of("sketch")
def _find_own_sketch(use: Use) -> str | None:
    sketch = use.get("sketch")
    is_named = sketch is None or isinstance(sketch, str)
    is_own = not is_named and not getattr(sketch, "is_distributed", False)
    return f"sketch={sketch!r}" if is_own else None


@_of("threshold")
def _find_threshold(use: Use) -> str | None:
    threshold = use.get("threshold")
    is_set = threshold is not None and (isinstance(threshold, str | dict) or threshold != 0.5)
    return "threshold" if is_set else None


@_of("model")
def _find_opaque_init(use: Use) -> str | None:
    """Find an initial model that is not linear."""
    initial = use.model.initial
    return None if initial is None or hasattr(initial, "coef") else f"{initial.description} (init)"


@_of("model")
def _find_high_cardinality(use: Use) -> str | None:
    has_some = use.model.mapper.derived_columns_ is not None
    return "high-cardinality features" if has_some else None


@_of("model")
def _find_categories(use: Use) -> str | None:
    return "categorical features" if use.model.mapper.is_categorical_.any() else None


@_of("model")
def _find_float64_features(use: Use) -> str | None:
    needs_float64 = use.model.mapper.float64_bins_.tolist()
    return repr(use.model.feature_name(needs_float64.index(True))) if any(needs_float64) else None


@_of("model")
def _find_blend(use: Use) -> str | None:
    return "a blend" if "blend" in use.model.metadata else None


@_of("init", "model")
def _find_init(use: Use) -> str | None:
    if use.get("init") is not None:
        return "init"
    initial = getattr(use.model, "initial", None)
    return None if initial is None else f"{initial.description} (init)"


@_of("init")
def _find_init_estimator(use: Use) -> str | None:
    """Find an initial model that the user passes as an estimator."""
    init = use.get("init")
    return None if init is None or isinstance(init, str) else "init"


@_of("projection", "model")
def _find_projection(use: Use) -> str | None:
    is_used = (
        use.get("projection") is not None or getattr(use.model, "projection", None) is not None
    )
    return "projection" if is_used else None


@_of("X")
def _find_dataset(use: Use) -> str | None:
    return "a Dataset" if getattr(type(use.X), "is_binned", False) else None


@_of("X")
def _find_bins(use: Use) -> str | None:
    has_bins_only = _find_dataset(use) and use.X.features is None
    return "a Dataset of bins" if has_bins_only else None


@_of("evaluated")
def _find_evaluated_dataset(use: Use) -> str | None:
    has_dataset = any(_find_dataset(Use(X=X)) for X in use.evaluated)
    return "a Dataset to evaluate on" if has_dataset else None


@_of("categorical_features")
def _find_listed_categories(use: Use) -> str | None:
    categorical = use.get("categorical_features")
    is_listed = categorical is not None and not isinstance(categorical, str)
    return "categorical_features" if is_listed else None


@_of("offset")
def _find_offset(use: Use) -> str | None:
    return "offset"


@_of("weight")
def _find_output_weights(use: Use) -> str | None:
    shape: tuple[int, ...] = getattr(use.weight, "shape", ())
    return "sample_weight" if len(shape) > 1 and shape[1] > 1 else None


@_of("target")
def _find_sparse_numbers(use: Use) -> str | None:
    """Find sparse targets of a regression."""
    is_used = use.target.is_sparse
    return "sparse y" if is_used and use.target.encoding.kind == "regression" else None


@_of("target")
def _find_shares(use: Use) -> str | None:
    if use.target.encoding.kind != "multiclass":
        return None
    has_shares = use.target.values.ndim == 2 and not use.target.encoding.one_vs_rest
    return "shares of classes" if has_shares else None


@_of("normalize_targets")
def _find_normalised_targets(use: Use) -> str | None:
    is_used = use.get("normalize_targets") not in (None, "auto", False)
    return "normalize_targets=True" if is_used else None


@_of("X")
def _find_device_array(use: Use) -> str | None:
    return "an array on a GPU" if is_device_array(use.X) else None


@_of("objective")
def _find_updated_leaves(use: Use) -> str | None:
    """Find an objective whose leaf values are quantiles of residuals."""
    if use.objective is None or not use.objective.updates_leaves:
        return None
    for place in use.objective.tasks:
        if place.task.objective.updates_leaves:
            return f"Objective {place.task.objective.name!r} of task {place.task.name!r}"
    return f"Objective {use.objective.name!r}"


def _find_local_leaves(use: Use) -> str | None:
    is_local = _find_updated_leaves(use) and not use.objective.updates_leaves_distributed
    return f"objective {use.objective.name!r}" if is_local else None


def _find_joint_rows(use: Use) -> str | None:
    """Find losses of all rows together; the rows of a query are on one rank."""
    is_joint = use.objective is not None and not use.objective.is_row_separable
    is_joint = is_joint and "relevance" not in use.objective.target_kinds
    return f"objective {use.objective.name!r}" if is_joint else None


def _find_calibrated_quantiles(use: Use) -> str | None:
    has_facts = use.parameters is not None and use.objective is not None
    is_used = has_facts and use.parameters._is_calibrated(use.objective)
    return "calibrate_quantiles=True" if is_used else None


@_of("metrics")
def _find_label_frequencies(use: Use) -> str | None:
    for metric in use.metrics:
        if getattr(metric.function, "needs_label_frequencies", False):
            return f"eval_metric={metric.name!r}"
    return None


# --- the table ------------------------------------------------------------------------------------


def _each(names: Iterable[str], sentence: str) -> dict[str, str]:
    return dict.fromkeys(names, sentence)


_PROJECTED = (
    "{this} refers to features of X, but trees are grown on projected features; set {this}=None or "
    "projection=None."
)
_NOT_ON_GPU = (
    'device="cuda" does not support {this} yet; use device="cpu", which gives the same model.'
)
_COUPLED = ("coupled_splits", "coupled_leaves")
_SINGLE_TREES = (
    "{this} couples the outputs of a leaf, but {other} grows a tree for each; use "
    '"diagonal", or one tree for all outputs.'
)
_GROUPS = (
    "{this} couples all outputs of a leaf, but output_groups gives trees to some of them; use "
    '"diagonal", or output_groups=None.'
)
_CONSTANT_LEAVES = (
    'device="cuda" requires dense leaves, but this model has others: use device="cpu".'
)
_NOT_DISTRIBUTED = "Distributed training is not supported with these parameters: {this} "

FEATURES = {
    # --- trees ---
    "monotone_constraints": Feature(
        "Monotone constraints (`monotone_constraints`)",
        _argument("monotone_constraints"),
        {
            "projection": _PROJECTED,
            "sparse_leaves": "monotone_constraints cannot be combined with sparse leaves, because "
            "outputs that a leaf does not hold would have to change as well; use "
            'leaf="constant".',
            "linear_leaves": "monotone_constraints cannot be combined with linear leaves, whose "
            "values change within the leaf and may cross those of its neighbours; use "
            'leaf="constant".',
            **_each(
                _COUPLED,
                "{other} couples the outputs of a leaf, but monotone_constraints apply to single "
                'outputs; use "diagonal".',
            ),
            "sketch": "monotone_constraints apply to outputs, but the columns of a sketch, on "
            "which splits are found, are mixtures of outputs; set sketch=None.",
        },
    ),
    "interaction_constraints": Feature(
        "Interaction constraints (`interaction_constraints`)",
        _argument("interaction_constraints"),
        {"projection": _PROJECTED},
    ),
    "feature_penalties": Feature(
        "Feature penalties (`feature_penalties`)",
        _argument("feature_penalties"),
        {"projection": _PROJECTED},
    ),
    "layers": Feature(
        'Layer-wise boosting (`boosting_step="layer"`)',
        _argument("boosting_step", "layer"),
        {
            "best_first": "{this} grows trees layer by layer, but {other} splits one node at a "
            'time; set grow_policy="depthwise".',
            "sparse_leaves": "{this} sums the steps of all layers in a leaf, which would not stay "
            'sparse; use leaf="constant" or boosting_step="round".',
            "linear_leaves": "{this} sums the linear functions of all layers in a leaf, which "
            'would exceed linear_features; use boosting_step="round", or leaf="constant".',
        },
    ),
    "quality": Feature(
        "Quality other than the default (`quality`)",
        _argument("quality", "fast", "high"),
        {
            "search": "{use.estimator} does not support {this}: it chooses parameters itself, for "
            "as long as time_limit or n_candidates say."
        },
    ),
    "members": Feature(
        "Several members (`quality`)",
        _find_members,
        {
            "cuda": _NOT_ON_GPU,
            "layers": '{this} needs whole trees; use boosting_step="round".',
            "sparse_targets": "{this} needs the scores of all outputs, of which sparse targets "
            "keep the largest; use a dense y.",
        },
    ),
    "best_first": Feature(
        'Best-first growth (`grow_policy="lossguide"`)', _argument("grow_policy", "lossguide"), {}
    ),
    "whole_trees": Feature(
        'Boosting by round or tree (`boosting_step="round"`, `"tree"`)',
        _argument("boosting_step", "round", "tree"),
        {},
    ),
    # --- sampling ---
    "rows_per_layer": Feature(
        "Rows per layer (`rows_per_layer`)",
        _argument("rows_per_layer"),
        {
            "whole_trees": "rows_per_layer requires layer-by-layer boosting: set "
            'boosting_step="layer" as well.',
            **_each(
                ("subsample", "goss"),
                "rows_per_layer replaces other row sampling: subsample must be 1.0 and "
                'sampling_method "uniform".',
            ),
        },
    ),
    "subsample": Feature("Uniform sampling of rows (`subsample`)", _find_subsample, {}),
    "goss": Feature(
        'GOSS (`sampling_method="goss"`)',
        _argument("sampling_method", "goss"),
        {
            "subsample": "{this} samples rows by top_rate and other_rate, so subsample must be "
            "1.0; got {use.parameters.subsample}."
        },
    ),
    # --- leaves ---
    "sparse_leaves": Feature(
        'Sparse leaves (`leaf="sparse"`)',
        _argument("leaf", "sparse"),
        {
            "tasks": "{this} compares the gains of outputs, but the leaf values of different tasks "
            'have no common unit; use leaf="constant".',
            **_each(
                _COUPLED,
                '{other} couples outputs, but {this} chooses them one by one; use "diagonal".',
            ),
            "device_predictor": _CONSTANT_LEAVES,
            "one_output_per_tree": "{this} chooses among the outputs of a leaf, but {other} has "
            'one output per leaf; use "multi_output_tree".',
        },
    ),
    "linear_leaves": Feature(
        'Linear leaves (`leaf="linear"`)',
        _argument("leaf", "linear"),
        {
            "cuda": _NOT_ON_GPU,
            "device_predictor": _CONSTANT_LEAVES,
            **_each(
                ("treelite", "xgboost"),
                "The model has linear leaves, which {format} does not support: use to_onnx or "
                'to_c, or train with leaf="constant".',
            ),
            "shap_trees": "shap does not support linear leaves; use shap_values.",
            "bins": "Linear leaves need the features themselves, but this Dataset holds only their "
            "bins: make it with keep_features=True, or pass X instead.",
            **_each(
                _COUPLED,
                "{other} couples the outputs of a leaf, but linear leaves fit them one by one; use "
                '"diagonal", or leaf="constant".',
            ),
            "leaf_limits": "{other} apply to constant leaf values, which linear leaves do not "
            "have; set both to 0 (linear_lambda regularises slopes, linear_extrapolation limits "
            "values).",
        },
    ),
    "full_linear_fit": Feature(
        'Split gains of full linear fits (`linear_fit="full"`)',
        _find_full_linear_fit,
        {
            "diagonal_splits": "{this} solves one system for all outputs, but {other} needs one "
            'for each; use hessian="shared" or "auto", or linear_fit="half_additive".'
        },
    ),
    "dense_leaves": Feature(
        'Constant or linear leaves (`leaf="constant"`, `"linear"`)',
        _argument("leaf", "constant", "linear"),
        {},
    ),
    "leaf_limits": Feature(
        "Limits of leaf values (`reg_alpha`, `max_delta_step`)",
        _find_leaf_limits,
        {
            "tasks": "reg_alpha and max_delta_step limit leaf values in their own unit, which "
            "differs between tasks; set both to 0 (reg_lambda has no unit).",
            **_each(
                _COUPLED,
                "{other} couples outputs, but reg_alpha and max_delta_step apply to single leaf "
                'values; set both to 0, or use "diagonal".',
            ),
        },
    ),
    # --- outputs ---
    "one_output_per_tree": Feature(
        'One tree per output (`multi_strategy="one_output_per_tree"`)',
        _argument("multi_strategy", "one_output_per_tree"),
        {},
    ),
    "output_groups": Feature(
        "Output groups (`output_groups`)",
        _argument("output_groups"),
        {
            "cuda": _NOT_ON_GPU,
            "one_output_per_tree": "{other} grows a tree for each output, but output_groups says "
            'which share trees; leave multi_strategy at "multi_output_tree".',
            "sketch": "A sketch stands for all outputs, but output_groups grows trees for some of "
            "them; set sketch=None.",
            "sparse_targets": "output_groups needs a dense y or sparse leaves whose splits use "
            "histograms, but sparse targets are trained together; use "
            'split_search="histogram", or output_groups=None.',
        },
    ),
    "auto_output_groups": Feature(
        'Output groups that are searched for (`output_groups="auto"`)',
        _argument("output_groups", "auto"),
        {
            "many_dask_rows": "{this} compares trainings on one Dask worker, which takes at most a "
            "million rows; fit on a sample without Dask and pass its output_groups_."
        },
    ),
    "tasks": Feature(
        "Several tasks (`PolyleafMultiTask`)",
        _find_tasks,
        {
            "topk": "predict_topk ranks outputs, but the scores of different tasks cannot be "
            "compared."
        },
    ),
    "ranking": Feature(
        "Ranking (`PolyleafRanker`)",
        _find_ranking,
        {
            "new_outputs": "A ranking takes no new goals: train a new model.",
            "topk": "predict_topk ranks the outputs of a row, but a ranking orders the rows of a "
            "query: sort the rows by predict.",
            **_each(
                ("goss", "rows_per_layer"),
                "{other} draws single rows, which would cut queries; use subsample, which draws "
                "whole queries.",
            ),
            "sparse_targets": "Relevance cannot be kept sparse: 0 is a judgement as well; use "
            'split_search="histogram".',
            "intervals": "A ranking has no {method!r}: its scores have no unit, and only their "
            "order within a query means something. PolyleafRegressor predicts the values of y.",
        },
    ),
    "positions": Feature("Position bias of clicks (`positions`)", _never, {}),
    "position_lambda": Feature(
        "Penalty of position bias (`position_lambda`)",
        _find_position_lambda,
        {
            "no_positions": "{this} has no effect without positions: pass positions to fit, or "
            "leave position_lambda out."
        },
    ),
    "no_positions": Feature("Fits without `positions`", _find_no_positions, {}),
    "intervals": Feature(
        "Intervals, sets, distributions and probabilities (`predict_interval` and the like)",
        _never,
        {},
    ),
    "blend": Feature(
        "Blends of models (`blend`)",
        _find_blend,
        {"refit": "A blend of models cannot be refitted: refit the models, and blend them again."},
    ),
    "sketch": Feature(
        "Sketches (`sketch`)",
        _argument("sketch"),
        {
            "one_output_per_tree": "A sketch stands for many outputs, but {other} grows a tree for "
            "each; set sketch=None.",
            "diagonal_splits": "{other} needs the Hessian of each output, which a sketch does not "
            'have; use "auto", "shared" or "none".',
        },
    ),
    "own_sketch": Feature(
        "Own sketches (a function or an object as `sketch`)",
        _find_own_sketch,
        {
            "dask": _NOT_DISTRIBUTED + "sees the rows of one machine; use a sketch by its name, "
            'such as "random_projection" or "truncated_svd".'
        },
    ),
    # --- derivatives ---
    "diagonal_splits": Feature(
        'Diagonal Hessians in splits (`hessian="diagonal"`)', _argument("hessian", "diagonal"), {}
    ),
    "diagonal_leaves": Feature(
        'Diagonal Hessians in leaves (`leaf_hessian="diagonal"`)',
        _argument("leaf_hessian", "diagonal"),
        {},
    ),
    "coupled_splits": Feature(
        'Full and block Hessians in splits (`hessian="full"`, `"block"`)',
        _argument("hessian", "full", "block"),
        {
            "sketch": "{this} needs the Hessian of all outputs, which a sketch does not have; set "
            "sketch=None or use another hessian. (leaf_hessian may be "
            '"{use.parameters.hessian}".)',
            "one_output_per_tree": _SINGLE_TREES,
            "output_groups": _GROUPS,
        },
    ),
    "coupled_leaves": Feature(
        'Full and block Hessians in leaves (`leaf_hessian="full"`, `"block"`)',
        _argument("leaf_hessian", "full", "block"),
        {"one_output_per_tree": _SINGLE_TREES, "output_groups": _GROUPS},
    ),
    # --- targets ---
    "sparse_targets": Feature(
        'Sparse targets (`leaf="sparse"` with `split_search="count_sketch"`, `"exact"`)',
        _find_sparse_targets,
        {
            "cuda": _NOT_ON_GPU,
            "dense_leaves": 'split_search="{use.parameters.split_search}" requires sparse '
            'gradients, which only sparse leaves keep; set leaf="sparse" as well.',
            "dense_sketch": "{other} is for dense gradients; with sparse targets the sketch is a "
            'count-sketch (split_search="count_sketch" with sketch_dim).',
            **_each(
                ("diagonal_splits", "diagonal_leaves"),
                '{other}: with sparse targets every output has the same Hessian; use "auto".',
            ),
            "shared_outputs": "{other} is GBDT-MO's restricted search and needs the histograms of "
            'all outputs; use split_search="histogram", or leaf_output_set="own".',
            "memory_estimate": "memory_estimate is for dense targets: memory of sparse targets "
            "depends on their number of non-zeros.",
            "missing_targets": "{other} needs a dense y; sparse targets have no missing values.",
            "class_weight": "class_weight needs a dense y, because it also weights absent labels; "
            "use sample_weight.",
            "target_weight": "target_weight needs a dense y, because it also weights absent "
            "labels.",
            "normalised_targets": "{other} needs a dense y, because sparse targets keep their "
            "zeros; set it to False.",
            "offset": "offset needs a dense y: with sparse y raw scores are kept for few outputs "
            "per row.",
            "metrics_of_outputs": "eval_metric={metric!r} needs all outputs of a row, which sparse "
            'targets do not have; use "p@5", "ndcg@5", "psp@5" or "psndcg@5", with any number of '
            "places.",
            "one_label": "{name} has one dimension, but a sparse target is a matrix (n_rows, "
            "n_outputs). For classes use sklearn.preprocessing.LabelBinarizer(sparse_output=True), "
            'or set split_search="auto".',
        },
    ),
    "sparse_y": Feature(
        "Sparse y with sparse leaves",
        _find_sparse_y,
        {
            "search": "{use.estimator} does not support {this}: use PolyleafRegressor or "
            "PolyleafClassifier instead.",
            "report": "y must be dense for a report: pass an array, with fewer labels if there "
            "are many.",
        },
    ),
    "dense_sketch": Feature(
        "Sketches of dense gradients (all but the count-sketch)", _find_dense_sketch, {}
    ),
    "shared_outputs": Feature(
        'Outputs shared by siblings (`leaf_output_set="shared"`)',
        _argument("leaf_output_set", "shared"),
        {},
    ),
    "missing_targets": Feature(
        'Missing targets (`missing_targets="ignore"`)',
        _argument("missing_targets", "ignore"),
        {
            "one_label": 'missing_targets="ignore" is for regression and multi-label targets. '
            "Nothing can be learned from a row without its only label: remove it."
        },
    ),
    "one_label": Feature("Classes, one per row", _never, {}),
    "missing_values_in_y": Feature("Values that are missing in y", _never, {}),
    "sparse_numbers": Feature("Sparse y in regression", _find_sparse_numbers, {}),
    "shares": Feature(
        "Shares of classes",
        _find_shares,
        {"new_outputs": "A model of shares of classes takes no new ones: train a new model."},
    ),
    "normalised_targets": Feature(
        "Normalised targets (`normalize_targets=True`)", _find_normalised_targets, {}
    ),
    "class_weight": Feature("Class weights (`class_weight`)", _argument("class_weight"), {}),
    "target_weight": Feature(
        "Weights of targets (`target_weight`)",
        _argument("target_weight"),
        {
            "one_label": "target_weight weighs several targets or labels against each other, but y "
            "has one label per row: use class_weight for classes."
        },
    ),
    "output_weights": Feature("Weights of single outputs", _find_output_weights, {}),
    "offset": Feature(
        "Offsets (`offset`)",
        _find_offset,
        {
            "sparse_predictions": "predict(sparse=True) computes few outputs per row and cannot "
            "add an offset."
        },
    ),
    "offset_in_link": Feature("Offsets of classes, counts and amounts", _never, {}),
    "two_classes": Feature(
        "Two classes",
        _never,
        {
            "new_outputs": "{name} has the label {label}, but the model has one score for the two "
            "classes {classes} and cannot be widened: train a new model. Models of "
            'objective="softmax" have a score for each class.',
            "topk": "predict_topk is for several outputs, but two classes have one score; use "
            "decision_function.",
        },
    ),
    "dense_y": Feature(
        "Dense y",
        _never,
        {
            "sparse_predictions": "predict(sparse=True) requires a model that was trained on "
            "sparse targets, whose predictions are 0 for outputs without trees. Use predict_topk, "
            "or predict(sparse=False)."
        },
    ),
    # --- objectives and metrics ---
    "metrics_of_outputs": Feature(
        "Metrics of all outputs (all but `p@k` and the like)", _never, {}
    ),
    "updated_leaves": Feature(
        "Medians and quantiles, whose leaves are updated",
        _find_updated_leaves,
        _each(
            ("sparse_leaves", "linear_leaves"),
            "{this} fits its leaves by quantiles of residuals, which leaf={use.parameters.leaf!r} "
            'does not support; use leaf="constant", or objective="huber".',
        ),
    ),
    "local_leaf_updates": Feature(
        "Own objectives that update leaves without communication",
        _find_local_leaves,
        {
            "dask": _NOT_DISTRIBUTED + "updates its leaves from rows on one machine; train on one "
            "machine, or set updates_leaves_distributed if it communicates with the other ranks "
            "(polyleaf.objectives.base)."
        },
    ),
    "joint_rows": Feature(
        "Objectives that scale losses by statistics of all rows",
        _find_joint_rows,
        {
            "dask": _NOT_DISTRIBUTED + "scales losses by statistics of all rows; train on one "
            "machine, or one model per task."
        },
    ),
    "calibrated_quantiles": Feature(
        "Calibrated quantiles (`calibrate_quantiles`)",
        _find_calibrated_quantiles,
        {
            "many_dask_rows": "{this} trains models of folds on one Dask worker, which takes at "
            "most a million rows; set it to False, or learn a distribution."
        },
    ),
    "threshold": Feature(
        "Decision thresholds (`threshold`)",
        _find_threshold,
        {
            "several_classes": "threshold is for two classes and for multi-label targets; with "
            "several classes the most probable class is predicted.",
            "other_links": "threshold is a probability, but objective {objective!r} has no "
            'logistic link: use "logistic", or compare decision_function with a threshold.',
        },
    ),
    "several_classes": Feature("More than two classes, one per row", _never, {}),
    "other_links": Feature("Objectives without a logistic link", _never, {}),
    "tuned_threshold": Feature(
        'Thresholds that are chosen (`threshold="f1"`)',
        _argument("threshold", "f1", "f1_macro"),
        {
            "many_dask_rows": "{this} trains models of folds on one Dask worker, which takes at "
            "most a million rows; pass an eval_set, or set a number and call choose_threshold on "
            "the result of to_local."
        },
    ),
    "label_frequencies": Feature(
        "Propensity-scored metrics (`psp@k`)",
        _find_label_frequencies,
        {
            "dask": "Distributed training does not support {this}, which needs the label "
            "frequencies of all rows; compute it after training, or use another metric."
        },
    ),
    # --- data ---
    "init": Feature(
        "Initial models (`init`)",
        _find_init,
        {
            "many_dask_rows": "init is fitted on one Dask worker, which takes at most a million "
            "rows; pass its out-of-fold scores as offset.",
            "new_outputs": "A model that starts from {this} cannot be widened by new outputs: "
            "train a new one.",
            "new_columns": "A model that starts from {this} takes no further columns of X: leave "
            "them out, or train a new one.",
            "sparse_numbers": "init needs a dense y in regression; sparse labels may start from "
            "init.",
            **_each(
                ("dataset", "evaluated_dataset"),
                "init reads features, but {other} holds bins: pass the raw X, or the scores of a "
                "model of your own as offset.",
            ),
            "device_array": "init reads X in host memory: pass a copy of the array on the GPU.",
            "device_predictor": 'device="cuda" does not support models with init: use '
            'device="cpu".',
            **_each(
                ("treelite", "xgboost"),
                "Treelite and XGBoost hold trees only, but the model starts from {this}: use "
                "to_onnx or to_c, or train without init.",
            ),
            "shap_trees": "shap does not support models that start from init; use shap_values.",
        },
    ),
    "init_estimator": Feature(
        "Initial models that are estimators (`init=Ridge()`)",
        _find_init_estimator,
        {
            "search": '{use.estimator} supports init="linear" and "auto" for dense X and y '
            "without evaluation sets; other initial models are fitted to raw rows, which folds do "
            "not keep: use GridSearchCV.",
            "offset_in_link": "init needs y minus the offset, which classes, counts and amounts do "
            'not have: use init="linear", or pass the init_scores of a fitted estimator.',
            "shares": 'init needs class labels, but y has shares of classes: use init="linear".',
            "tasks": 'Several tasks start from linear models: use init="linear" or "auto", with a '
            "dense X.",
            "missing_values_in_y": 'init cannot be fitted to missing targets: use init="linear", '
            "fill them, or pass the scores of a model of your own as offset.",
            "output_weights": "init needs one sample_weight per row, not one per row and output: "
            'use init="linear".',
        },
    ),
    "opaque_init": Feature(
        "Initial models that are not linear",
        _find_opaque_init,
        {
            "predictor": "predictor does not support models that start from {this}, which is not "
            "linear: use predict.",
            "model_file": "The model starts from {this}, which a model file cannot hold: pickle "
            "the estimator, or use a linear model as init.",
            "exports": "The model starts from {this}, which no export format supports: use a "
            "linear model as init.",
        },
    ),
    "projection": Feature(
        "Projections (`projection`)",
        _find_projection,
        {
            "many_dask_rows": 'projection="pca" and "leml" are learned on one Dask worker, which '
            'takes at most a million rows: use "gaussian", or learn the projection from a sample '
            "and project X first (polyleaf.sketching.projections).",
            "search": "{use.estimator} does not support projection: it is learned from raw rows, "
            "which folds do not keep; use GridSearchCV.",
            "new_columns": "A model with a projection takes no further columns of X: leave them "
            "out, or train a new one.",
            "dataset": "projection requires the raw X, but a Dataset holds features that are "
            "binned already.",
            "predictor": "predictor does not support models with a projection of the features: use "
            "predict.",
            "shap_trees": "shap does not support models that project their features; use "
            "shap_values.",
            "exports": "The model projects its features, which no export format supports: use "
            "save_model, or train without projection.",
            "listed_categories": "categorical_features cannot be set with projection, which "
            "combines all features as numbers.",
        },
    ),
    "high_cardinality": Feature(
        "Categorical features of more than 255 categories",
        _find_high_cardinality,
        {
            "many_dask_rows": "Column {column} of X has more than 255 categories. One Dask worker "
            "learns their target encoding, and takes at most a million rows: drop the column, or "
            "encode it as numbers.",
            "bins_on_disk": "{column} has more than 255 categories, which are encoded in memory "
            "once the target is known: leave out cache_dir and memory_limit, or the column.",
            "new_columns": "A model with features of more than 255 categories takes no further "
            "columns of X: leave them out, or train a new one.",
            "predictor": "predictor does not support models with high-cardinality categorical "
            "features (more than 255 categories): use predict.",
            "exports": "The model encodes features of more than 255 categories, which no export "
            "format supports: use save_model, or train on fewer categories.",
            "shap_trees": "shap does not support high-cardinality categorical features; use "
            "shap_values.",
        },
    ),
    "categories": Feature(
        "Categorical features",
        _find_categories,
        {
            "onnx_3": "The model has categorical splits, which opset_ml=3 does not support: use "
            "opset_ml=5.",
            "skl2onnx": "{estimator} has categorical features, which pipelines do not encode as "
            'the graph needs them: use polyleaf.export.to_onnx(model, input="columns").',
            "shap_trees": "shap does not support splits on categories; use shap_values.",
        },
    ),
    "float64_features": Feature(
        "Features whose values differ only in float64",
        _find_float64_features,
        {
            "xgboost": "Feature {this} has values that differ only in float64, but XGBoost "
            "compares float32: use to_onnx, to_treelite or to_c."
        },
    ),
    "sparse_X": Feature("Sparse X", _never, {}),
    "listed_categories": Feature(
        "Categories that are listed (`categorical_features`)", _find_listed_categories, {}
    ),
    "validation_fraction": Feature(
        "Rows held out (`validation_fraction`)",
        _argument("validation_fraction"),
        {
            "dask": "Distributed training does not support validation_fraction, which samples from "
            "all rows; pass an eval_set.",
            "search": "{use.estimator} does not support validation_fraction: cv holds rows out.",
            **_each(
                ("dataset", "device_array"),
                "validation_fraction cannot split {other}: pass validation data as eval_set.",
            ),
        },
    ),
    "warm_start": Feature(
        "Warm starts (`warm_start`)",
        _find_warm_start,
        {
            "search": "{use.estimator} does not support warm_start: a search cannot continue a "
            "model."
        },
    ),
    "dataset": Feature(
        "A `Dataset` as X",
        _find_dataset,
        {
            "new_columns": "This Dataset was binned differently from the model: make it with "
            "reference=model.mapper, or pass the raw X."
        },
    ),
    "bins_on_disk": Feature("A `Dataset` in files (`cache_dir`, `memory_limit`)", _never, {}),
    "bins": Feature("A `Dataset` without features (`keep_features=False`)", _find_bins, {}),
    "evaluated_dataset": Feature("A `Dataset` to evaluate on", _find_evaluated_dataset, {}),
    "device_array": Feature(
        "Arrays in GPU memory",
        _find_device_array,
        {"refit": "refit runs on the CPU: pass X in host memory."},
    ),
    "cuda": Feature(
        'Training on a GPU (`device="cuda"`)',
        _argument("device", "cuda"),
        {
            "dask": "Distributed training does not support {this}, which runs on one machine; use "
            'device="cpu".'
        },
    ),
}
"""The features, by the names that `Feature.refused` uses."""

_IN_PAIRS = [
    name
    for name, feature in FEATURES.items()
    if feature.find is not _never
    and (
        feature.refused.keys() & FEATURES.keys()
        or any(name in other.refused for other in FEATURES.values())
    )
]
"""The features that some other feature excludes."""
