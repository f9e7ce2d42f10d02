"""Names that other libraries use for parameters, methods and functions, for hints in error
messages."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from polyleaf.runtime.user_warnings import warn_user

_Method = TypeVar("_Method", bound=Callable[..., object])

# Names of parameters in XGBoost, LightGBM, CatBoost and scikit-learn, by their name here.
FOREIGN_NAMES = {
    "n_estimators": (
        "n_round n_rounds num_round num_rounds nrounds num_boost_round num_iterations "
        "num_iteration n_iter n_iters max_iter iterations num_trees n_trees"
    ),
    "learning_rate": "eta lr shrinkage shrinkage_rate",
    "max_leaves": "num_leaves num_leaf n_leaves max_leaf max_leaf_nodes",
    "max_depth": "depth",
    "min_child_samples": (
        "min_data_in_leaf min_samples_leaf min_data min_data_per_leaf min_child_sample"
    ),
    "min_child_weight": (
        "min_sum_hessian_in_leaf min_sum_hessian_per_leaf min_sum_hessian min_hessian"
    ),
    "min_split_gain": "gamma reg_gamma min_split_loss min_gain_to_split min_impurity_decrease",
    "reg_lambda": "lambda lambda_ lambda_l2 l2_leaf_reg l2_regularization reg_l2",
    "reg_alpha": "alpha lambda_l1 l1_regularization reg_l1",
    "max_bins": "max_bin border_count",
    "subsample": "bagging_fraction sub_row sub_sample bagging subsample_ratio",
    "colsample_bytree": "feature_fraction sub_feature colsample rsm",
    "colsample_bynode": "feature_fraction_bynode colsample_bylevel max_features",
    "sampling_method": "data_sample_strategy bootstrap_type boosting boosting_type",
    "random_state": "seed random_seed data_random_seed",
    "n_jobs": "nthread nthreads n_thread num_thread num_threads thread_count n_threads",
    "verbose": "verbosity silent verbose_eval logging_level log_evaluation",
    "objective": "loss loss_function objective_type application",
    "eval_metric": "metric metrics custom_metric feval scoring",
    "early_stopping_rounds": "early_stopping_round early_stopping n_iter_no_change od_wait",
    "validation_fraction": "eval_fraction validation_size",
    "validation_order": "shuffle",
    "categorical_features": "categorical_feature cat_features categorical_column cat_feature",
    "class_weight": "class_weights auto_class_weights is_unbalance unbalance",
    "grow_policy": "growing_policy tree_growth",
    "monotone_constraints": (
        "monotone_constraint monotonic_constraints monotonic_cst monotone_cst monotonicity "
        "mono_constraints mc constraints"
    ),
    "interaction_constraints": "interaction_cst interaction_constraint",
    "quantile_alpha": "quantile quantiles quantile_level alpha_quantile",
    "max_cat_to_onehot": "one_hot_max_size",
    "huber_delta": "huber_slope delta",
    "tweedie_variance_power": "tweedie_power variance_power",
    "student_t_df": "df degrees_of_freedom",
    "multi_strategy": "multi_target tree_strategy",
    "init_model": "xgb_model",
    "eval_set": "validation_data evals valid_sets",
    "eval_names": "valid_names",
    "eval_sample_weight": "sample_weight_eval_set",
    "sample_weight": "weight weights",
    "offset": "base_margin init_score baseline exposure",
    "iteration_range": (
        "ntree_limit ntree_start ntree_end num_iteration start_iteration best_ntree_limit "
        "n_estimators"
    ),
}
# Those that are arguments of methods.
_METHOD_ARGUMENTS = {
    "fit": (
        "init_model",
        "eval_set",
        "eval_names",
        "eval_sample_weight",
        "sample_weight",
        "offset",
    ),
    "predict": ("iteration_range",),
}
_OWN_NAMES: dict[str, list[str]] = {}
for _own, _foreign in FOREIGN_NAMES.items():
    for _name in _foreign.split():
        _OWN_NAMES.setdefault(_name, []).append(_own)

# Hints for foreign parameters without an equivalent.
FOREIGN_HINTS = {
    "enable_categorical": "categorical columns of a data frame are categorical features; use "
    "categorical_features for others",
    "output_margin": "predict_raw returns raw scores",
    "raw_score": "predict_raw returns raw scores",
    "prediction_type": "predict_raw returns raw scores, predict_proba probabilities",
    "pred_leaf": "apply returns leaves",
    "tree_method": "splits are always found with histograms",
    "booster": 'boosters are trees; leaf="linear" has linear leaves',
    "missing": "NaN and nulls are missing values; replace other marks by NaN first",
    "use_missing": "NaN and nulls are missing values",
    "num_class": "the number of classes is taken from y",
    "feature_name": "names are those of the columns of a data frame, or Dataset(feature_names=)",
    "feature_names": "names are those of the columns of a data frame, or Dataset(feature_names=)",
    "use_best_model": "with early_stopping_rounds predictions use the rounds up to the best one",
    "monotone_constraints_method": "constraints always hold exactly",
    "monotone_penalty": "constraints always hold exactly, without a penalty",
    "feature_weights": "use feature_penalties with 1 - weight",
    "classifier": "presets are the same for both estimators",
    "plot": "polyleaf.inspection.plotting.LearningCurvesDisplay plots evals_result_",
    "metric_period": "verbose=10 prints every tenth round",
}
_SHARED_HINTS = {
    "criterion score_function": "splits are chosen by the reduction of the objective",
    "task_type gpu_id": 'device="cuda" trains on a GPU',
    "predictor": "predictions run on the CPU",
    "bagging_freq subsample_freq": "subsample draws rows for each tree",
    "bagging_temperature langevin posterior_sampling mvs_reg": (
        "subsample and sampling_method draw rows"
    ),
    "max_cat_threshold min_data_per_group cat_l2": (
        "categories are sorted with smoothing cat_smooth"
    ),
    "zero_as_missing nan_mode": (
        "NaN and nulls are missing values; replace other marks by NaN first"
    ),
    "boost_from_average": "base_score=0 starts from zero",
    "scale_pos_weight is_unbalance unbalance class_weight class_weights auto_class_weights": (
        "it is for classifiers; fit takes sample_weight"
    ),
    "num_parallel_tree": "a round grows one tree, or one for each output",
    "importance_type": (
        "feature_importances_ are shares of gain; use feature_importance(kind) for others"
    ),
    "validate_parameters": "parameters are always checked",
    "validate_features": "features are always checked; pass an array to match them by position",
    "extra_trees": "thresholds are not drawn at random",
    "feature_contri feature_contrib feature_penalty": (
        "use feature_penalties with 1 - feature_contri"
    ),
    "penalties_coefficient first_feature_use_penalties": (
        "feature_penalties multiplies the gains of a feature by 1 - penalty"
    ),
    "per_object_feature_penalties cegb_tradeoff": (
        "feature_penalties multiplies the gains of a feature by 1 - penalty"
    ),
    "path_smooth": "reg_lambda shrinks leaf values, and min_child_samples sets the size of leaves",
    "rate_drop drop_rate skip_drop": "dropout of trees (DART) is not available",
    "allow_writing_files train_dir": "training writes no files, except by callbacks",
    "leaf_estimation_iterations leaf_estimation_method": "leaf values are computed in one step",
    "force_col_wise force_row_wise deterministic": (
        "the model is the same for any number of threads"
    ),
    "tol": "early_stopping_rounds counts rounds without any improvement",
    "linear_tree": 'leaf="linear" has linear leaves',
    "group qid group_id": "ranking objectives are not available",
    "pred_contrib pred_contribs shap_values": "use shap_values",
    "pred_interactions": "use shap_values(X, interactions=True)",
}
FOREIGN_HINTS |= {name: hint for names, hint in _SHARED_HINTS.items() for name in names.split()}

# Values of parameters in other libraries: a pattern of their lower-case repr, and a hint.
_VALUES: dict[str, list[tuple[str, str]]] = {
    "max_depth": [(r"-\d+|0|\d{10,}", "None means no limit")],
    "max_leaves": [(r"-\d+|0|\d{10,}", "None means no limit")],
    "verbose": [(r"-\d+", "0 is silent")],
    "random_state": [
        (r"-\d+", "None gives a different model each time"),
        (r"generator\(.*", "draw an int from a Generator: int(rng.integers(2**32))"),
    ],
    "grow_policy": [
        (r"'loss_?guide'|'leaf[-_]?wise'", 'use "lossguide"'),
        (r"'(depth|level)[-_]?wise'", 'use "depthwise"'),
        (r"'symmetrictree'", '"depthwise" is closest; symmetric trees are not available'),
    ],
    "device": [(r"'gpu'|'cuda:\d+'", 'use "cuda", and CUDA_VISIBLE_DEVICES to choose the GPU')],
    "objective": [
        (
            r"\{.*",
            "an objective is a name or an object; pass other parameters as keywords or "
            "**parameters; a dict of objectives by column is for PolyleafMultiTask",
        ),
        (
            r"\[.*|\(.*",
            "one objective applies to all outputs; PolyleafMultiTask takes a dict of objectives by "
            "column",
        ),
    ],
    "monotone_constraints": [(r"'.*'", "pass a list, or a dict by name, instead of a string")],
    "interaction_constraints": [(r"'.*'", "pass a list of lists instead of a string")],
}

# Attributes and methods of estimators of other libraries.
_ATTRIBUTES = {
    "get_booster booster_": "model_ is the fitted model",
    "best_iteration best_ntree_limit get_best_iteration": "best_iteration_ is the best round",
    "best_score get_best_score": "best_score_ is the score of the best round",
    "evals_result get_evals_result": "evals_result_ has the metrics of every round",
    "get_feature_importance get_score get_fscore": "use feature_importance(kind)",
    "n_classes_": "use len(classes_)",
    "feature_name_ feature_names_": "feature_names_in_ are the names of the data frame trained on",
    "dump_model get_dump trees_to_dataframe": (
        "polyleaf.inspection.model_summary has the trees (nodes_table, dump_json)"
    ),
    "plot_importance plot_tree plot_metric to_graphviz": (
        "polyleaf.inspection.plotting has displays"
    ),
    "calc_leaf_indexes": "apply returns leaves",
    "partial_fit": "fit(..., init_model=) continues a model, and refit renews its leaf values",
    "grid_search randomized_search": (
        "scikit-learn's searches take the estimator, and those of names that end in CV choose "
        "parameters"
    ),
    "save": "save_model writes a file",
}
FOREIGN_ATTRIBUTES = {name: hint for names, hint in _ATTRIBUTES.items() for name in names.split()}
"""Hints for attributes of estimators of other libraries."""


# Functions and classes of other libraries.
_FUNCTIONS = {
    "train": "use PolyleafRegressor(...).fit(X, y) or PolyleafClassifier(...).fit(X, y)",
    "cv": "use scikit-learn's cross_validate, or PolyleafRegressorCV to search parameters",
    "DMatrix QuantileDMatrix Pool": (
        "fit takes X and y directly, or a Dataset(X, y) that is binned once"
    ),
    "XGBRegressor LGBMRegressor CatBoostRegressor": "use PolyleafRegressor",
    "XGBClassifier LGBMClassifier CatBoostClassifier": "use PolyleafClassifier",
    "XGBRanker LGBMRanker CatBoostRanker PolyleafRanker": "ranking objectives are not available",
    "DaskXGBRegressor DaskXGBClassifier DaskLGBMRegressor": "polyleaf.dask has estimators",
    "EarlyStopping early_stopping": (
        "use the parameter early_stopping_rounds, or polyleaf.callbacks.EarlyStopping"
    ),
    "log_evaluation record_evaluation": "verbose prints metrics, and evals_result_ has them",
    "callback reset_parameter": "callbacks are in polyleaf.callbacks",
    "plot_importance plot_tree plot_metric to_graphviz create_tree_digraph": (
        "polyleaf.inspection.plotting has displays"
    ),
    "load": "load_model reads a model",
    "save save_model": "estimators have save_model",
    "Booster": "load_model reads a model, and model_ is the model of a fitted estimator",
}
_FUNCTION_HINTS = {name: hint for names, hint in _FUNCTIONS.items() for name in names.split()}


def get_foreign_function_hint(name: str) -> str:
    """Return a hint for a function or class of another library, to append to a message, or ""."""
    return f": {_FUNCTION_HINTS[name]}" if name in _FUNCTION_HINTS else ""


def get_foreign_value_hint(name: str, value: object) -> str:
    """Return a sentence about a value that this parameter has in another library, or ""."""
    for pattern, hint in _VALUES.get(name, ()):
        if re.fullmatch(pattern, repr(value).lower()):
            return f" {hint[0].upper()}{hint[1:]}." if hint[0].isalpha() else f" {hint}."
    return ""


def warn_one_vs_rest(label: str | None, name: str, n_classes: int, prefix: str = "") -> None:
    """Warn if a foreign name of a binary objective is used with more than two classes.

    Parameters
    ----------
    label : str or None
        The name that the user gave; only foreign names warn.
    name : str
        Name of the objective here.
    prefix : str
        Beginning of the message.
    """
    if label is not None and label.lower() != name:
        warn_user(
            f"{prefix}objective={label!r} is {name!r} here, which learns each of the "
            f'{n_classes} classes against the rest. Use objective="softmax" for exclusive '
            f'classes, or objective="{name}" to keep one-vs-rest.'
        )


def raise_unknown_parameters(
    where: str,
    names: Iterable[str],
    parameters: Iterable[str],
    constructor_names: Iterable[str] = (),
) -> None:
    """Raise a TypeError for the first unknown name, with a suggestion.

    Parameters
    ----------
    where : str
        Function that was called: "PolyleafRegressor", "PolyleafRegressor.fit".
    names, known : iterable of str
    constructor_names : iterable of str
        For a method: parameters of the constructor.
    """
    parameters, constructor_names = list(parameters), list(constructor_names)
    method_arguments = {} if constructor_names else _METHOD_ARGUMENTS
    for name in names:
        if name not in parameters:
            hint = _make_hint(name, parameters, constructor_names, method_arguments)
            raise TypeError(f"{where}() takes no {name!r}{hint}")


def suggest(name: str, parameters: Iterable[str]) -> str:
    """Return a suggestion for an unknown name, to append to a message, or ""."""
    return _make_hint(name, list(parameters), [], {})


def suggest_on_unknown_kwargs(method: _Method) -> _Method:
    """Decorate a method of an estimator: unknown keywords raise an error with a suggestion."""
    parameters = [name for name in inspect.signature(method).parameters if name != "self"]

    @functools.wraps(method)
    def wrapper(self: Any, *args: object, **kwargs: Any) -> object:
        if kwargs and not kwargs.keys() <= set(parameters):
            where = f"{type(self).__name__}.{method.__name__}"
            raise_unknown_parameters(where, kwargs, parameters, self._get_param_names())
        return method(self, *args, **kwargs)

    return wrapper  # type: ignore[return-value]


class _WarnIfCalledOnInstance:
    """A class method that returns an estimator, and warns if it is called on one."""

    def __init__(self, method: Any) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, estimator: Any, owner: type) -> object:
        method = self._method.__get__(None, owner)
        if estimator is None:
            return method

        @functools.wraps(method)
        def wrapper(*args: object, **kwargs: object) -> object:
            estimator_of_file = method(*args, **kwargs)
            name = method.__name__
            warn_user(
                f"{name} returns a new estimator and leaves the one that it is called on "
                f"unchanged. Use m = {owner.__name__}.{name}(path)."
            )
            return estimator_of_file

        return wrapper


# Typed, so that type checkers know what the method returns.
warn_if_called_on_instance: Callable[[_Method], _Method] = cast(Any, _WarnIfCalledOnInstance)
"""Decorator of class methods, above `classmethod`."""


def _make_hint(
    name: str,
    parameters: list[str],
    constructor_names: list[str],
    method_arguments: Mapping[str, Iterable[str]],
) -> str:
    for suffix, names in (("", parameters), (" of the constructor", constructor_names)):
        if name in names:
            return f": it is a parameter{suffix}"
        candidates = [own_name for own_name in _OWN_NAMES.get(name, ()) if own_name in names]
        if candidates:
            return f": did you mean {' or '.join(candidates)}{suffix}?"
    for method, arguments in method_arguments.items():
        candidates = [
            own_name for own_name in (name, *_OWN_NAMES.get(name, ())) if own_name in arguments
        ]
        if candidates:
            return f": it is {candidates[0]} of {method}"
    if name in FOREIGN_HINTS:
        return f": {FOREIGN_HINTS[name]}"
    close = difflib.get_close_matches(name, parameters, n=1) or difflib.get_close_matches(
        name, constructor_names, n=1
    )
    if close:
        suffix = "" if close[0] in parameters else " of the constructor"
        return f": did you mean {close[0]}{suffix}?"
    return f"; it takes {', '.join(parameters)}" if len(parameters) < 20 else ""
