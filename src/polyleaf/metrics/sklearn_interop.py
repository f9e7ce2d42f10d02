"""What scikit-learn's own metrics are to training: which way they point, and whether they want decisions.

Owns what is known of them by their names. Must not know how metrics are called.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

__all__ = ["SCORERS", "is_greater_better", "is_scorer", "takes_decisions"]

_DECISIONS = (
    *("accuracy_score", "balanced_accuracy_score", "cohen_kappa_score", "f1_score", "fbeta_score"),
    *("hamming_loss", "jaccard_score", "matthews_corrcoef", "precision_score", "recall_score"),
    "zero_one_loss",
)

SCORERS = {
    "neg_mean_absolute_error": "mae",
    "neg_mean_absolute_percentage_error": "mape",
    "neg_mean_squared_error": "mse",
    "neg_root_mean_squared_error": "rmse",
    "neg_root_mean_squared_log_error": "rmsle",
    "neg_mean_poisson_deviance": "poisson_deviance",
    "neg_mean_gamma_deviance": "gamma_deviance",
    "neg_brier_score": "brier",
    "neg_log_loss": "log_loss",
    "roc_auc": "auc",
    "roc_auc_ovr": "auc",
    "matthews_corrcoef": "mcc",
}
"""Names of scikit-learn's scorers, where ours are called otherwise. Those that are negated there, because
larger is better for all scorers, are errors here."""


def _name(function: Callable[..., Any]) -> str | None:
    """Its name, where it is one of scikit-learn's metrics."""
    while isinstance(function, partial):
        function = function.func
    of_sklearn = str(getattr(function, "__module__", "")).startswith("sklearn.metrics")
    return getattr(function, "__name__", None) if of_sklearn else None


def is_scorer(function: Callable[..., Any]) -> bool:
    """Whether it is what `get_scorer` and `make_scorer` give."""
    return hasattr(function, "_score_func") and hasattr(function, "_sign")


def is_greater_better(function: Callable[..., Any]) -> bool:
    """By scikit-learn's rule: of `..._score` and correlations; of nobody else's function."""
    name = _name(function) or ""
    return name.endswith("_score") or name == "matthews_corrcoef"


def takes_decisions(function: Callable[..., Any]) -> bool:
    """Whether it compares classes or labels, where training has scores."""
    return _name(function) in _DECISIONS
