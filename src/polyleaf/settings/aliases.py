"""What other libraries call things, for those who come from them: "did you mean".

Owns the names of others and what they are here. Must not know what parameters there are: it is
told.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

__all__ = [
    "get_foreign_attribute_hint",
    "suggest_on_unknown_kwargs",
    "get_foreign_function_hint",
    "meant",
    "raise_unknown_parameters",
    "get_foreign_value_hint",
    "warn_one_vs_rest",
    "warn_if_called_on_instance",
]

_Method = TypeVar("_Method", bound=Callable[..., Any])

# By our name: what XGBoost, LightGBM, CatBoost and scikit-learn call it.
_OTHERS_CALL_IT = {
    "n_estimators": (
        "n_round n_rounds num_round num_rounds nrounds num_boost_round num_iterations "
        "num_iteration n_iter n_iters max_iter iterations num_trees n_trees"
    ),
    "learning_rate": "eta lr shrinkage shrinkage_rate",
    "max_leaves": "num_leaves num_leaf n_leaves max_leaf max_leaf_nodes",
    "max_depth": "depth",
    "min_child_samples": "min_data_in_leaf min_samples_leaf min_data min_data_per_leaf min_child_sample",
    "min_child_weight": "min_sum_hessian_in_leaf min_sum_hessian_per_leaf min_sum_hessian min_hessian",
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
    "offset": "base_margin init init_score baseline exposure",
    "iteration_range": (
        "ntree_limit ntree_start ntree_end num_iteration start_iteration best_ntree_limit "
        "n_estimators"
    ),
}
# Of these, what the constructor does not take, by the method that does.
_OF_METHODS = {
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
_OURS: dict[str, list[str]] = {}
for _ours, _theirs in _OTHERS_CALL_IT.items():
    for _name in _theirs.split():
        _OURS.setdefault(_name, []).append(_ours)

# What there is no parameter for.
_INSTEAD = {
    "enable_categorical": "columns of a data frame that are categories by type are taken as such; for others "
    "there is categorical_features",
    "output_margin": "predict_raw gives raw scores",
    "raw_score": "predict_raw gives raw scores",
    "prediction_type": "predict_raw gives raw scores, predict_proba probabilities",
    "pred_leaf": "apply gives leaves",
    "tree_method": "splits are always found from histograms",
    "booster": "boosters are trees; leaves may be linear (leaf)",
    "missing": "NaN and nulls are missing values; replace other marks by NaN first",
    "use_missing": "NaN and nulls are missing values",
    "num_class": "classes are counted",
    "feature_name": "names are those of a data frame's columns, or Dataset(feature_names=)",
    "feature_names": "names are those of a data frame's columns, or Dataset(feature_names=)",
    "use_best_model": "with early_stopping_rounds predictions use the rounds up to the best one",
    "monotone_constraints_method": "there is one method, which no leaf disobeys",
    "monotone_penalty": "there is no penalty; a direction holds or is not asked for",
    "feature_weights": "feature_penalties has the shares of gains that are taken off: 1 - weight",
    "classifier": "recipes are for both estimators as they are",
    "plot": "polyleaf.inspection.plotting.LearningCurvesDisplay draws what evals_result_ holds",
    "metric_period": "verbose=10 prints every tenth round",
}
_SETS_INSTEAD = {
    "criterion score_function": "splits are judged by what they take off the objective",
    "task_type gpu_id": 'device="cuda" trains on a card',
    "predictor": "predictions are made on the processor",
    "bagging_freq subsample_freq": "subsample draws rows anew for each tree",
    "bagging_temperature langevin posterior_sampling mvs_reg": "subsample and sampling_method draw rows",
    "max_cat_threshold min_data_per_group cat_l2": "categories are put in order with cat_smooth",
    "zero_as_missing nan_mode": "NaN and nulls are missing values; replace other marks by NaN first",
    "boost_from_average": "base_score=0 starts from nothing",
    "scale_pos_weight is_unbalance unbalance class_weight class_weights auto_class_weights": (
        "it is for classifiers; fit takes a sample_weight"
    ),
    "num_parallel_tree": "a round grows one tree, or one for each output",
    "importance_type": "feature_importances_ are shares of gain; feature_importance(kind) has others",
    "validate_parameters": "parameters are always checked",
    "validate_features": "features are always checked; pass an array to go by position",
    "extra_trees": "thresholds are not drawn at random",
    "feature_contri feature_contrib feature_penalty": (
        "feature_penalties has the shares of gains that are taken off: 1 - feature_contri"
    ),
    "penalties_coefficient first_feature_use_penalties per_object_feature_penalties cegb_tradeoff": (
        "feature_penalties has shares of gains that are taken off wherever a feature competes"
    ),
    "path_smooth": "reg_lambda draws leaves towards 0, and min_child_samples keeps them large",
    "rate_drop drop_rate skip_drop": "there is no dropout of trees",
    "allow_writing_files train_dir": "nothing is written while training but what callbacks write",
    "leaf_estimation_iterations leaf_estimation_method": "leaves are made in one step",
    "force_col_wise force_row_wise deterministic": "any number of threads trains the same model",
    "tol": "early_stopping_rounds counts rounds without any improvement",
    "linear_tree": 'leaf="linear" has linear leaves',
    "group qid group_id": "there are no ranking objectives",
    "pred_contrib pred_contribs shap_values": "shap_values gives contributions",
    "pred_interactions": "shap_values(X, interactions=True) gives them",
}
_INSTEAD |= {name: words for names, words in _SETS_INSTEAD.items() for name in names.split()}

# Values that others give our parameters: what they match, in small letters, and what is said.
_VALUES: dict[str, list[tuple[str, str]]] = {
    "max_depth": [(r"-\d+|0|\d{10,}", "None is for no limit")],
    "max_leaves": [(r"-\d+|0|\d{10,}", "None is for no limit")],
    "verbose": [(r"-\d+", "0 is for silence")],
    "random_state": [
        (r"-\d+", "None is for another model each time"),
        (r"generator\(.*", "an int can be drawn from a Generator: int(rng.integers(2**32))"),
    ],
    "grow_policy": [
        (r"'loss_?guide'|'leaf[-_]?wise'", 'it is "lossguide"'),
        (r"'(depth|level)[-_]?wise'", 'it is "depthwise"'),
        (r"'symmetrictree'", '"depthwise" is nearest; there are no trees with one split a level'),
    ],
    "device": [(r"'gpu'|'cuda:\d+'", 'a card is "cuda"; which one CUDA_VISIBLE_DEVICES says')],
    "objective": [
        (
            r"\{.*",
            "a loss is a name or an object; other parameters are keywords, and a dict of them is "
            "given as **parameters; a dict of losses by column is for PolyleafMultiTask",
        ),
        (
            r"\[.*|\(.*",
            "it is one loss for all outputs; PolyleafMultiTask takes a dict of losses by column",
        ),
    ],
    "monotone_constraints": [(r"'.*'", "give the list, or the dict by name, rather than its text")],
    "interaction_constraints": [(r"'.*'", "give the list of lists rather than its text")],
}

# Attributes and methods of the estimators of others.
_ATTRIBUTES = {
    "get_booster booster_": "model_ is the fitted model",
    "best_iteration best_ntree_limit get_best_iteration": "best_iteration_ is the best round",
    "best_score get_best_score": "best_score_ is the score of the best round",
    "evals_result get_evals_result": "evals_result_ has the metrics of every round",
    "get_feature_importance get_score get_fscore": "feature_importance(kind) has gains, splits and more",
    "n_classes_": "classes_ has them, so their number is len(classes_)",
    "feature_name_ feature_names_": "feature_names_in_ are the names of the data frame trained on",
    "dump_model get_dump trees_to_dataframe": "polyleaf.inspection.model_summary has the trees (nodes_table, dump_json)",
    "plot_importance plot_tree plot_metric to_graphviz": "polyleaf.inspection.plotting has displays",
    "calc_leaf_indexes": "apply gives leaves",
    "partial_fit refit": "fit(..., init_model=) goes on from a model",
    "grid_search randomized_search": (
        "scikit-learn's searches take the estimator, and those of names that end in CV choose "
        "parameters"
    ),
    "save": "save_model writes a file",
}
_ATTRIBUTE_INSTEAD = {name: words for names, words in _ATTRIBUTES.items() for name in names.split()}


# Functions and classes of other packages.
_FUNCTIONS = {
    "train": "PolyleafRegressor(...).fit(X, y) and PolyleafClassifier(...).fit(X, y) train",
    "cv": "scikit-learn's cross_validate takes estimators, and PolyleafRegressorCV chooses parameters",
    "DMatrix QuantileDMatrix Pool": "fit takes X and y as they are, or a Dataset(X, y) that is binned once",
    "XGBRegressor LGBMRegressor CatBoostRegressor": "it is PolyleafRegressor",
    "XGBClassifier LGBMClassifier CatBoostClassifier": "it is PolyleafClassifier",
    "XGBRanker LGBMRanker CatBoostRanker PolyleafRanker": "there are no ranking objectives",
    "DaskXGBRegressor DaskXGBClassifier DaskLGBMRegressor": "polyleaf.dask has estimators",
    "EarlyStopping early_stopping": "early_stopping_rounds is a parameter; polyleaf.callbacks has a class",
    "log_evaluation record_evaluation": "verbose prints metrics, and evals_result_ has them",
    "callback reset_parameter": "callbacks are in polyleaf.callbacks",
    "plot_importance plot_tree plot_metric to_graphviz create_tree_digraph": "polyleaf.inspection.plotting has displays",
    "load": "load_model reads a model",
    "save save_model": "estimators have save_model",
    "Booster": "load_model reads a model, and model_ is that of a fitted estimator",
}
_FUNCTION_INSTEAD = {name: words for names, words in _FUNCTIONS.items() for name in names.split()}


def get_foreign_function_hint(name: str) -> str:
    """What there is in place of another package's function or class: words behind a sentence, or
    nothing."""
    return f": {_FUNCTION_INSTEAD[name]}" if name in _FUNCTION_INSTEAD else ""


def get_foreign_attribute_hint(name: str) -> str:
    """What there is in place of an attribute of another package's estimators: words, or nothing."""
    return _ATTRIBUTE_INSTEAD.get(name, "")


def get_foreign_value_hint(name: str, value: object) -> str:
    """What a value that others give a parameter of this name is here: a sentence, or nothing."""
    for pattern, words in _VALUES.get(name, ()):
        if re.fullmatch(pattern, repr(value).lower()):
            return f" {words[0].upper()}{words[1:]}." if words[0].isalpha() else f" {words}."
    return ""


def warn_one_vs_rest(objective: object, ours: str, n_classes: int, whose: str = "") -> None:
    """Of a name of others, which there may be for two classes only, where there are more.

    Parameters
    ----------
    objective : object
        As it was given; nothing but a name of others is warned of.
    ours : str
        The name that the objective has here.
    n_classes : int
    whose : str
        What the sentence begins with.
    """
    if isinstance(objective, str) and objective.lower() != ours:
        warnings.warn(
            f"{whose}objective={objective!r} is {ours!r} here, which learns each of the "
            f'{n_classes} classes against the others. Write objective="softmax" for one choice '
            f'among them, or objective="{ours}" if this is meant.',
            UserWarning,
            stacklevel=_callers_level(),
        )


def _callers_level() -> int:
    """For a warning by whoever asks: the level of the nearest caller that is in no estimator's
    machinery."""
    level = 1
    while sys._getframe(level).f_globals.get("__name__", "").partition(".")[0] in (
        "polyleaf",
        "sklearn",
    ):
        level += 1
    return level


def raise_unknown_parameters(
    where: str, names: Iterable[str], known: Iterable[str], of_constructor: Iterable[str] = ()
) -> None:
    """A TypeError for the first of the names that is not known, with what was meant.

    Parameters
    ----------
    where : str
        Who does not take them: "PolyleafRegressor", "PolyleafRegressor.fit".
    names, known : iterable of str
    of_constructor : iterable of str
        For a method: names that belong there instead.
    """
    known, of_constructor = list(known), list(of_constructor)
    of_methods = {} if of_constructor else _OF_METHODS
    for name in names:
        if name not in known:
            raise TypeError(
                f"{where}() takes no {name!r}{_hint(name, known, of_constructor, of_methods)}"
            )


def meant(name: str, known: Iterable[str]) -> str:
    """What a name that is not known may mean: words to stand behind a sentence, or nothing."""
    return _hint(name, list(known), [], {})


def suggest_on_unknown_kwargs(method: _Method) -> _Method:
    """A decorator for methods of estimators: `raise_unknown_parameters` sees keywords that they do
    not take."""
    known = [name for name in inspect.signature(method).parameters if name != "self"]

    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            where = f"{type(self).__name__}.{method.__name__}"
            raise_unknown_parameters(where, kwargs, known, self._get_param_names())
        return method(self, *args, **kwargs)

    return checked  # type: ignore[return-value]


class _WarnsOnInstances:
    """A class method that gives an estimator, and says so where it is called on one: XGBoost's
    fills it."""

    def __init__(self, method: Any) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, estimator: Any, owner: type) -> Any:
        method = self._method.__get__(None, owner)
        if estimator is None:
            return method

        @functools.wraps(method)
        def warned(*args: Any, **kwargs: Any) -> Any:
            found = method(*args, **kwargs)
            name = method.__name__
            warnings.warn(
                f"{name} gives the estimator that it has read, and leaves the one that it is "
                f"called on as it is. Write m = {owner.__name__}.{name}(path).",
                UserWarning,
                stacklevel=_callers_level(),
            )
            return found

        return warned


# Typed, so that what the method returns is known to whoever checks types.
warn_if_called_on_instance: Callable[[_Method], _Method] = cast(Any, _WarnsOnInstances)
"""A decorator of class methods, above `classmethod`."""


def _hint(
    name: str, known: list[str], of_constructor: list[str], of_methods: Mapping[str, Iterable[str]]
) -> str:
    for place, names in (("", known), (" of the constructor", of_constructor)):
        if name in names:
            return f": it is a parameter{place}"
        meant = [ours for ours in _OURS.get(name, ()) if ours in names]
        if meant:
            return f": did you mean {' or '.join(meant)}{place}?"
    for method, arguments in of_methods.items():
        meant = [ours for ours in (name, *_OURS.get(name, ())) if ours in arguments]
        if meant:
            return f": it is {meant[0]} of {method}"
    if name in _INSTEAD:
        return f": {_INSTEAD[name]}"
    close = difflib.get_close_matches(name, known, n=1) or difflib.get_close_matches(
        name, of_constructor, n=1
    )
    if close:
        return f": did you mean {close[0]}{'' if close[0] in known else ' of the constructor'}?"
    return f"; it takes {', '.join(known)}" if len(known) < 20 else ""
