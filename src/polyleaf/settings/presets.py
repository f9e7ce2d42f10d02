"""Presets: configurations of published methods, as dicts of estimator parameters.

Usage: `PolyleafRegressor(**presets.cgb())`. A preset sets only the parameters that define the
method and those whose value its paper states. Presets accept changes, `presets.cgb(max_depth=8)`,
and work with both estimators; regressors reject those whose loss is for classes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polyleaf.runtime.types import Parameters

__all__ = [
    "cgb",
    "gamble",
    "gbdt_mo",
    "gbdt_mo_sparse",
    "gbdt_pl",
    "gbdt_so",
    "gbdt_sparse",
    "gd_mcboost",
    "samme",
    "tfbt",
    "tfbt_full",
]


def __dir__() -> list[str]:
    return __all__


_SECTIONS = """

Parameters
----------
**changes
    Parameters of the estimator that replace or extend those of the preset.

Returns
-------
dict
    Parameters of an estimator.
"""


def _preset(function: Callable[..., Parameters]) -> Callable[..., Parameters]:
    """Decorate a preset that takes changes only: add the sections of its docstring."""
    function.__doc__ = inspect.cleandoc(function.__doc__ or "") + _SECTIONS
    return function


@_preset
def gbdt_mo(**changes: object) -> Parameters:
    """GBDT-MO: one tree for all outputs, second-order, a vector in each leaf.

    Zhang and Jung, "GBDT-MO: Gradient-Boosted Decision Trees for Multiple Outputs", IEEE
    Transactions on Neural Networks and Learning Systems, 2021. Diagonal Hessian for splits and
    leaves (eq. 15 and 16, algorithm 2), best-first growth (algorithm 5), L2 regularisation of 1
    (appendix on hyper-parameters). The paper sets the minimum number of rows in a leaf for each
    data set; here it is 20.
    """
    return {
        "multi_strategy": "multi_output_tree",
        "hessian": "diagonal",
        "leaf_hessian": "diagonal",
        "grow_policy": "lossguide",
        "reg_lambda": 1.0,
        "min_child_samples": 20,
        "colsample_bynode": 1.0,
    } | changes


def gbdt_mo_sparse(leaf_k: int = 4, *, restricted: bool = True, **changes: object) -> Parameters:
    """GBDT-MO with sparse leaves: a leaf keeps the `leaf_k` outputs with the largest gains.

    Zhang and Jung, 2021, section III-B (see :func:`gbdt_mo`): leaves by eq. 19, splits by eq. 21
    (Algorithm 3, unrestricted) or by eq. 22 (Algorithm 4, restricted). In the paper the restricted
    search is faster and as accurate (tables VI and VII).

    Parameters
    ----------
    leaf_k : int
        Number of outputs of a leaf. The paper uses 2, 4 and 8 for the ten classes of MNIST.
    restricted : bool
        Whether the two children of a node keep the same outputs.
    **changes
        Parameters of the estimator that replace or extend those of the preset.

    Returns
    -------
    dict
        Parameters of `PolyleafRegressor` and `PolyleafClassifier`.
    """
    return {
        **gbdt_mo(),
        "leaf": "sparse",
        "leaf_k": leaf_k,
        "leaf_output_set": "shared" if restricted else "own",
        "split_search": "histogram",
    } | changes


@_preset
def gbdt_pl(**changes: object) -> Parameters:
    """GBDT-PL: leaves that are linear in a few features, with splits that account for them.

    Shi, Li and Li, "Gradient Boosting With Piece-Wise Linear Regression Trees", IJCAI 2019.
    Half-additive fitting (section 4.3) of at most 5 regressors, chosen as the tree grows (section
    4.2), best-first growth; the parameters of the paper's table 3 (255 leaves, learning rate 0.1,
    regularisation 0.01) and its 500 rounds. The paper's minimum sum of the Hessian in a leaf, 100,
    is for millions of rows and left out (`min_child_weight=100`). Leaves are refitted by least
    squares on raw feature values instead of bin means, and penalties are per standard deviation of
    a feature.
    """
    return {
        "leaf": "linear",
        "linear_fit": "half_additive",
        "linear_features": 5,
        "multi_strategy": "multi_output_tree",
        "grow_policy": "lossguide",
        "n_estimators": 500,
        "learning_rate": 0.1,
        "max_leaves": 255,
        "reg_lambda": 0.01,
        "min_child_samples": 20,
        "colsample_bynode": 1.0,
    } | changes


@_preset
def gbdt_so(**changes: object) -> Parameters:
    """GBDT-SO: the trees of GBDT-MO, one per output and round.

    The baseline of Zhang and Jung, 2021 (see :func:`gbdt_mo`), and the default of XGBoost (Chen and
    Guestrin, KDD 2016) and LightGBM (Ke et al., NeurIPS 2017).
    """
    return {**gbdt_mo(), "multi_strategy": "one_output_per_tree"} | changes


def gbdt_sparse(*, exact: bool = False, **changes: object) -> Parameters:
    """GBDT-SPARSE: very many outputs, few per row; leaves keep k of them and no array is dense.

    Si, Zhang, Keerthi, Mahajan, Dhillon and Hsieh, "Gradient Boosted Decision Trees for High
    Dimensional Sparse Output", ICML 2017. First-order trees (eq. 11) whose leaves hold the k
    outputs of largest summed gradient (eq. 16 to 20), grown level by level on features projected by
    LEML (section 4.2). Depth 10, 100 rows per leaf, lambda 5, k = 20 and 100 features are the
    paper's values for Delicious (section 5). The number of trees and the learning rate, which it
    does not state, and TF-IDF weighting of rows before the projection, which it does not use, are
    from benchmarks; set `tfidf=False` for features other than word counts. `projection=None,
    projection_dim=None, tfidf=False` trains on the features themselves.

    Parameters
    ----------
    exact : bool
        Exact search as published: all features, thresholds at every 5% of a node's rows (Algorithm
        1). Otherwise a sketch of the gradients proposes splits and their gains are computed
        exactly, which is as accurate and faster.
    **changes
        Parameters of the estimator that replace or extend those of the preset.

    Returns
    -------
    dict
        Parameters of `PolyleafClassifier` (loss: squared hinge, eq. 9) and `PolyleafRegressor`
        (squared error).
    """
    search = (
        {"split_search": "exact", "threshold_step": 0.05}
        if exact
        else {"split_search": "count_sketch"}
    )
    return {
        **search,
        "leaf": "sparse",
        "leaf_k": 20,
        "leaf_output_set": "own",
        "hessian": "none",
        "leaf_hessian": "none",
        "grow_policy": "depthwise",
        "max_depth": 10,
        "max_leaves": None,
        "min_child_samples": 100,
        "min_child_weight": 0.0,
        "reg_lambda": 5.0,
        "colsample_bynode": 1.0,
        "projection": "leml",
        "projection_dim": 100,
        "tfidf": True,
        "learning_rate": 0.1,
        "n_estimators": 300,
    } | changes


@_preset
def cgb(**changes: object) -> Parameters:
    """C-GB: a tree fitted to the residuals of all outputs by least squares, then a Newton step in
    each leaf.

    Emami and Martínez-Muñoz, "Condensed-Gradient Boosting", arXiv 2211.14599. Splits minimise the
    squared error of the residuals averaged over outputs (eq. 10): first-order splits. The leaves
    take one Newton-Raphson step with the diagonal Hessian (eq. 13; for softmax with the factor
    (K-1)/K, which is `softmax_hessian="friedman"`); for squared error that step is the mean. The
    method has no regularisation (L2 of 0, no minimum Hessian, single rows may be leaves) and limits
    the depth, not the number of leaves. Learning rate 0.1 and 100 rounds are those of the paper's
    timings and depth 5 is the middle of its grid (section 4.2, table 2), which also searches
    `subsample` in 0.5, 0.75 and 1.
    """
    return {
        "softmax_hessian": "friedman",
        "multi_strategy": "multi_output_tree",
        "hessian": "none",
        "leaf_hessian": "diagonal",
        "grow_policy": "depthwise",
        "max_depth": 5,
        "max_leaves": None,
        "reg_lambda": 0.0,
        "min_child_weight": 0.0,
        "min_child_samples": 1,
        "colsample_bynode": 1.0,
        "learning_rate": 0.1,
        "n_estimators": 100,
    } | changes


@_preset
def tfbt(**changes: object) -> Parameters:
    """TFBT: vector leaves with the diagonal Hessian, boosted layer by layer.

    Ponomareva, Colthurst, Hendry, Haykal and Radpour, "Compact multi-class boosted trees", IEEE Big
    Data 2017 (arXiv 1710.11547). The configuration that the paper recommends and reports as
    "Diagonal + LBL" (section VII): every layer of a tree is a boosting step (section V), splits and
    leaves use the diagonal of the Hessian (section III-A) of softmax cross-entropy, depth 4,
    learning rate 0.3, L2 of 1. (TFBT's own L2 is per instance; the paper chose it to match
    XGBoost's 1, which is `reg_lambda` here.) The paper states no minimum leaf size. It is about
    ensembles of 10 to 100 trees: set `n_estimators`.
    """
    return {
        "softmax_hessian": "diagonal",
        "multi_strategy": "multi_output_tree",
        "boosting_step": "layer",
        "hessian": "diagonal",
        "leaf_hessian": "diagonal",
        "grow_policy": "depthwise",
        "max_depth": 4,
        "max_leaves": None,
        "reg_lambda": 1.0,
        "min_child_weight": 0.0,
        "min_child_samples": 1,
        "colsample_bynode": 1.0,
        "learning_rate": 0.3,
    } | changes


@_preset
def tfbt_full(**changes: object) -> Parameters:
    """TFBT with the full Hessian in splits and leaves, one tree per boosting step.

    "Full Hessian" in the tables of Ponomareva et al., 2017 (see :func:`tfbt`): eq. 6 for the
    leaves, eq. 7 and 8 for the gain.
    """
    full = {"boosting_step": "round", "hessian": "full", "leaf_hessian": "full"}
    return {**tfbt(), **full} | changes


@_preset
def samme(**changes: object) -> Parameters:
    """SAMME by gradient steps: the multiclass exponential loss, first order, scores that sum to
    zero.

    Zhu, Zou, Rosset and Hastie, "Multi-class AdaBoost", Statistics and Its Interface 2, 2009, in
    the form that TFBT (section IV; see :func:`tfbt`) gives it. The gradient of the loss sums to
    zero over classes, and so does every first-order leaf, so that the paper's constraint holds.
    Real-valued leaves and a learning rate replace the paper's votes and their weights in closed
    form.

    For two classes or more.
    """
    return {
        "objective": "exponential",
        "multi_strategy": "multi_output_tree",
        "hessian": "none",
        "leaf_hessian": "none",
        "reg_lambda": 0.0,
        "min_child_samples": 20,
        "colsample_bynode": 1.0,
        "learning_rate": 1.0,
    } | changes


@_preset
def gamble(**changes: object) -> Parameters:
    """GAMBLE: SAMME's loss by quasi-Newton steps.

    Huang, Ertekin, Song, Zha and Giles, "Efficient multiclass boosting classification with active
    learning", SIAM International Conference on Data Mining, 2007, in the form that TFBT (section
    IV; see :func:`tfbt`) gives it: the diagonal of the Hessian, no regularisation. The Hessian of a
    row has rank one, and its diagonal underestimates it up to K times along a leaf's step; the
    learning rate of 0.1 allows for that.

    For two classes or more.
    """
    second_order = {"hessian": "diagonal", "leaf_hessian": "diagonal", "learning_rate": 0.1}
    return {**samme(), **second_order, "min_child_weight": 0.0} | changes


@_preset
def gd_mcboost(**changes: object) -> Parameters:
    """GD-MCBoost: gradient descent on exponentials of multiclass margins, with simplex codewords.

    Saberian and Vasconcelos, "Multiclass boosting: theory and algorithms", NIPS 2011, in the form
    that TFBT (section IV; see :func:`tfbt`) gives it: first order. Raw scores are the products of
    the paper's predictor with the codewords, one for each class (see
    :class:`polyleaf.objectives.Exponential`); the learning rate replaces the paper's line search.

    For two classes or more.
    """
    return {**samme(), "objective": "exponential_margin", "learning_rate": 0.3} | changes
