"""The parameters of the estimators: the one place where a default, an allowed value or its meaning stands.

Owns the declarations. Must not know what becomes of them: constructors, checks and documentation follow from
`declaration.py`, what a run is handed from `settings.py`.

Each class is a topic of the documentation. The order of the bases, last to first, is that of the constructor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from polyleaf.data.binning import MAX_BINS
from polyleaf.inputs.features import FROM_DTYPE
from polyleaf.objectives import Huber, Objective, Quantile, Softmax, StudentTLikelihood, Tweedie
from polyleaf.objectives.softmax import CURVATURES as SOFTMAX_CURVATURES
from polyleaf.settings.param_spec import declares, parameter
from polyleaf.sketching.projections import Kind as ProjectionKind
from polyleaf.sketching.projections import Projector
from polyleaf.sketching.sketches import SKETCHES, Sketch

__all__ = [
    "BoostingParameters",
    "ClassifierParameters",
    "ClassifierSearchParameters",
    "HessianParameters",
    "DataParameters",
    "EvaluationParameters",
    "LeafParameters",
    "LinearLeafParameters",
    "MultiTaskParameters",
    "OutputParameters",
    "PenaltyParameters",
    "ProjectionParameters",
    "RegressorParameters",
    "RegressorSearchParameters",
    "RunningParameters",
    "SamplingParameters",
    "SearchParameters",
    "SharedParameters",
    "SoftmaxParameters",
    "TopkLeafParameters",
    "TreeParameters",
]

FewTogether = Literal["pairwise", "no_interactions"]

_MOST = 2**31 - 1  # that a whole number of the core can be
_MOST_BYTES = 2**63 - 1

# What None stands for where that depends on the objective. Of counts (docs/objectives.md): the logarithm of a
# mean overfits faster, and their interactions want every feature at a node.
DEFAULT_N_ESTIMATORS = 300
DEFAULTS = {"learning_rate": 0.1, "colsample_bynode": 0.5}
COUNT_DEFAULTS = {"learning_rate": 0.05, "colsample_bynode": 1.0}
# Where a spread is learned (docs/distributions.md): one that is too small costs far more than one too large.
DISTRIBUTION_DEFAULTS = {"learning_rate": 0.05, "colsample_bynode": 0.5}

HessianKind = Literal["auto", "none", "shared", "diagonal", "full", "block"]


@declares
class BoostingParameters:
    """Boosting."""

    n_estimators: int | None = parameter(default=None, within="[1, inf)", common=True)
    """Rounds of boosting. Each adds one tree (or one per output, see `multi_strategy`). With `warm_start` the
    total, with `init_model` the rounds to add. None: 300; but with 50 to 10,000 rows as many as a fifth of
    them, held out, asks for, at most 60 / `learning_rate`, and then all rows are trained on. That is not done
    where rounds are watched (evaluation sets, `validation_fraction`, callbacks) or gone on with, nor with
    `projection`, sparse `y` or `device="cuda"`."""

    learning_rate: float | None = parameter(default=None, within="(0, inf)", common=True)
    """Factor of every leaf value (XGBoost: eta). None: 0.1; 0.05 for counts ("poisson") and where
    distributions are learned ("normal"), unless beside other tasks."""

    boosting_step: Literal["round", "tree", "layer"] = parameter(default="round")
    """When derivatives are computed anew: once a round; after every tree (with one tree per output, each then
    sees what those before it did: TFBT's tree-per-class); or after every layer, which makes each layer a step
    of boosting: fewer trees are needed (with `grow_policy="depthwise"`)."""


@declares
class TreeParameters:
    """Growth of a tree."""

    max_depth: int | None = parameter(default=None, within=f"[1, {_MOST}]", common=True)
    """Longest path from the root to a leaf. None: no limit (LightGBM: -1, XGBoost: 0)."""

    max_leaves: int | None = parameter(default=31, within=f"[2, {_MOST}]", common=True)
    """Leaves per tree (LightGBM: num_leaves). None: no limit, which needs `max_depth`."""

    min_child_samples: int = parameter(default=1, within=f"[0, {_MOST}]", common=True)
    """Smallest number of rows in a leaf; rows of weight 0 do not count."""

    min_child_weight: float = parameter(default=1e-3, within="[0, inf)")
    """Smallest sum of curvature (Hessian) in a leaf, averaged over outputs."""

    min_split_gain: float = parameter(default=0.0, within="[0, inf)")
    """Smallest gain of a split, averaged over outputs (XGBoost: gamma)."""

    grow_policy: Literal["lossguide", "depthwise"] = parameter(default="lossguide")
    """Split the node of largest gain first (LightGBM; "lossguide" in XGBoost), or level by level."""

    pruning: Literal["pre", "post"] = parameter(default="pre")
    """Split only where that gains; or ("post") whatever the gain, and cut back the subtrees whose gains, each
    less `min_split_gain`, do not add up to more than 0 (TFBT, section III)."""

    colsample_bynode: float | None = parameter(default=None, within="(0, 1]")
    """Fraction of the tree's features (see `colsample_bytree`) that each node sees, rounded up. None: 0.5;
    all for counts ("poisson")."""

    interaction_constraints: FewTogether | Sequence[Sequence[Any]] | None = parameter(default=None)
    """Which features may meet on a path from the root to a leaf, and so interact. A list of groups of names
    or numbers: a path stays within one of them, and features that no group has are a group together (as in
    scikit-learn); "pairwise": at most two features a path; "no_interactions": one, which makes the model a
    sum of functions of one feature. None: any."""

    monotone_constraints: Mapping[Any, Any] | Sequence[Any] | np.ndarray | None = parameter(
        default=None
    )
    """Which raw scores must not fall (1) or not rise (-1) as a feature rises: one direction a feature; an
    array of one row a feature and one column an output; or a dict of features by name or number, each with
    a direction or with a dict of outputs. Features and outputs without one, or with 0, are free, and so are
    steps to or from a missing value. No model disobeys, at any pair of rows. None: all are free."""

    feature_penalties: Mapping[Any, Any] | Sequence[Any] | np.ndarray | None = parameter(
        default=None
    )
    """Features that are dear, or trusted less: the share of its gain, from 0 to below 1, that is taken off
    where the best split on a feature competes with those on others. One number a feature, or a dict of
    features by name or number. What a split that is taken gains is not changed by it. None: 0 for all."""

    max_cat_to_onehot: int = parameter(default=4, within=f"[1, {_MOST}]")
    """Up to this many categories in a node, splits are one category against the rest; above, sets of
    categories."""

    cat_smooth: float = parameter(default=10.0, within="[0, inf)")
    """Smoothing of the statistics that categories are ordered by."""

    histogram_memory: int | None = parameter(default=None, within=f"[1, {_MOST_BYTES}]")
    """Most bytes that histograms kept for subtraction may take; None: 1 GiB. Less means more work, never
    another model."""


@declares
class PenaltyParameters:
    """Penalties on leaf values, in gains as in leaves."""

    reg_lambda: float = parameter(default=1.0, within="[0, inf)", common=True)
    """L2 regularisation of leaf values."""

    reg_alpha: float = parameter(default=0.0, within="[0, inf)")
    """L1 regularisation of leaf values."""

    max_delta_step: float = parameter(default=0.0, within="[0, inf)")
    """Largest absolute leaf value before the learning rate. 0: no limit."""


@declares
class HessianParameters:
    """Curvature."""

    hessian: HessianKind = parameter(default="auto")
    """Second-order statistics that trees are grown on: none (first order), one number per row, one per row
    and output, all pairs of outputs, or the pairs of a block of outputs. "auto": one per row and output, up
    to 64 outputs. "full" is for few outputs: sums and memory grow with their square, solving for each
    candidate with their cube. Above 30 take "diagonal", and "full" for `leaf_hessian` alone; "block" saves
    the cube only (docs/curvature.md)."""

    leaf_hessian: HessianKind = parameter(default="auto")
    """Second-order statistics that leaf values are computed from. "auto": what the objective has; as
    `hessian` where that is "full" or "block"."""

    block_size: int = parameter(default=2, within=f"[1, {_MOST}]")
    """Outputs of a "block": those of largest gradient in a node; the others keep their scores."""


@declares
class SoftmaxParameters:
    """Curvature of classes."""

    softmax_hessian: str = parameter(default=Softmax.softmax_hessian, choices=SOFTMAX_CURVATURES)
    """Curvature of the softmax objective of classifiers: see :mod:`polyleaf.objectives.softmax`. Regressors
    take it as well, and do nothing with it, so that a recipe is one for both."""


@declares
class OutputParameters:
    """Many outputs."""

    multi_strategy: Literal["multi_output_tree", "one_output_per_tree"] = parameter(
        default="multi_output_tree"
    )
    """One tree for all outputs with a vector in each leaf (GBDT-MO), or one tree per output and round (the
    default of XGBoost, and what LightGBM does)."""

    sketch: str | Callable[..., Any] | Sketch | None = parameter(
        default=None, choices=("auto", *SKETCHES)
    )
    """Grow each tree on a few columns that stand for all outputs (SketchBoost), which makes a thousand
    outputs cost little more than sixteen; leaf values are always fitted on all of them. What there is:
    :mod:`polyleaf.sketching.sketches`; "auto": no sketch for few outputs, else the best measured. Splits then have one
    curvature a row, and `reg_alpha` and `max_delta_step` act on leaf values only."""

    sketch_dim: int | None = parameter(default=None, within="[1, 4096]")
    """Columns of the sketch; None: 14, and 32 for `split_search="count_sketch"`."""


@declares
class SamplingParameters:
    """Rows and features that a tree sees."""

    subsample: float = parameter(default=1.0, within="(0, 1]", common=True)
    """Fraction of the rows that each tree sees, drawn without replacement."""

    colsample_bytree: float = parameter(default=1.0, within="(0, 1]", common=True)
    """Fraction of the features that each tree sees."""

    sampling_method: Literal["uniform", "goss"] = parameter(default="uniform")
    """How rows are drawn. "goss": gradient-based one-side sampling as in LightGBM, with `top_rate` and
    `other_rate`; not together with `subsample`."""

    top_rate: float = parameter(default=0.2, within="[0, 1]")
    """GOSS: fraction of the rows that is kept for its large gradients."""

    other_rate: float = parameter(default=0.1, within="(0, 1]")
    """GOSS: fraction of the rows that is drawn from the rest."""

    rows_per_layer: Sequence[float] | np.ndarray | None = parameter(default=None)
    """With `boosting_step="layer"`: rows for each layer, as fractions or numbers of rows; the last entry holds for
    all deeper layers. `[0.25, 0.5, 1.0]` grows the upper layers on fewer rows."""


@declares
class LeafParameters:
    """What a leaf holds."""

    leaf: Literal["constant", "linear", "sparse"] = parameter(default="constant")
    """What a leaf holds. A value for each output; a linear function of a few features (GBDT-PL), which needs
    fewer trees where targets are smooth in the features; or a value for the `leaf_k` outputs that gain most,
    while the others keep their scores, which makes trees small and fast where outputs are very many. Linear
    leaves read the features themselves, so a :class:`polyleaf.Dataset` must keep them
    (`keep_features=True`)."""


@declares
class LinearLeafParameters:
    """Linear leaves."""

    linear_fit: Literal["half_additive", "full", "post"] = parameter(default="half_additive")
    """How splits are judged with linear leaves. By what lines in the feature split on, and the parent's own
    function, will achieve in the children (GBDT-PL, section 4.3); by refitting all features of the leaf at
    every candidate (slower; its eq. 6); or as if leaves were constant, lines being fitted at the end."""

    linear_features: int = parameter(default=5, within=f"[0, {_MOST}]")
    """Features that one leaf may be linear in: the first that the path to it splits on. 0: constant
    leaves."""

    linear_lambda: float | None = parameter(default=None, within="[0, inf]")
    """L2 regularisation of slopes, per standard deviation of the feature. None: `reg_lambda`; infinite:
    constant leaves."""

    linear_extrapolation: Literal["clip", "none"] = parameter(default="clip")
    """What new rows get beyond the bounds of a leaf. "clip" holds what a leaf predicts for new rows within
    what it predicted for the rows it was fitted on; "none" lets lines run on."""


@declares
class TopkLeafParameters:
    """Sparse leaves."""

    leaf_k: int = parameter(default=20, within="[1, inf)")
    """Outputs of a sparse leaf, at most as many as there are."""

    leaf_output_set: Literal["own", "shared"] = parameter(default="own")
    """Each sparse leaf chooses its outputs, or the two children of a node share theirs."""

    split_search: Literal["auto", "histogram", "exact", "count_sketch"] = parameter(default="auto")
    """How splits are found. "histogram": from histograms of all outputs (or of `sketch`). With
    `leaf="sparse"` and an objective that leaves zeros alone ("squared_hinge", "squared_error") targets,
    scores and gradients can stay sparse whatever the number of outputs: "count_sketch" lets a small sketch of the
    gradients propose splits and judges them by exact sums; "exact" tries every feature (GBDT-SPARSE as
    published), which is slower. "auto": "count_sketch" where y is a SciPy sparse matrix and leaves are sparse, else
    "histogram"."""

    threshold_step: float = parameter(default=0.05, within="[0, 1)")
    """With `split_search="exact"`: a threshold at every such share of a node's rows; 0: wherever there is
    one."""


@declares
class DataParameters:
    """Features and targets."""

    max_bins: int = parameter(default=MAX_BINS, within=f"[2, {MAX_BINS}]")
    """Bins per numeric feature; missing values have a bin of their own. Unused where X is a
    :class:`polyleaf.Dataset`."""

    categorical_features: Literal["from_dtype"] | Sequence[Any] | np.ndarray | None = parameter(
        default=FROM_DTYPE
    )
    """Which features are categories without order: the categorical columns of a pandas, polars or Arrow
    table; none; or a list of names, of indices, or a boolean mask. Unused where X is a
    :class:`polyleaf.Dataset`."""

    missing_targets: Literal["error", "ignore"] = parameter(default="error")
    """What NaN in y means. "ignore": a value that is not known; the row still teaches the other outputs. Not
    for multi-class."""

    base_score: float | Sequence[float] | np.ndarray | None = parameter(default=None)
    """Raw score, or one for each output, that boosting starts from. In the unit of y where there is no link
    function, otherwise before the link (log-odds, log of the mean). None: the best constant for the training
    data."""


@declares
class ProjectionParameters:
    """Projection of wide features."""

    projection: ProjectionKind | Projector | None = parameter(default=None)
    """Turn wide and sparse X into few dense features first. Part of the fitted model, applied by every
    prediction; see :mod:`polyleaf.sketching.projections`. "leml" learns from y. It needs numbers, of which
    none is missing."""

    projection_dim: int | None = parameter(default=None, within="[1, inf)")
    """Features that come out of it; None: 100."""

    tfidf: bool = parameter(default=Projector.tfidf)
    """Before the projection, weight columns by inverse frequency and give rows length 1: for counts of
    words."""


@declares
class EvaluationParameters:
    """Evaluation."""

    eval_metric: str | Callable[..., Any] | list[Any] | tuple[Any, ...] | None = parameter(
        default=None, common=True
    )
    """What to measure on evaluation sets, or a list of it. A callable takes `(y_true, y_pred)` and returns a
    number, of which smaller is better for early stopping unless told otherwise. None: the metric that goes
    with the objective; of several targets also, and last, its mean in units of each target's spread
    ("relative_rmse")."""

    early_stopping_rounds: int | None = parameter(default=None, within="[1, inf)", common=True)
    """Stop when the last metric of the last evaluation set has not improved for so many rounds. Prediction
    then uses the rounds up to the best one. Needs an evaluation set or `validation_fraction`. For more
    control use :class:`polyleaf.callbacks.EarlyStopping`."""

    validation_fraction: float | None = parameter(default=None, within="(0, 1)", common=True)
    """Set aside this fraction of the training rows (stratified by class where possible) as an evaluation set,
    called "validation" and the last of all. Not together with `X_val` of `fit`. None: train on all."""

    callbacks: Any = parameter(default=None)
    """List of callbacks: see :mod:`polyleaf.callbacks`. Those passed to `fit` come on top."""


@declares
class RunningParameters:
    """Running."""

    random_state: int | np.random.RandomState | None = parameter(
        default=0, within=f"[0, {2**32 - 1}]", common=True
    )
    """Seed of all sampling. With an int, the same call gives the same model, bit for bit, on any number of
    threads. None: another seed each time."""

    n_jobs: int | None = parameter(default=None, common=True)
    """Threads. None: all cores (or OMP_NUM_THREADS, where set); -1: all cores."""

    device: Literal["cpu", "cuda", "auto"] = parameter(default="cpu")
    """Where trees are trained: on the processor, or on a CUDA card, which makes the same model, bit for bit
    (docs/gpu.md: what it takes, and which parameters it does not take yet). "auto": the processor, until
    cards have been measured. Predictions are made on the processor, unless
    `predictor(device="cuda")` is asked for."""

    verbose: int | bool | None = parameter(default=None, within="[0, inf)", common=True)
    """0: silent. 1: a progress bar (where there is no terminal: about ten lines). n > 1: the metric values
    every n rounds. None: silent in scripts; in an interactive session a progress bar appears after two
    seconds."""

    on_interrupt: Literal["raise", "keep"] = parameter(default="raise")
    """What Ctrl-C does. The rounds that were complete are kept by the estimator, which can predict with them
    or go on (`warm_start`). "raise": then `KeyboardInterrupt` goes on, so that a cross-validation or a search
    stops as well; "keep": `fit` returns, with a warning, which suits notebooks."""

    warm_start: bool = parameter(default=False)
    """Go on from the model of the last `fit`; `n_estimators` is then the total."""


@declares
class SharedParameters(
    RunningParameters,
    EvaluationParameters,
    ProjectionParameters,
    DataParameters,
    TopkLeafParameters,
    LinearLeafParameters,
    LeafParameters,
    OutputParameters,
    SoftmaxParameters,
    HessianParameters,
    SamplingParameters,
    PenaltyParameters,
    TreeParameters,
    BoostingParameters,
):
    """What both estimators have."""


@declares
class RegressorParameters(SharedParameters):
    """Regression."""

    objective: str | Callable[..., Any] | Objective = parameter(
        default="squared_error", kw_only=False, common=True
    )
    """Loss to minimise. "squared_error", "absolute_error", "quantile", "huber", "poisson", "gamma",
    "tweedie", "logistic" (y in [0, 1]); "normal", "lognormal", "student_t", "gamma_distribution" and
    "negative_binomial", which learn a distribution (docs/distributions.md); a name that XGBoost or LightGBM
    has for these, or a loss written with JAX, or a function that returns `(gradient, curvature)`: see
    :class:`polyleaf.objectives.Custom`."""

    quantile_alpha: float | Sequence[float] | np.ndarray = parameter(
        default=Quantile.alpha, within="(0, 1)"
    )
    """Levels for objective "quantile". Several make several outputs: for y with T columns and A levels,
    predictions are `(n_rows, T * A)`, the levels of the first column first."""

    calibrate_quantiles: bool = parameter(default=True)
    """Of objective "quantile": move each level but the median to where rows that were not trained on have it,
    so that intervals cover what they promise. Costs one training more on many rows, 4 at 6,000 and 20 below
    2,000; see docs/intervals.md."""

    huber_delta: float = parameter(default=Huber.delta, within="(0, inf)")
    """Where the Huber loss becomes linear; in the unit of y, or of the normalised y."""

    tweedie_variance_power: float = parameter(default=Tweedie.variance_power, within="(1, 2)")
    """Between 1 (Poisson) and 2 (gamma)."""

    student_t_df: float = parameter(default=StudentTLikelihood.df, within="(1, 1000000)")
    """Degrees of freedom of objective "student_t": few have heavy tails."""

    normalize_targets: Literal["auto"] | bool = parameter(default="auto")
    """Train on outputs of mean 0 and standard deviation 1, so that outputs on large scales do not decide the
    splits alone. "auto": where one tree learns outputs of unlike scale by squared error, those that vary by
    less than a tenth of the one that varies most are brought up to that tenth. Predictions and metrics are in
    the unit of y; `reg_alpha`, `max_delta_step` and `min_split_gain` are in that of the outputs that are
    trained on."""


@declares
class ClassifierParameters(SharedParameters):
    """Classification."""

    objective: str | Callable[..., Any] | Objective = parameter(
        default="auto", kw_only=False, common=True
    )
    """Loss to minimise. "auto": "logistic" for two classes and for labels, "softmax" for more classes.
    "exponential" and "exponential_margin" are for classes, too; named for two classes, these three have a
    score for each. "logistic" and "squared_hinge" (which gives no probabilities) take more classes one
    against the rest. Or a name that XGBoost or LightGBM has for these (those of
    "logistic" warn where there are more than two classes), or a loss written with JAX, or a function that
    returns `(gradient, curvature)`: see
    :class:`polyleaf.objectives.Custom`. Targets are then class numbers, or 0 and 1."""

    class_weight: dict[Any, Any] | list[Any] | Literal["balanced"] | None = parameter(default=None)
    """`{label: weight}`; "balanced": inverse to the frequency. Multi-label: `{0: weight, 1: weight}` for all
    labels, a list of these, or `{label: {0: weight, 1: weight}}` by name or number; "balanced" is done for
    each label."""

    scale_pos_weight: float | Sequence[float] | np.ndarray | Literal["balanced", "sqrt"] | None = (
        parameter(default=None, within="(0, inf)")
    )
    """Weight of the positive class, or of the positives of each label. "balanced": as many times as there are
    negatives for each positive; "sqrt": the root of that. Objective "logistic" only."""

    threshold: float | Literal["f1", "f1_macro"] | dict[Any, float] = parameter(
        default=0.5, within="(0, 1)"
    )
    """Probability above which `predict` says yes, for two classes and for labels. "f1": one for all labels,
    where F1 over all cells is largest; "f1_macro": where the mean of the labels' F1 is. These are chosen on
    the last evaluation set, where there is one, otherwise on the training rows, by three models that are each
    trained without a third of them. Or `{label: probability}`, one half for the others. `predict_proba` does
    not change."""


@declares
class MultiTaskParameters(SharedParameters):
    """Several tasks."""

    objective: Mapping[Any, Any] | None = parameter(default=None, kw_only=False, common=True)
    """Loss of each task, by the name of its column of Y, or a tuple of names that are learned together: as
    the objectives of :class:`polyleaf.PolyleafRegressor` and :class:`polyleaf.PolyleafClassifier`, by name
    or, with parameters, as objects of :mod:`polyleaf.objectives` (`Quantile((.1, .5, .9))`). Columns of Y
    that are not named are not learned. None: all columns, text, categories and booleans as classes, 0 and 1
    as two classes, other numbers by squared error."""

    task_weight: Mapping[Any, float] | None = parameter(default=None, common=True)
    """How much the gains of a task count when splits are chosen, by its name; 1 for those left out. Leaf
    values are each task's own whatever its weight."""

    calibrate_quantiles: bool = parameter(default=RegressorParameters.calibrate_quantiles)
    """As for regression, of the tasks that learn quantiles."""

    eval_metric: str | Mapping[Any, Any] | list[Any] | tuple[Any, ...] | None = parameter(  # type: ignore[assignment]
        default=None, common=True
    )
    """What to measure on evaluation sets: a dict from tasks to metrics, each as for one target; or "d2",
    the mean over tasks of the share of the best constant's error that predictions are without. None: the
    metric that goes with each task, and last "d2", which early stopping then watches."""


@declares
class SearchParameters:
    """Search for parameters."""

    time_limit: float | None = parameter(default=None, within="(0, inf)", common=True)
    """Seconds for all of `fit`, the last training on all rows included. What is found then depends on the
    machine: for the same model everywhere set `n_candidates` instead."""

    n_candidates: int | None = parameter(default=None, within="[1, inf)", common=True)
    """Sets of parameters to try, at most: first the portfolio, then variations of its winners. The default
    settings are always the first. None: the portfolio alone, or as many as `time_limit` leaves time for."""

    cv: Any = parameter(default=None, common=True)
    """What candidates are compared on. An int: so many folds, drawn at random, by class or by `groups`; a
    splitter of scikit-learn, or an iterable of (rows to train, rows to validate). None: three folds, and
    three others for the leaders in the end (with a `time_limit` one where it is short, or nine, drawn three
    times, where it is long), or a fifth of the rows, held out, above 20,000 rows; or the last `eval_set`,
    where one is given."""

    metric: str | Callable[..., Any] | None = parameter(default=None, common=True)
    """What is to be best: a name or function as for `eval_metric`. None: the last of `eval_metric`."""

    ensemble: int | None = parameter(default=None, within="[2, inf)", common=True)
    """Blend up to so many candidates, weighted by how they score together on the folds, into one model. It
    is as large and as slow as all of them together; `report` says how much that is. None: the best alone."""


@declares
class RegressorSearchParameters(SearchParameters, RegressorParameters):
    """Regression with a search."""


@declares
class ClassifierSearchParameters(SearchParameters, ClassifierParameters):
    """Classification with a search."""
