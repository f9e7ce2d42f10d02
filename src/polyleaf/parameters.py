"""The parameters that both estimators have: what values they allow, and what they mean.

Owns constraints and documentation, so that neither is written twice. Must not know what the parameters do.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from sklearn.utils._param_validation import Interval, StrOptions

__all__ = ["SHARED_CONSTRAINTS", "Constraints", "document"]

Constraints = dict[str, list[Any] | str]

# What scikit-learn's parameter validation allows; incompatible combinations are refused by the parts
# themselves.
SHARED_CONSTRAINTS: Constraints = {
    "n_estimators": [Interval(Integral, 1, None, closed="left")],
    "learning_rate": [Interval(Real, 0, None, closed="neither")],
    "max_depth": [Interval(Integral, 1, None, closed="left"), None],
    "max_leaves": [Interval(Integral, 2, None, closed="left"), None],
    "grow_policy": [StrOptions({"lossguide", "depthwise"})],
    "max_bins": [Interval(Integral, 2, 255, closed="both")],
    "reg_lambda": [Interval(Real, 0, None, closed="left")],
    "reg_alpha": [Interval(Real, 0, None, closed="left")],
    "min_split_gain": [Interval(Real, 0, None, closed="left")],
    "min_child_weight": [Interval(Real, 0, None, closed="left")],
    "min_child_samples": [Interval(Integral, 0, None, closed="left")],
    "max_delta_step": [Interval(Real, 0, None, closed="left")],
    "subsample": [Interval(Real, 0, 1, closed="right")],
    "sampling_method": [StrOptions({"uniform", "goss"})],
    "top_rate": [Interval(Real, 0, 1, closed="both")],
    "other_rate": [Interval(Real, 0, 1, closed="right")],
    "colsample_bytree": [Interval(Real, 0, 1, closed="right")],
    "colsample_bynode": [Interval(Real, 0, 1, closed="right")],
    "multi_strategy": [StrOptions({"multi_output_tree", "one_output_per_tree"})],
    "curvature": [StrOptions({"auto", "none", "shared", "diagonal"})],
    "leaf_curvature": [StrOptions({"auto", "none", "shared", "diagonal"})],
    "base_score": [Real, "array-like", None],
    "missing_targets": [StrOptions({"error", "ignore"})],
    "categorical_features": [StrOptions({"from_dtype"}), "array-like", None],
    "max_cat_to_onehot": [Interval(Integral, 1, None, closed="left")],
    "cat_smooth": [Interval(Real, 0, None, closed="left")],
    "eval_metric": [str, callable, list, tuple, None],
    "early_stopping_rounds": [Interval(Integral, 1, None, closed="left"), None],
    "validation_fraction": [Interval(Real, 0, 1, closed="neither"), None],
    "callbacks": "no_validation",
    "warm_start": ["boolean"],
    "random_state": ["random_state"],
    "n_jobs": [Integral, None],
    "verbose": ["verbose", None],
    "histogram_memory": [Interval(Integral, 1, None, closed="left"), None],
}

_TREES = """
n_estimators : int, default=100
    Rounds of boosting. Each adds one tree (or one per output, see `multi_strategy`). With `warm_start` the
    total, with `init_model` the rounds to add.
learning_rate : float, default=0.1
    Factor of every leaf value (XGBoost: eta).
max_depth : int or None, default=None
    Longest path from the root to a leaf. None: no limit (LightGBM: -1, XGBoost: 0).
max_leaves : int or None, default=31
    Leaves per tree (LightGBM: num_leaves). None: no limit, which needs `max_depth`.
grow_policy : {"lossguide", "depthwise"}, default="lossguide"
    Split the node of largest gain first (LightGBM; "lossguide" in XGBoost), or level by level.
max_bins : int, default=255
    Bins per numeric feature, 2 to 255; missing values have a bin of their own. Unused where X is a
    :class:`polyleaf.Dataset`.
reg_lambda : float, default=1.0
    L2 regularisation of leaf values.
reg_alpha : float, default=0.0
    L1 regularisation of leaf values.
min_split_gain : float, default=0.0
    Smallest gain of a split, averaged over outputs (XGBoost: gamma).
min_child_weight : float, default=1e-3
    Smallest sum of curvature (Hessian) in a leaf, averaged over outputs.
min_child_samples : int, default=20
    Smallest number of rows in a leaf; rows of weight 0 do not count.
max_delta_step : float, default=0.0
    Largest absolute leaf value before the learning rate. 0: no limit.
subsample : float, default=1.0
    Fraction of the rows that each tree sees, drawn without replacement.
sampling_method : {"uniform", "goss"}, default="uniform"
    "goss": gradient-based one-side sampling as in LightGBM, with `top_rate` and `other_rate`; not together
    with `subsample`.
top_rate, other_rate : float, default=0.2 and 0.1
    GOSS: fraction of the rows that is kept for its large gradients, and fraction that is drawn from the rest.
colsample_bytree : float, default=1.0
    Fraction of the features that each tree sees.
colsample_bynode : float, default=1.0
    Fraction of these that each node sees.
multi_strategy : {"multi_output_tree", "one_output_per_tree"}, default="multi_output_tree"
    One tree for all outputs with a vector in each leaf, or one tree per output and round (the default of
    XGBoost, and what LightGBM does).
curvature : {"auto", "none", "shared", "diagonal"}, default="auto"
    Second-order statistics that trees are grown on: none (first order), one number per row, or one per row
    and output. "auto": what the objective has.
leaf_curvature : {"auto", "none", "shared", "diagonal"}, default="auto"
    Second-order statistics that leaf values are computed from.
""".strip("\n")

_TRAINING = """
base_score : float, array-like of shape (n_outputs,) or None, default=None
    Raw score that boosting starts from: in the unit of y where there is no link function, otherwise before
    the link (log-odds, log of the mean). None: the best constant for the training data.
missing_targets : {"error", "ignore"}, default="error"
    "ignore": NaN in y is a value that is not known; the row still teaches the other outputs. Not for
    multi-class.
categorical_features : "from_dtype", None or array-like, default="from_dtype"
    Which features are categories without order: the categorical columns of a pandas, polars or Arrow table;
    none; or a list of names, of indices, or a boolean mask. Unused where X is a :class:`polyleaf.Dataset`.
max_cat_to_onehot : int, default=4
    Up to this many categories in a node, splits are one category against the rest; above, sets of categories.
cat_smooth : float, default=10.0
    Smoothing of the statistics that categories are ordered by.
eval_metric : str, callable, list of these or None, default=None
    What to measure on evaluation sets. A callable takes `(y_true, y_pred)` and returns a number, of which
    smaller is better for early stopping unless told otherwise. None: the metric that goes with the
    objective.
early_stopping_rounds : int or None, default=None
    Stop when the last metric of the last evaluation set has not improved for so many rounds. Prediction
    then uses the rounds up to the best one. Needs an evaluation set or `validation_fraction`. For more
    control use :class:`polyleaf.callbacks.EarlyStopping`.
validation_fraction : float or None, default=None
    Set aside this fraction of the training rows (stratified by class where possible) as an evaluation set.
    None: train on all.
callbacks : list of callbacks or None, default=None
    See :mod:`polyleaf.callbacks`. Those passed to `fit` come on top.
warm_start : bool, default=False
    Go on from the model of the last `fit`; `n_estimators` is then the total.
random_state : int, RandomState instance or None, default=None
    Seed of all sampling. With an int, the same call gives the same model, bit for bit, on any number of
    threads.
n_jobs : int or None, default=None
    Threads. None: all cores (or OMP_NUM_THREADS, where set); -1: all cores.
verbose : int or None, default=None
    0: silent. 1: a progress bar (where there is no terminal: about ten lines). n > 1: the metric values
    every n rounds. None: silent in scripts; in an interactive session a progress bar appears after two
    seconds.
histogram_memory : int or None, default=None
    Most bytes that histograms may take; None: a bound chosen from the size of the problem.
""".strip("\n")

_ATTRIBUTES = """
model_ : polyleaf.Model
    The forest with its bins.
n_features_in_ : int
feature_names_in_ : ndarray of str
    Only where X had names.
n_outputs_ : int
    Outputs of the model: columns of y, labels, quantiles; 1 for one-dimensional targets and classes.
n_iter_ : int
    Rounds in the model.
best_iteration_ : int or None
    Round of the best score, from 0; None without early stopping.
best_score_ : float or None
evals_result_ : dict
    `{evaluation set: {metric: [value of each round]}}`.
evals_result_per_output_ : dict
    `{evaluation set: {metric: ndarray of shape (rounds, n_outputs)}}`, where there are several outputs and
    the metric means something for one of them alone.
feature_importances_ : ndarray of shape (n_features_in_,)
    Share of each feature in the total gain.
""".strip("\n")


def document(cls: type) -> type:
    """Fill in the parts of the docstring that both estimators share."""
    assert cls.__doc__ is not None
    for mark, text in (
        ("{trees}", _TREES),
        ("{training}", _TRAINING),
        ("{attributes}", _ATTRIBUTES),
    ):
        cls.__doc__ = cls.__doc__.replace(mark, text.replace("\n", "\n    "))
    return cls
