"""Named compositions of the parts: each returns a dict of estimator parameters and cites its paper.

Owns the choice of parts, nothing else: `PolyleafRegressor(**recipes.cgb())`. A recipe names only the
parameters that make the method what it is, and those whose value its paper states; everything else stays at
the estimator's default. To change a parameter, merge dicts: `PolyleafRegressor(**{**recipes.cgb(),
"max_depth": 8})`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["cgb", "gbdt_mo", "gbdt_so"]


def gbdt_mo() -> dict[str, Any]:
    """GBDT-MO: one tree for all outputs, second-order, a vector in each leaf.

    Zhang and Jung, "GBDT-MO: Gradient-Boosted Decision Trees for Multiple Outputs", IEEE Transactions on
    Neural Networks and Learning Systems, 2021. Diagonal curvature for structure and leaves (eq. 15 and 16,
    algorithm 2; where an objective's curvature is constant no array is kept), leaves grown best first
    (algorithm 5), L2 regularisation 1 (appendix on hyper-parameters).

    Returns
    -------
    dict
        Parameters of `PolyleafRegressor` and `PolyleafClassifier`.
    """
    return {
        "multi_strategy": "multi_output_tree",
        "curvature": "diagonal",
        "leaf_curvature": "diagonal",
        "grow_policy": "lossguide",
        "reg_lambda": 1.0,
    }


def gbdt_so() -> dict[str, Any]:
    """GBDT-SO: the same trees, one for each output in each round.

    The baseline of Zhang and Jung, 2021 (see :func:`gbdt_mo`), and what XGBoost (Chen and Guestrin, KDD
    2016) and LightGBM (Ke et al., NeurIPS 2017) do by default.

    Returns
    -------
    dict
        Parameters of `PolyleafRegressor` and `PolyleafClassifier`.
    """
    return {**gbdt_mo(), "multi_strategy": "one_output_per_tree"}


def cgb(*, classifier: bool = False) -> dict[str, Any]:
    """C-GB: a tree fitted to the residuals of all outputs by least squares, then a Newton step in each leaf.

    Emami and Martínez-Muñoz, "Condensed-Gradient Boosting", arXiv 2211.14599. Splits minimise the squared
    error of the residuals averaged over outputs (eq. 10): a structure grown without curvature. The leaves
    take one Newton-Raphson step with the diagonal curvature (eq. 13; for softmax with the factor (K-1)/K,
    which is `softmax_curvature="friedman"`); for squared error that step is the mean, so there is no second
    one. The method has no regularisation (L2 of 0, no smallest curvature, one row may be a
    leaf) and limits the depth, not the number of leaves. Learning rate 0.1 and 100 rounds are those of the
    paper's timings and depth 5 is the middle of its grid (section 4.2, table 2), which also searches
    `subsample` in 0.5, 0.75 and 1.

    Parameters
    ----------
    classifier : bool
        For `PolyleafClassifier`: adds the curvature of softmax, which regressors do not have.

    Returns
    -------
    dict
        Parameters of `PolyleafRegressor`, or of `PolyleafClassifier`.
    """
    softmax = {"softmax_curvature": "friedman"} if classifier else {}
    return {
        **softmax,
        "multi_strategy": "multi_output_tree",
        "curvature": "none",
        "leaf_curvature": "diagonal",
        "grow_policy": "depthwise",
        "max_depth": 5,
        "max_leaves": None,
        "reg_lambda": 0.0,
        "min_child_weight": 0.0,
        "min_child_samples": 1,
        "learning_rate": 0.1,
        "n_estimators": 100,
    }
