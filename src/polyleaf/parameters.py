"""The parameters that both estimators have: what values they allow, and what they mean.

Owns constraints and documentation, so that neither is written twice. Must not know what the parameters do.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from polyleaf.projections import PROJECTIONS, Projector
from polyleaf.sketches import SKETCHES

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
    "curvature": [StrOptions({"auto", "none", "shared", "diagonal", "full", "block"})],
    "leaf_curvature": [StrOptions({"auto", "none", "shared", "diagonal", "full", "block"})],
    "block_size": [Interval(Integral, 1, None, closed="left")],
    "refresh": [StrOptions({"round", "tree", "layer"})],
    "rows_per_layer": ["array-like", None],
    "pruning": [StrOptions({"pre", "post"})],
    "sketch": [StrOptions({"auto", *SKETCHES}), HasMethods("sketch"), callable, None],
    "sketch_dim": [Interval(Integral, 1, 4096, closed="both"), None],
    "leaf": [StrOptions({"constant", "linear", "sparse"})],
    "linear_fit": [StrOptions({"half_additive", "full", "post"})],
    "linear_features": [Interval(Integral, 0, None, closed="left")],
    "linear_lambda": [Interval(Real, 0, None, closed="both"), None],
    "linear_extrapolation": [StrOptions({"clip", "free"})],
    "leaf_k": [Interval(Integral, 1, None, closed="left")],
    "leaf_support": [StrOptions({"own", "shared"})],
    "split_search": [StrOptions({"auto", "histogram", "exact", "sketch"})],
    "threshold_step": [Interval(Real, 0, 1, closed="left")],
    "projection": [StrOptions(set(PROJECTIONS)), Projector, None],
    "projection_dim": [Interval(Integral, 1, None, closed="left"), None],
    "tfidf": ["boolean"],
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
n_estimators : int, default=300
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
min_child_samples : int, default=1
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
colsample_bynode : float, default=0.5
    Fraction of these that each node sees, rounded up.
multi_strategy : {"multi_output_tree", "one_output_per_tree"}, default="multi_output_tree"
    One tree for all outputs with a vector in each leaf, or one tree per output and round (the default of
    XGBoost, and what LightGBM does).
curvature : {"auto", "none", "shared", "diagonal", "full", "block"}, default="auto"
    Second-order statistics that trees are grown on: none (first order), one number per row, one per row and
    output, all pairs of outputs (few outputs only: costs grow with their square), or the pairs of a block of
    outputs. "auto": one per row and output, up to 64 outputs.
leaf_curvature : {"auto", "none", "shared", "diagonal", "full", "block"}, default="auto"
    Second-order statistics that leaf values are computed from. "auto": what the objective has; as
    `curvature` where that is "full" or "block".
block_size : int, default=2
    Outputs of a "block": those of largest gradient in a node; the others keep their scores.
refresh : {"round", "tree", "layer"}, default="round"
    When derivatives are computed anew: once a round; after every tree (with one tree per output, each then
    sees what those before it did); or after every layer, which makes each layer a step of boosting: fewer
    trees are needed (with `grow_policy="depthwise"`).
rows_per_layer : list of float or int, or None, default=None
    With `refresh="layer"`: rows for each layer, as fractions or numbers of rows; the last entry holds for all
    deeper layers. `[0.25, 0.5, 1.0]` grows the upper layers on fewer rows.
pruning : {"pre", "post"}, default="pre"
    "post": split whatever the gain, then cut back the subtrees whose gains, each less `min_split_gain`, do
    not add up to more than 0.
sketch : None, "auto", str, callable or object with a method `sketch`, default=None
    Grow each tree on a few columns that stand for all outputs (SketchBoost), which makes a thousand outputs
    cost little more than sixteen; leaf values are always fitted on all of them. "random_projection",
    "random_sampling", "top_outputs", "truncated_svd", "count_sketch", or what :mod:`polyleaf.sketches`
    describes; "auto": no sketch for few outputs, else the best measured. Splits then have one curvature a
    row, and `reg_alpha` and `max_delta_step` act on leaf values only.
sketch_dim : int or None, default=None
    Columns of the sketch; None: 14, and 32 for `split_search="sketch"`.
leaf : {"constant", "linear", "sparse"}, default="constant"
    What a leaf holds: a value for each output; a linear function of a few features (GBDT-PL), which needs
    fewer trees where targets are smooth in the features; or a value for the `leaf_k` outputs that gain most,
    while the others keep their scores, which makes trees small and fast where outputs are very many. Linear
    leaves read the features themselves, so a :class:`polyleaf.Dataset` must keep them (`keep_features=True`).
linear_fit : {"half_additive", "full", "post"}, default="half_additive"
    How splits are judged with linear leaves: by what lines in the feature split on, and the parent's own
    function, will achieve in the children; by refitting all features of the leaf at every candidate (slower);
    or as if leaves were constant, lines being fitted at the end.
linear_features : int, default=5
    Features that one leaf may be linear in: the first that the path to it splits on. 0: constant leaves.
linear_lambda : float or None, default=None
    L2 regularisation of slopes, per standard deviation of the feature. None: `reg_lambda`; infinite: constant
    leaves.
linear_extrapolation : {"clip", "free"}, default="clip"
    "clip" holds what a leaf predicts for new rows within what it predicted for the rows it was fitted on;
    "free" lets lines run on.
leaf_k : int, default=20
    Outputs of a sparse leaf, at most as many as there are.
leaf_support : {"own", "shared"}, default="own"
    Each sparse leaf chooses its outputs, or the two children of a node share theirs.
split_search : {"auto", "histogram", "exact", "sketch"}, default="auto"
    How splits are found. "histogram": from histograms of all outputs (or of `sketch`). With `leaf="sparse"`
    and an objective that leaves zeros alone ("squared_hinge", "squared_error") targets, scores and gradients
    can stay sparse whatever the number of outputs: "sketch" lets a small sketch of the gradients propose
    splits and judges them by exact sums; "exact" tries every feature (GBDT-SPARSE as published), which is
    slower. "auto": "sketch" where y is a SciPy sparse matrix and leaves are sparse, else "histogram".
threshold_step : float, default=0.05
    With `split_search="exact"`: a threshold at every such share of a node's rows; 0: wherever there is one.
projection : {"gaussian", "pca", "leml", "columns"}, Projector or None, default=None
    Turn wide and sparse X into few dense features first; part of the fitted model, applied by every
    prediction. See
    :mod:`polyleaf.projections`. "leml" learns from y.
projection_dim : int or None, default=None
    Features that come out of it; None: 100.
tfidf : bool, default=False
    Before the projection, weight columns by inverse frequency and give rows length 1: for counts of words.
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
random_state : int, RandomState instance or None, default=0
    Seed of all sampling. With an int, the same call gives the same model, bit for bit, on any number of
    threads. None: another seed each time.
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
projection_ : polyleaf.projections.Projection or None
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
