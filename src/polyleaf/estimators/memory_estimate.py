"""How much memory a training will need, before it begins.

Owns: what is known before there are data: few rows stand for all, and rows to validate on. Must not know:
what a training holds (`polyleaf.training.memory_usage`).
"""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any, Literal

import numpy as np

from polyleaf.estimators import PolyleafClassifier, PolyleafRegressor
from polyleaf.runtime.context import effective_threads
from polyleaf.settings.parameters import DEFAULT_N_ESTIMATORS
from polyleaf.settings.train_config import make_train_config
from polyleaf.training.auto_n_estimators import has_few_rows, max_rounds
from polyleaf.training.memory_usage import count_columns, histogram_bytes, row_bytes, tree_bytes

__all__ = ["memory_estimate"]

_FLOAT, _DOUBLE = 4, 8  # bytes of a number


def memory_estimate(
    n_rows: int,
    n_features: int,
    n_outputs: int = 1,
    *,
    task: Literal["regression", "classes", "labels"] = "regression",
    n_validation_rows: int = 0,
    **parameters: Any,
) -> int:
    """Memory that `fit` will need at its peak, beyond X and y themselves.

    For whoever plans trainings: so many bytes have to be free. It is counted, not measured, and meant as an
    upper bound for numeric features that are dense: see the notes.

    Parameters
    ----------
    n_rows, n_features : int
        Of X.
    n_outputs : int
        Columns of y; of classes, how many there are.
    task : {"regression", "classes", "labels"}
    n_validation_rows : int
        Rows of all evaluation sets together.
    **parameters
        Of the estimator.

    Returns
    -------
    int
        Bytes.

    Raises
    ------
    ValueError
        Where parameters do not go together, or very many labels are kept sparse: then it is the number of
        labels that counts, which nothing here knows.

    Notes
    -----
    Codes of the features (a byte each), twice more while a tree parts its rows; targets, raw scores,
    gradients and curvatures (4 bytes an output and row); channels (2 bytes); histograms, up to
    `histogram_memory`; trees. A projection, quantiles' calibration (its folds are trained one after another,
    each on fewer rows) and sparse X are not counted. Measured in docs/how-to/deployment.md.

    Examples
    --------
    >>> from polyleaf import memory_estimate
    >>> memory_estimate(1_000_000, 100, 16) // 2**20 < 2_000
    True
    """
    kind = PolyleafRegressor if task == "regression" else PolyleafClassifier
    for name, number, least in (
        ("n_rows", n_rows, 1),
        ("n_features", n_features, 1),
        ("n_outputs", n_outputs, 1),
        ("n_validation_rows", n_validation_rows, 0),
    ):
        if not isinstance(number, Integral) or number < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {number!r}.")
    estimator = kind(**parameters)
    estimator._validate_params()
    threads = effective_threads(estimator.n_jobs)
    settings = make_train_config(estimator, DEFAULT_N_ESTIMATORS, False, 0, threads)
    found = (
        max_rounds(settings.boosting.learning_rate)
        if has_few_rows(n_rows)
        else DEFAULT_N_ESTIMATORS
    )
    rounds = found if estimator.n_estimators is None else estimator.n_estimators
    settings = replace(settings, boosting=replace(settings.boosting, n_estimators=rounds))
    if settings.has_sparse_targets:
        raise ValueError(
            "What sparse labels need depends on how many there are: memory_estimate is for dense targets."
        )
    target = estimator._encode_target(_few_targets(task, n_outputs), None, None)
    problem = estimator._objective(target, None).bind(target.values, None)
    columns = count_columns(
        problem, settings, target.values.shape[1] if target.values.ndim == 2 else 1
    )
    row = row_bytes(n_features, columns, settings)
    of_validation = n_features + _FLOAT * columns.targets + (_FLOAT + 3 * _DOUBLE) * columns.scores
    return (
        n_rows * sum(row)
        + histogram_bytes(n_rows, n_features, columns, settings)
        + tree_bytes(columns, settings)
        + n_validation_rows * of_validation
    )


def _few_targets(task: str, n_outputs: int) -> np.ndarray:
    """Some that any objective takes."""
    if task == "classes":
        return np.arange(2 * max(2, n_outputs)) % max(2, n_outputs)
    values = (np.arange(4)[:, None] + np.arange(n_outputs)) % 2
    return values if task == "labels" else values[:, 0] + 1.0 if n_outputs == 1 else values + 1.0
