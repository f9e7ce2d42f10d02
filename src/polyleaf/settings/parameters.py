"""Parameters of the estimators: type, default, allowed values and documentation of each, stated
once.

Each class under `parameter_group` is a topic of the documentation. The order of the bases of
`SharedParameters`, last to first, is that of the constructor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from polyleaf.binned_data.binning import MAX_BINS
from polyleaf.objectives import (
    Huber,
    LambdaRank,
    Objective,
    Quantile,
    Softmax,
    StudentTLikelihood,
    Tweedie,
    XeNdcg,
)
from polyleaf.objectives.multiclass import SOFTMAX_HESSIANS as SOFTMAX_HESSIANS
from polyleaf.runtime.types import Estimator
from polyleaf.settings.param_spec import estimator_parameters, parameter, parameter_group
from polyleaf.sketching.projections import Kind as ProjectionKind
from polyleaf.sketching.projections import Projector
from polyleaf.sketching.sketches import SKETCHES, Sketch
from polyleaf.user_data.features import FROM_DTYPE

InteractionLimit = Literal["pairwise", "no_interactions"]
HessianKind = Literal["auto", "none", "shared", "diagonal", "full", "block"]

_MAX_INT = 2**31 - 1  # integers of the core have 32 bits
_MAX_BYTES = 2**63 - 1

# Values that None stands for where the default depends on the objective. Log-link count models
# overfit earlier and need every feature at a node. Distributions need small steps, because a scale
# that is too small costs far more than one that is too large.
DEFAULT_N_ESTIMATORS = 300
DEFAULTS = {"learning_rate": 0.1, "colsample_bynode": 0.5}
COUNT_DEFAULTS = {"learning_rate": 0.05, "colsample_bynode": 1.0}
DISTRIBUTION_DEFAULTS = {"learning_rate": 0.05, "colsample_bynode": 0.5}


@parameter_group
class BoostingParameters:
    """Boosting."""

    n_estimators: int | None = parameter(
        default=None,
        interval="[1, inf)",
        common=True,
        none="found by early stopping, at most 3,000; 300 above a million rows",
    )
    """Number of boosting rounds. Each round adds one tree, or one tree per output (see
    `multi_strategy`). With `warm_start` it is the total number, with `init_model` the number of
    rounds to add. None: found by early stopping on 20% of the rows, and the model is then fitted
    on all rows. It is at most 300 / `learning_rate`, or 25 billion / (rows * features * outputs) if
    that is less, but not below 300. With early stopping by the user the limit is 300 /
    `learning_rate`. 300 with more than a million rows, `warm_start`, `init_model`, `projection`,
    sparse `y`, `device="cuda"`, and for a custom objective without `eval_metric`."""

    learning_rate: float | None = parameter(
        default=None,
        interval="(0, inf)",
        common=True,
        none="0.1; 0.05 for counts and distributions",
    )
    """Step size shrinkage: factor of every leaf value (XGBoost: eta). None: 0.1; 0.05 for counts
    ("poisson") and for objectives that learn a distribution ("normal"), except in multi-task
    models of several tasks."""

    boosting_step: Literal["round", "tree", "layer"] = parameter(default="round")
    """When gradients are recomputed: "round", once per boosting round; "tree", after every tree, so
    that with one tree per output each tree sees the outputs before it (TFBT's tree-per-class);
    "layer", after every layer of a tree (layer-by-layer boosting), which needs fewer trees and
    `grow_policy="depthwise"`."""


@parameter_group
class QualityParameters:
    """Automatic choices."""

    quality: Literal["fast", "standard", "high"] = parameter(default="standard", common=True)
    """Time to spend on accuracy, with `n_estimators=None`. "fast" finds the number of rounds.
    "standard" also compares trees of 31 and 8 leaves and linear leaves on held-out rows; the model
    is the weighted mean of up to three of them, its members. "high" compares
    more candidates. Only parameters at their defaults change. The members are in the model's
    metadata, `"members"`."""


@parameter_group
class TreeParameters:
    """Tree growth."""

    max_depth: int | None = parameter(
        default=None, interval=f"[1, {_MAX_INT}]", common=True, none="no limit"
    )
    """Maximum depth of a tree. None: no limit (LightGBM: -1, XGBoost: 0)."""

    max_leaves: int | None = parameter(default=31, interval=f"[2, {_MAX_INT}]", common=True)
    """Maximum number of leaves of a tree (LightGBM: num_leaves). None: no limit; `max_depth` must
    then be set."""

    min_child_samples: int = parameter(default=1, interval=f"[0, {_MAX_INT}]", common=True)
    """Minimum number of rows in a leaf. Rows with weight 0 do not count."""

    min_child_weight: float = parameter(default=1e-3, interval="[0, inf)")
    """Minimum sum of the Hessian in a leaf, averaged over outputs."""

    min_split_gain: float = parameter(default=0.0, interval="[0, inf)")
    """Minimum gain of a split, averaged over outputs (XGBoost: gamma)."""

    grow_policy: Literal["lossguide", "depthwise"] = parameter(default="lossguide")
    """Order in which nodes are split: "lossguide", the node with the largest gain first (as in
    LightGBM); "depthwise", level by level."""

    pruning: Literal["pre", "post"] = parameter(default="pre")
    """"pre" splits a node only if the gain is positive. "post" grows the tree regardless of the
    gain and then removes subtrees whose gains, each less `min_split_gain`, do not sum to more than
    0 (TFBT, section III)."""

    colsample_bynode: float | None = parameter(
        default=None, interval="(0, 1]", none="0.5; 1 for counts"
    )
    """Fraction of the tree's features (see `colsample_bytree`) that are sampled at each node,
    rounded up. None: 0.5; all for counts ("poisson")."""

    interaction_constraints: InteractionLimit | Sequence[Sequence[object]] | None = parameter(
        default=None
    )
    """Features that may appear together on a path from the root to a leaf. A list of groups of
    feature names or indices: a path uses the features of one group only, and features without a
    group form one of their own (as in scikit-learn). "pairwise": at most two features per path.
    "no_interactions": one feature per path, which makes the model additive. None: no
    constraint."""

    monotone_constraints: Mapping[Any, object] | Sequence[object] | np.ndarray | None = parameter(
        default=None
    )
    """Monotonicity of raw scores in each feature: 1 (increasing), -1 (decreasing) or 0 (none). One
    number per feature, an array of shape (n_features, n_outputs), or a dict from feature names or
    indices to a number or to a dict of outputs. Constraints hold exactly between any two rows in
    which the feature is not missing. None: no constraint."""

    feature_penalties: Mapping[Any, float] | Sequence[float] | np.ndarray | None = parameter(
        default=None
    )
    """Penalty in [0, 1) on split gain where features compete, for example for features that are
    expensive to acquire: the best gain of the feature is multiplied by 1 - penalty. One number per
    feature, or a dict from feature names or indices. The gain that is recorded for a split is not
    penalised. None: 0 for all features."""

    max_cat_to_onehot: int = parameter(default=4, interval=f"[1, {_MAX_INT}]")
    """With up to this many categories in a node, one category is split from the rest; with more
    categories, they are partitioned into two sets."""

    cat_smooth: float = parameter(default=10.0, interval="[0, inf)")
    """Smoothing of the statistics by which categories are sorted."""

    histogram_memory: int | None = parameter(
        default=None, interval=f"[1, {_MAX_BYTES}]", none="1 GiB"
    )
    """Maximum memory in bytes of histograms that are kept for subtraction. None: 1 GiB. A smaller
    value makes training slower; the model is the same."""


@parameter_group
class RegularisationParameters:
    """Regularisation of leaf values."""

    reg_lambda: float = parameter(default=1.0, interval="[0, inf)", common=True)
    """L2 regularisation of leaf values."""

    reg_alpha: float = parameter(default=0.0, interval="[0, inf)")
    """L1 regularisation of leaf values."""

    max_delta_step: float = parameter(default=0.0, interval="[0, inf)")
    """Maximum absolute leaf value before the learning rate is applied. 0: no limit."""


@parameter_group
class HessianParameters:
    """Second-order derivatives."""

    hessian: HessianKind = parameter(default="auto")
    """Part of the Hessian of the loss that split gains use: "none" (first order), "shared" (one
    number per row), "diagonal" (one per row and output), "full" (all pairs of outputs) or "block"
    (the pairs of `block_size` outputs). "auto": diagonal for up to 64 outputs, else shared. "full"
    is for few outputs: memory grows with their square and the time per candidate split with their
    cube. With more than 30 outputs prefer "diagonal" and use "full" for `leaf_hessian` only;
    "block" saves the cube only."""

    leaf_hessian: HessianKind = parameter(default="auto")
    """Part of the Hessian that leaf values use, as for `hessian`. "auto": what the objective
    provides; the value of `hessian` if that is "full" or "block"."""

    block_size: int = parameter(
        default=2,
        interval=f"[1, {_MAX_INT}]",
        requires={"hessian": "block", "leaf_hessian": "block"},
    )
    """Number of outputs in a block: those with the largest gradients in a node. The other outputs
    keep their scores."""


@parameter_group
class SoftmaxParameters:
    """Hessian of the softmax objective."""

    softmax_hessian: str = parameter(default=Softmax.softmax_hessian, choices=SOFTMAX_HESSIANS)
    """Diagonal Hessian of the softmax objective of classifiers: see
    :class:`polyleaf.objectives.Softmax`. Accepted and ignored by regressors, so that one preset
    works for both estimators."""


@parameter_group
class OutputParameters:
    """Multiple outputs."""

    multi_strategy: Literal["multi_output_tree", "one_output_per_tree"] = parameter(
        default="multi_output_tree"
    )
    """"multi_output_tree": one tree for all outputs, with a vector in each leaf (GBDT-MO).
    "one_output_per_tree": one tree per output and round (the default of XGBoost and the method of
    LightGBM). `output_groups` has what lies in between."""

    output_groups: int | Sequence[object] | Literal["auto"] | None = parameter(
        default=None, interval="[1, inf)"
    )
    """Groups of outputs that share trees: a round grows one tree for each group, whose leaves hold
    the outputs of the group only. None: as `multi_strategy` says. A number: so many groups of
    neighbouring outputs, of equal size where it divides the outputs. A list of lists: the outputs
    of each group, by number or name; the name of a target with several outputs, such as its
    quantiles, stands for all of them. Groups that have every output twice alternate: in
    `[[0, 1], [0], [1]]` even rounds grow one tree, and odd rounds two. "auto": groups found by the
    gains of splits and compared on held-out rows."""

    sketch: str | Callable[..., object] | Sketch | None = parameter(
        default=None, choices=("auto", *SKETCHES)
    )
    """Sketch of the gradients that trees are grown on (SketchBoost): a few columns stand for all
    outputs, which makes a thousand outputs cost little more than sixteen. Leaf values are always
    fitted on all outputs. See :mod:`polyleaf.sketching.sketches`; "auto": no sketch for few
    outputs, else the best method in benchmarks. Splits then use one Hessian value per row, and
    `reg_alpha` and `max_delta_step` apply to leaf values only."""

    sketch_dim: int | None = parameter(
        default=None, interval="[1, 4096]", none="14; 32 for count-sketches"
    )
    """Number of columns of the sketch. None: 14, and 32 for `split_search="count_sketch"`."""


@parameter_group
class SamplingParameters:
    """Sampling of rows and features."""

    subsample: float = parameter(default=1.0, interval="(0, 1]", common=True)
    """Fraction of the rows that each tree is grown on, sampled without replacement."""

    colsample_bytree: float = parameter(default=1.0, interval="(0, 1]", common=True)
    """Fraction of the features that each tree is grown on."""

    sampling_method: Literal["uniform", "goss"] = parameter(default="uniform")
    """How rows are sampled: "uniform", or "goss" for gradient-based one-side sampling as in
    LightGBM, with `top_rate` and `other_rate` in place of `subsample`."""

    top_rate: float = parameter(
        default=0.2, interval="[0, 1]", requires={"sampling_method": "goss"}
    )
    """GOSS: fraction of the rows with the largest gradients, which are all kept."""

    other_rate: float = parameter(
        default=0.1, interval="(0, 1]", requires={"sampling_method": "goss"}
    )
    """GOSS: fraction of the rows that is sampled from the rest."""

    rows_per_layer: Sequence[float] | np.ndarray | None = parameter(default=None)
    """With `boosting_step="layer"`: rows of each layer, as fractions or numbers of rows. The last
    entry holds for all deeper layers; `[0.25, 0.5, 1.0]` grows the upper layers on fewer rows."""


@parameter_group
class LeafParameters:
    """Kind of leaf."""

    leaf: Literal["constant", "linear", "sparse"] = parameter(default="constant")
    """Model in a leaf: "constant", a value for each output; "linear", a linear function of a few
    features (GBDT-PL), which needs fewer trees if targets are smooth in the features; "sparse",
    values of the `leaf_k` outputs with the largest gains, which keeps trees small and fast with
    very many outputs. Linear leaves read raw feature values, so a :class:`polyleaf.Dataset` must
    keep them (`keep_features=True`)."""


@parameter_group
class LinearLeafParameters:
    """Linear leaves."""

    linear_fit: Literal["half_additive", "full", "post"] = parameter(
        default="half_additive", requires={"leaf": "linear"}
    )
    """How split gains account for linear leaves: "half_additive", by a linear fit in the split
    feature and the function of the parent (GBDT-PL, section 4.3); "full", by refitting all features
    of the leaf at every candidate split (eq. 6 of the paper; slower); "post", as if leaves were
    constant, with linear functions fitted to the finished tree."""

    linear_features: int = parameter(
        default=5, interval=f"[0, {_MAX_INT}]", requires={"leaf": "linear"}
    )
    """Maximum number of features of a linear leaf: the first ones on its path from the root. 0:
    constant leaves."""

    linear_lambda: float | None = parameter(
        default=None, interval="[0, inf]", requires={"leaf": "linear"}
    )
    """L2 regularisation of slopes, per standard deviation of the feature. None: `reg_lambda`;
    infinity: constant leaves."""

    linear_extrapolation: Literal["clip", "none"] = parameter(
        default="clip", requires={"leaf": "linear"}
    )
    """Predictions of a linear leaf outside the range of its training rows: "clip" limits them to
    the range of its predictions on those rows; "none" does not limit them."""


@parameter_group
class TopkLeafParameters:
    """Sparse leaves."""

    leaf_k: int = parameter(default=20, interval="[1, inf)", requires={"leaf": "sparse"})
    """Number of outputs of a sparse leaf, at most the number of outputs."""

    leaf_output_set: Literal["own", "shared"] = parameter(
        default="own", requires={"leaf": "sparse"}
    )
    """Whether each sparse leaf chooses its own outputs, or the two children of a node share
    theirs."""

    split_search: Literal["auto", "histogram", "exact", "count_sketch"] = parameter(default="auto")
    """How splits are found: "histogram", from histograms of all outputs (or of `sketch`). With
    `leaf="sparse"` and the objectives "squared_hinge" and "squared_error", targets, scores and
    gradients can stay sparse for any number of outputs: "count_sketch" proposes splits from a
    small sketch of the gradients and computes their gains exactly; "exact" scans every feature
    (GBDT-SPARSE as published) and is slower. "auto": "count_sketch" if y is a SciPy sparse matrix
    and leaves are sparse, else "histogram"."""

    threshold_step: float = parameter(
        default=0.05, interval="[0, 1)", requires={"split_search": "exact"}
    )
    """With `split_search="exact"`: candidate thresholds are this fraction of a node's rows apart.
    0: every possible threshold."""


@parameter_group
class DataParameters:
    """Features and targets."""

    max_bins: int = parameter(default=MAX_BINS, interval=f"[2, {MAX_BINS}]")
    """Maximum number of bins per numeric feature; missing values have a bin of their own. Ignored
    if X is a :class:`polyleaf.Dataset`."""

    categorical_features: Literal["from_dtype"] | Sequence[object] | np.ndarray | None = parameter(
        default=FROM_DTYPE
    )
    """Categorical features: "from_dtype", the categorical columns of a pandas, polars or Arrow
    table; a list of names or indices, or a boolean mask; or None. Ignored if X is a
    :class:`polyleaf.Dataset`."""

    missing_targets: Literal["error", "ignore"] = parameter(default="error")
    """How NaN in y is handled: "error" raises; "ignore" leaves these targets out, and the row still
    contributes to its other outputs. Not for multiclass targets."""

    base_score: float | Sequence[float] | np.ndarray | None = parameter(default=None)
    """Initial raw score, one number or one per output: in the unit of y without a link function,
    else before the link (log-odds, logarithm of the mean). None: the best constant for the training
    data."""


@parameter_group
class ProjectionParameters:
    """Projection of wide features."""

    projection: ProjectionKind | Projector | None = parameter(default=None)
    """Projection of wide and sparse X to a few dense features before training. It is part of the
    fitted model and applied in every prediction; see :mod:`polyleaf.sketching.projections`. "leml"
    is learned from y. Features must be numeric without missing values."""

    projection_dim: int | None = parameter(default=None, interval="[1, inf)")
    """Number of features after the projection. None: 100."""

    tfidf: bool = parameter(default=Projector.tfidf)
    """Whether columns are weighted by inverse document frequency and rows scaled to length 1 before
    the projection, for word counts."""


@parameter_group
class EvaluationParameters:
    """Evaluation."""

    eval_metric: str | Callable[..., object] | list[object] | tuple[object, ...] | None = parameter(
        default=None, common=True
    )
    """Metric, or list of metrics, that is computed on evaluation sets. A callable takes
    `(y_true, y_pred)` and returns a number; early stopping minimises it unless it returns
    `(name, value, greater_is_better)`. None: the metric of the objective; with several targets also
    its mean relative to the spread of each target ("relative_rmse"), as the last metric."""

    early_stopping_rounds: int | None = parameter(default=None, interval="[1, inf)", common=True)
    """Training stops if the last metric on the last evaluation set has not improved for this many
    rounds. Predictions then use the rounds up to the best one. Requires an evaluation set or
    `validation_fraction`. See :class:`polyleaf.callbacks.EarlyStopping` for more options."""

    validation_fraction: float | None = parameter(default=None, interval="(0, 1)", common=True)
    """Fraction of the training rows that is held out (stratified by class if possible) as an
    evaluation set "validation", the last of all. Cannot be combined with `X_val` of `fit`. None:
    train on all rows."""

    validation_order: Literal["random", "time"] = parameter(default="random")
    """Which rows are held out by `validation_fraction`, the automatic number of rounds, and the
    folds of calibrated quantiles, of thresholds and of a search. "random": drawn at random. "time":
    rows are in the order of time, and the last ones are held out; folds train on earlier rows than
    they evaluate on. For rows in another order pass their times to `fit` (`time=`)."""

    callbacks: object = parameter(default=None)
    """List of callbacks: see :mod:`polyleaf.callbacks`. Callbacks passed to `fit` are added."""


@parameter_group
class RuntimeParameters:
    """Runtime."""

    random_state: int | np.random.RandomState | None = parameter(
        default=0, interval=f"[0, {2**32 - 1}]", common=True
    )
    """Random seed. With an int, the same call gives the same model, bit for bit, for any number of
    threads. None: a different seed each time."""

    n_jobs: int | None = parameter(default=None, common=True, none="all cores")
    """Number of threads. None: all cores, or OMP_NUM_THREADS if set; -1: all cores."""

    device: Literal["cpu", "cuda", "auto"] = parameter(default="cpu")
    """Device that trees are trained on: the CPU, or a CUDA GPU, which gives the same model, bit for
    bit. "auto": currently the CPU. Some parameters are not available on the GPU; see the user
    guide. Predictions run on the CPU unless `predictor(device="cuda")` is used."""

    verbose: int | bool | None = parameter(default=None, interval="[0, inf)", common=True)
    """Verbosity. 0: silent. 1: a progress bar (without a terminal: about ten lines). n > 1: metric
    values every n rounds. None: silent in scripts; a progress bar after two seconds in interactive
    sessions."""

    on_interrupt: Literal["raise", "keep"] = parameter(default="raise")
    """Behaviour on Ctrl-C. Complete rounds are always kept: the estimator can predict with them or
    continue (`warm_start`). "raise": raise `KeyboardInterrupt`, which also stops a surrounding
    cross-validation or search; "keep": `fit` returns with a warning, for notebooks."""

    warm_start: bool = parameter(default=False)
    """Whether `fit` continues the model of the last call; `n_estimators` is then the total number
    of rounds."""


@estimator_parameters
class SharedParameters(
    RuntimeParameters,
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
    RegularisationParameters,
    TreeParameters,
    QualityParameters,
    BoostingParameters,
):
    """Parameters of all estimators."""


@parameter_group
class InitialModelParameters:
    """Initial model."""

    init: Literal["auto", "linear"] | Estimator | None = parameter(default=None)
    """Model whose raw scores the trees are added to (scikit-learn's gradient boosting: init).

    "linear": ridge regressions, or logistic or generalised linear regressions, of the numeric
    features, fitted to what an `offset` leaves; several tasks have one each. "auto": trees alone,
    trees on top of this linear model, the mean of both, or the linear model alone, whichever is
    best on held-out rows. An estimator, such as `Ridge()` or `OneVsRestClassifier(LinearSVC())`:
    `fit` fits a copy to all rows, and lets the training rows start from the scores of five-fold
    cross-fitting. Scores of classifiers are multiplied by the factor of the lowest loss, and by 1,
    1/2 or 1/4, whichever is best on held-out rows. Model files hold linear models, also after
    `SimpleImputer` and scalers; other estimators are kept by pickles only. With sparse y only the
    largest scores of each row are used, and "auto" means "linear"."""


@parameter_group
class TargetWeightParameters:
    """Weights of targets."""

    target_weight: Mapping[Any, float] | Sequence[float] | np.ndarray | None = parameter(
        default=None
    )
    """Weight of each target or label in training, where some count more than others: one number for
    each, or a dict from names or numbers to weights, 1 for the others. The same as a matrix
    `sample_weight` with these numbers in each row. For classes, one per row, use `class_weight`.
    None: all count equally."""


@estimator_parameters
class RegressorParameters(InitialModelParameters, TargetWeightParameters, SharedParameters):
    """Regression."""

    objective: str | Callable[..., object] | Objective = parameter(
        default="squared_error", kw_only=False, common=True
    )
    """Loss function. "squared_error", "absolute_error", "absolute_percentage_error", "quantile",
    "expectile", "huber", "log_cosh", "poisson", "gamma", "tweedie" or "logistic" (y in [0, 1]);
    "normal", "lognormal", "student_t", "gamma_distribution" or "negative_binomial", which learn a
    distribution; the name of one of these in XGBoost or LightGBM; a loss written with JAX; or a
    function that returns `(gradient, hessian)`: see :class:`polyleaf.objectives.Custom`."""

    quantile_alpha: float | Sequence[float] | np.ndarray = parameter(
        default=Quantile.alpha, interval="(0, 1)", requires={"objective": "quantile"}
    )
    """Quantile levels of the objective "quantile". Several levels give several outputs: for y with
    T columns and A levels, predictions have shape `(n_rows, T * A)`, with the levels of the first
    column first."""

    calibrate_quantiles: bool = parameter(default=True)
    """Objective "quantile": whether each level but the median is shifted by cross-fitting, so that
    it has its nominal coverage on rows outside the training data. Costs about one more training
    with many rows, 4 with 6,000 and 20 below 2,000 rows."""

    huber_delta: float = parameter(
        default=Huber.delta, interval="(0, inf)", requires={"objective": "huber"}
    )
    """Error above which the Huber loss is linear, in the unit of y or of normalised y."""

    tweedie_variance_power: float = parameter(
        default=Tweedie.variance_power, interval="(1, 2)", requires={"objective": "tweedie"}
    )
    """Variance power of the Tweedie distribution, between 1 (Poisson) and 2 (gamma)."""

    student_t_df: float = parameter(
        default=StudentTLikelihood.df, interval="(1, 1000000)", requires={"objective": "student_t"}
    )
    """Degrees of freedom of the objective "student_t". Fewer mean heavier tails."""

    normalize_targets: Literal["auto"] | bool = parameter(default="auto")
    """Whether targets are standardised for training, so that outputs on large scales do not
    dominate the splits. "auto": if one tree learns outputs on different scales by squared error,
    outputs whose standard deviation is less than a tenth of the largest are scaled up to a tenth.
    Predictions and metrics are in the unit of y; `reg_alpha`, `max_delta_step` and `min_split_gain`
    apply to the scaled targets."""


@estimator_parameters
class ClassifierParameters(InitialModelParameters, TargetWeightParameters, SharedParameters):
    """Classification."""

    objective: str | Callable[..., object] | Objective = parameter(
        default="auto", kw_only=False, common=True
    )
    """Loss function. "auto": "logistic" for two classes and multi-label targets, "softmax" for more
    classes. "softmax", "exponential" and "exponential_margin" are for classes; for two classes they
    have one score per class. "logistic", "focal" and "squared_hinge" (no probabilities) learn more
    than two classes one-vs-rest. A matrix y holds several labels per row; with "softmax", and where
    it has fractions, it holds shares of the classes. The name of one of these in XGBoost or
    LightGBM (names for binary targets warn if there are more than two classes); a loss written with
    JAX; or a function that returns `(gradient, hessian)`: see :class:`polyleaf.objectives.Custom`,
    which receives class indices, or 0 and 1."""

    class_weight: dict[Any, object] | list[object] | Literal["balanced"] | None = parameter(
        default=None
    )
    """Class weights, `{label: weight}`; "balanced": inversely proportional to the rows of a class,
    counted by weight.
    Multi-label: `{0: weight, 1: weight}` for all labels, a list of these, or
    `{label: {0: weight, 1: weight}}` by name or index; "balanced" applies to each label."""

    scale_pos_weight: float | Sequence[float] | np.ndarray | Literal["balanced", "sqrt"] | None = (
        parameter(default=None, interval="(0, inf)")
    )
    """Weight of the positive class, or of the positives of each label. "balanced": the ratio of
    negatives to positives; "sqrt": its square root. Objective "logistic" only."""

    threshold: float | Literal["f1", "f1_macro"] | dict[Any, float] = parameter(
        default=0.5, interval="(0, 1)"
    )
    """Decision threshold on the probability, for two classes and multi-label targets. "f1": the
    threshold with the largest micro-averaged F1, the same for all labels; "f1_macro": with the
    largest mean F1 of the labels. These are chosen on the last evaluation set, or else on training
    rows by three-fold cross-fitting. Or `{label: probability}`, with 0.5 for other labels.
    `predict_proba` does not change."""


@estimator_parameters
class MultiTaskParameters(InitialModelParameters, SharedParameters):
    """Multi-task learning."""

    objective: Mapping[Any, object] | None = parameter(default=None, kw_only=False, common=True)
    """Loss function of each task: a dict from the name of a column of Y, or a tuple of names that
    form one task, to an objective of :class:`polyleaf.PolyleafRegressor` or
    :class:`polyleaf.PolyleafClassifier`, by name or as an object of :mod:`polyleaf.objectives`
    (`Quantile((.1, .5, .9))`). Other columns of Y are ignored. None: "auto" for all columns: text,
    categories and booleans are classes, 0 and 1 are two classes, other numbers use squared
    error."""

    task_weight: Mapping[Any, float] | None = parameter(default=None, common=True)
    """Weight of each task in split gains, by name; 1 for tasks that are left out. Leaf values of a
    task do not depend on its weight."""

    class_weight: Mapping[Any, object] | Literal["balanced"] | None = parameter(default=None)
    """Class weights of tasks with classes or labels, `{task: class_weight}` as for
    :class:`polyleaf.PolyleafClassifier`; "balanced": of all such tasks."""

    calibrate_quantiles: bool = parameter(default=RegressorParameters.calibrate_quantiles)
    """Whether quantiles are calibrated, as in regression, for tasks that learn quantiles."""

    eval_metric: str | Mapping[Any, object] | list[object] | tuple[object, ...] | None = parameter(
        default=None, common=True
    )  # type: ignore[assignment]
    """Metrics that are computed on evaluation sets: a dict from tasks to metrics, each as for a
    single target; or "d2", the mean over tasks of the fraction of the constant baseline's error
    that is removed. None: the metric of each task and "d2" as the last one, which early stopping
    uses."""


@estimator_parameters
class RankerParameters(SharedParameters):
    """Ranking."""

    objective: str | Objective = parameter(default="xendcg", kw_only=False, common=True)
    """Loss function: "xendcg", "lambdarank", "pairwise" or "yetirank", or the name of one of these
    in XGBoost, LightGBM or CatBoost."""

    goal_weights: Sequence[Sequence[float]] | np.ndarray | None = parameter(
        default=None, common=True
    )
    """Trade-offs between the goals, which are the columns of y: weights of shape (n_scores,
    n_goals), such as `[(1, 0), (0.5, 0.5), (0, 1)]`. Score j is trained on the sum of the gradients
    of the goals times weights j, so that one model holds all trade-offs. None: a score for each
    goal."""

    gains: str | Sequence[float] | np.ndarray = parameter(
        default=XeNdcg.gains, choices=("exponential", "linear")
    )
    """Gain of a row of relevance r in the objective and in NDCG: "exponential", 2^r - 1; "linear",
    r; or the gains of relevance 0, 1, 2, ... (LightGBM: label_gain)."""

    truncation: int | None = parameter(
        default=LambdaRank.truncation, interval="[1, inf)", requires={"objective": "lambdarank"}
    )
    """Rank down to which pairs of rows count (LightGBM: lambdarank_truncation_level). None: all."""

    lambda_metric: str = parameter(
        default=LambdaRank.lambda_metric,
        choices=("ndcg", "map"),
        requires={"objective": "lambdarank"},
    )
    """Metric whose change weighs a pair of rows."""

    lambda_normalization: bool = parameter(
        default=LambdaRank.lambda_normalization, requires={"objective": "lambdarank"}
    )
    """Also of the objective "pairwise": whether the gradients of a query are divided by their
    sum, so that queries of many pairs count less (LightGBM: lambdarank_norm)."""

    position_lambda: float = parameter(default=0.0, interval="[0, inf)")
    """L2 regularisation of the bias of a position that `fit(positions=)` learns, per row of the
    position (LightGBM: lambdarank_position_bias_regularization). Where rows are already shown in
    the order of their relevance, the bias takes a part of it; 0.01 to 0.1 leaves more to X."""

    missing_targets: Literal["error", "ignore"] = parameter(default="ignore")
    """How NaN in y is handled: "ignore" takes it as no judgement of this row for the goal, "error"
    raises."""


@estimator_parameters
class SearchParameters:
    """Hyperparameter search."""

    time_limit: float | None = parameter(default=None, interval="(0, inf)", common=True)
    """Time limit of `fit` in seconds, including the final fit on all rows. The estimator as it is
    without a search is fitted first, with `quality="high"` if time allows. The result then depends
    on the speed of the machine; set `n_candidates` for a reproducible search."""

    n_candidates: int | None = parameter(default=None, interval="[1, inf)", common=True)
    """Maximum number of configurations: first the portfolio, then variations of the best ones. The
    estimator as it is without a search is always the first. None: the portfolio only, or as many as
    `time_limit` allows."""

    cv: object = parameter(default=None, common=True)
    """Cross-validation: the number of folds, drawn at random, stratified by class or by `groups`; a
    splitter of scikit-learn; or an iterable of (training rows, validation rows). None: the last
    `eval_set` if given, else three folds (with a short `time_limit` the first of them), or a
    hold-out of 20 % above 20,000 rows."""

    metric: str | Callable[..., object] | None = parameter(default=None, common=True)
    """Metric to optimise: a name or function, as for `eval_metric`. None: the last
    `eval_metric`."""

    ensemble: int | None = parameter(default=None, interval="[2, inf)", common=True)
    """Maximum number of configurations in a weighted average, which is chosen by its score on the
    folds and is one model. Its size and prediction time are those of all members together; see
    `report`. None: the best configuration only."""


@estimator_parameters
class RegressorSearchParameters(SearchParameters, RegressorParameters):
    """Regression with a search."""


@estimator_parameters
class RankerSearchParameters(SearchParameters, RankerParameters):
    """Ranking with a search."""


@estimator_parameters
class ClassifierSearchParameters(SearchParameters, ClassifierParameters):
    """Classification with a search."""
