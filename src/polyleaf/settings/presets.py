"""Named compositions of the parts: each returns a dict of estimator parameters and cites its paper.

Owns the choice of parts, nothing else: `PolyleafRegressor(**presets.cgb())`. A recipe names only the
parameters that make the method what it is, and those whose value its paper states; everything else stays at
the estimator's default. Every recipe takes changes, `presets.cgb(max_depth=8)`, and one call is for both
estimators; those whose loss is one of classes are refused by the regressor.
"""

from __future__ import annotations

from typing import Any

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


def gbdt_mo(**changes: Any) -> dict[str, Any]:
    """GBDT-MO: one tree for all outputs, second-order, a vector in each leaf.

    Zhang and Jung, "GBDT-MO: Gradient-Boosted Decision Trees for Multiple Outputs", IEEE Transactions on
    Neural Networks and Learning Systems, 2021. Diagonal curvature for structure and leaves (eq. 15 and 16,
    algorithm 2; where an objective's curvature is constant no array is kept), leaves grown best first
    (algorithm 5), L2 regularisation 1 (appendix on hyper-parameters). The paper sets the least number of rows
    of a leaf for each data set; here it is 20.

    Parameters
    ----------
    **changes
        Parameters of the estimator, in place of the recipe's or besides.

    Returns
    -------
    dict
        Parameters of `PolyleafRegressor` and `PolyleafClassifier`.
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


def gbdt_mo_sparse(leaf_k: int = 4, *, restricted: bool = True, **changes: Any) -> dict[str, Any]:
    """GBDT-MO with sparse leaves: a leaf keeps the `leaf_k` outputs that gain most, and splits know it.

    Zhang and Jung, 2021, section III-B (see :func:`gbdt_mo`): leaves by eq. 19, splits by eq. 21 (Algorithm
    3, unrestricted) or by eq. 22 (Algorithm 4, restricted). The paper finds the restricted search faster and
    as good (tables VI and VII).

    Parameters
    ----------
    leaf_k : int
        Outputs of a leaf, at most as many as there are. The paper has 2, 4 and 8 for MNIST's ten classes.
    restricted : bool
        The two children of a node keep the same outputs. Otherwise each keeps its own.
    **changes
        Parameters of the estimator, in place of the recipe's or besides.

    Returns
    -------
    dict
        Parameters of `PolyleafRegressor` and `PolyleafClassifier`.
    """
    support = "shared" if restricted else "own"
    return {
        **gbdt_mo(),
        "leaf": "sparse",
        "leaf_k": leaf_k,
        "leaf_output_set": support,
        "split_search": "histogram",
    } | changes


def gbdt_pl(**changes: Any) -> dict[str, Any]:
    """GBDT-PL: leaves that are linear in a few features, and splits that know it.

    Shi, Li and Li, "Gradient Boosting With Piece-Wise Linear Regression Trees", IJCAI 2019. Half-additive
    fitting (section 4.3) of at most 5 regressors, chosen as the tree grows (section 4.2), best first; the
    settings of the paper's table 3 (255 leaves, rate 0.1, regularisation 0.01) and its 500 rounds. The
    paper's least sum of curvature in a leaf, 100, is left out: it is for its millions of rows
    (`min_child_weight=100`). A leaf's function is refitted by least squares on the features themselves, not
    on bin means, and penalties are per standard deviation of a feature.

    Parameters
    ----------
    **changes
        Parameters of the estimator, in place of the recipe's or besides.

    Returns
    -------
    dict
        Parameters of `PolyleafRegressor` and `PolyleafClassifier`.
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


def gbdt_so(**changes: Any) -> dict[str, Any]:
    """GBDT-SO: the same trees, one for each output in each round.

    The baseline of Zhang and Jung, 2021 (see :func:`gbdt_mo`), and what XGBoost (Chen and Guestrin, KDD
    2016) and LightGBM (Ke et al., NeurIPS 2017) do by default.

    Parameters
    ----------
    **changes
        Parameters of the estimator, in place of the recipe's or besides.

    Returns
    -------
    dict
        Parameters of `PolyleafRegressor` and `PolyleafClassifier`.
    """
    return {**gbdt_mo(), "multi_strategy": "one_output_per_tree"} | changes


def gbdt_sparse(*, exact: bool = False, **changes: Any) -> dict[str, Any]:
    """GBDT-SPARSE: very many outputs of which each row has few; leaves keep k of them, nothing is ever dense.

    Si, Zhang, Keerthi, Mahajan, Dhillon and Hsieh, "Gradient Boosted Decision Trees for High Dimensional
    Sparse Output", ICML 2017. First-order trees (eq. 11) whose leaves hold the k outputs of largest summed
    gradient (eq. 16 to 20), grown level by level on features projected by LEML (section 4.2). Depth 10, 100
    rows a leaf, lambda 5, k = 20 and 100 features are those of the paper for Delicious (section 5). It states
    neither the number of trees nor a shrinkage; these are measured (docs/sparse-leaves.md). So is that rows
    are weighted by TF-IDF and given length 1 before they are projected, which the paper does not do:
    `tfidf=False` for features that are no words. `projection=None, projection_dim=None, tfidf=False` splits
    on the features as they are.

    Parameters
    ----------
    exact : bool
        Search as published: every feature by exact sums, thresholds at every 5 % of a node's rows (Algorithm
        1). Otherwise a sketch of the gradients proposes splits and exact sums judge them: as good, and
        faster.
    **changes
        Parameters of the estimator, in place of the recipe's or besides.

    Returns
    -------
    dict
        Parameters of `PolyleafClassifier` (loss: squared hinge, eq. 9) and `PolyleafRegressor` (squared
        error).
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


def cgb(**changes: Any) -> dict[str, Any]:
    """C-GB: a tree fitted to the residuals of all outputs by least squares, then a Newton step in each leaf.

    Emami and Martínez-Muñoz, "Condensed-Gradient Boosting", arXiv 2211.14599. Splits minimise the squared
    error of the residuals averaged over outputs (eq. 10): a structure grown without curvature. The leaves
    take one Newton-Raphson step with the diagonal curvature (eq. 13; for softmax with the factor (K-1)/K,
    which is `softmax_hessian="friedman"`); for squared error that step is the mean, so there is no second
    one. The method has no regularisation (L2 of 0, no smallest curvature, one row may be a
    leaf) and limits the depth, not the number of leaves. Learning rate 0.1 and 100 rounds are those of the
    paper's timings and depth 5 is the middle of its grid (section 4.2, table 2), which also searches
    `subsample` in 0.5, 0.75 and 1.

    Parameters
    ----------
    **changes
        Parameters of the estimator, in place of the recipe's or besides.

    Returns
    -------
    dict
        Parameters of `PolyleafRegressor` and `PolyleafClassifier`.
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


def tfbt(**changes: Any) -> dict[str, Any]:
    """TFBT: vector leaves from the diagonal of the Hessian, boosted layer by layer.

    Ponomareva, Colthurst, Hendry, Haykal and Radpour, "Compact multi-class boosted trees", IEEE Big Data 2017
    (arXiv 1710.11547). The setting the paper recommends and reports as "Diagonal + LBL" (section VII): every
    layer of a tree is a boosting step (section V), splits and leaves use the diagonal of the Hessian (section
    III-A) of softmax cross-entropy, trees of depth 4, learning rate 0.3, L2 of 1. (TFBT's own L2 is per
    instance; the paper chose it such that it comes to XGBoost's 1, which is `reg_lambda` here.) The paper
    states no smallest leaf. It is about ensembles of 10 to 100 trees: set `n_estimators`.

    Parameters
    ----------
    **changes
        Parameters of the estimator, in place of the recipe's or besides.

    Returns
    -------
    dict
        Parameters of `PolyleafClassifier` and `PolyleafRegressor`.
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


def tfbt_full(**changes: Any) -> dict[str, Any]:
    """TFBT with the whole Hessian in splits and leaves, a whole tree at a time.

    "Full Hessian" in the tables of Ponomareva et al., 2017 (see :func:`tfbt`): eq. 6 for the leaves, eq. 7
    and 8 for the gain.

    Parameters
    ----------
    **changes
        Parameters of the estimator, in place of the recipe's or besides.

    Returns
    -------
    dict
        Parameters of `PolyleafClassifier` and `PolyleafRegressor`.
    """
    full = {"boosting_step": "round", "hessian": "full", "leaf_hessian": "full"}
    return {**tfbt(), **full} | changes


def samme(**changes: Any) -> dict[str, Any]:
    """SAMME by gradient steps: the multi-class exponential loss, first order, scores that sum to zero.

    Zhu, Zou, Rosset and Hastie, "Multi-class AdaBoost", Statistics and Its Interface 2, 2009, in the form
    that TFBT (section IV; see :func:`tfbt`) gives it. The gradient of the loss sums to zero over classes, and
    so does every leaf, because no curvature weighs its outputs: the paper's constraint holds by itself. Not
    the paper's are trees of real-valued leaves and a learning rate in place of the votes and their weights in
    closed form.

    Parameters
    ----------
    **changes
        Parameters of the estimator, in place of the recipe's or besides.

    Returns
    -------
    dict
        Parameters of `PolyleafClassifier`, for two classes or more.
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


def gamble(**changes: Any) -> dict[str, Any]:
    """GAMBLE: SAMME's loss by quasi-Newton steps.

    Huang, Ertekin, Song, Zha and Giles, "Efficient multiclass boosting classification with active learning",
    SIAM International Conference on Data Mining, 2007, in the form that TFBT (section IV; see :func:`tfbt`)
    gives it: the diagonal of the Hessian, no regularisation. The Hessian of a row has rank one, which its
    diagonal makes up to K times too small along a leaf's step; a learning rate of 0.1 allows for it.

    Parameters
    ----------
    **changes
        Parameters of the estimator, in place of the recipe's or besides.

    Returns
    -------
    dict
        Parameters of `PolyleafClassifier`, for two classes or more.
    """
    second_order = {"hessian": "diagonal", "leaf_hessian": "diagonal", "learning_rate": 0.1}
    return {**samme(), **second_order, "min_child_weight": 0.0} | changes


def gd_mcboost(**changes: Any) -> dict[str, Any]:
    """GD-MCBoost: gradient descent on exponentials of multi-class margins, with simplex codewords.

    Saberian and Vasconcelos, "Multiclass boosting: theory and algorithms", NIPS 2011, in the form that TFBT
    (section IV; see :func:`tfbt`) gives it: first order. Raw scores are the products of the paper's predictor
    with the codewords, one for each class (see :mod:`polyleaf.objectives.exponential`); the learning rate
    stands for the paper's line search.

    Parameters
    ----------
    **changes
        Parameters of the estimator, in place of the recipe's or besides.

    Returns
    -------
    dict
        Parameters of `PolyleafClassifier`, for two classes or more.
    """
    return {**samme(), "objective": "exponential_margin", "learning_rate": 0.3} | changes
