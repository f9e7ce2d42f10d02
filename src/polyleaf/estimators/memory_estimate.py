"""Estimate of the memory that a training needs, from sizes and parameters."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Literal

import numpy as np
from sklearn.utils import check_scalar

from polyleaf.binned_data.binning import BinMapper
from polyleaf.estimators import PolyleafClassifier, PolyleafRanker, PolyleafRegressor
from polyleaf.estimators._fitting import get_single_class, make_objective
from polyleaf.estimators.base import PolyleafEstimator
from polyleaf.runtime.capabilities import refuse
from polyleaf.runtime.context import effective_threads
from polyleaf.runtime.row_data import RowData
from polyleaf.settings.parameters import DEFAULT_N_ESTIMATORS
from polyleaf.settings.train_config import make_train_config
from polyleaf.training.auto_rounds import finds_rounds, max_rounds
from polyleaf.training.memory_usage import count_columns, histogram_bytes, row_bytes, tree_bytes

_FLOAT, _DOUBLE = 4, 8  # bytes of a number


_BINNING_BYTES = 1 << 22  # of thresholds and sums while bins are found


def memory_estimate(
    n_rows: int,
    n_features: int,
    n_outputs: int = 1,
    *,
    task: Literal["regression", "classes", "labels", "ranking"] = "regression",
    n_validation_rows: int = 0,
    **parameters: Any,
) -> int:
    """Estimate the peak memory of `fit`, beyond X and y, in bytes.

    An upper bound for dense numeric features, which is computed without training.

    Parameters
    ----------
    n_rows, n_features : int
        Shape of X.
    n_outputs : int
        Number of columns of y, or of classes.
    task : {"regression", "classes", "labels", "ranking"}
    n_validation_rows : int
        Total number of rows of all evaluation sets.
    **parameters
        Parameters of the estimator.

    Returns
    -------
    int
        Bytes.

    Raises
    ------
    ValueError
        If parameters are incompatible, or targets are sparse.

    Notes
    -----
    The larger of two is returned: what training takes, and what finding bins takes before, which is
    a copy of up to 200,000 rows. Counted in training are bins (one byte per feature and row, twice
    more while rows are partitioned); targets,
    raw scores, gradients and Hessians (4 bytes per output and row); quantised gradients (2 bytes);
    numbers of queries, and weights of goals (9 bytes per goal and row);
    histograms, up to `histogram_memory`; and trees. Not counted are projections, the calibration of
    quantiles (its folds are trained one after another on fewer rows) and sparse X.

    Examples
    --------
    >>> from polyleaf import memory_estimate
    >>> memory_estimate(1_000_000, 100, 16) // 2**20 < 2_000
    True
    """
    kinds = {"regression": PolyleafRegressor, "ranking": PolyleafRanker}
    sizes = {"n_rows": n_rows, "n_features": n_features, "n_outputs": n_outputs}
    for name, number in sizes.items():
        check_scalar(number, name, Integral, min_val=1)
    check_scalar(n_validation_rows, "n_validation_rows", Integral, min_val=0)
    estimator: PolyleafEstimator = kinds.get(task, PolyleafClassifier)(**parameters)
    estimator._validate_params()
    threads = effective_threads(estimator.n_jobs)
    resolved = estimator._resolve_objective()
    settings = make_train_config(
        estimator, DEFAULT_N_ESTIMATORS, False, 0, threads, get_single_class(resolved)
    )
    n_rounds = estimator.n_estimators
    if n_rounds is None and finds_rounds(n_rows):
        n_rounds = max_rounds(settings.boosting.learning_rate, n_rows * n_features * n_outputs)
    settings = settings.replace_n_estimators(n_rounds or DEFAULT_N_ESTIMATORS)
    if settings.has_sparse_targets:
        refuse("sparse_targets", "memory_estimate")
    targets = _make_targets(task, n_outputs)
    rows = RowData(targets, query=np.zeros(len(targets), np.int64) if task == "ranking" else None)
    target = estimator._encode_target(rows, None, resolved)
    problem = make_objective(estimator, target, resolved).bind(target.rows)
    columns = count_columns(
        problem, settings, target.values.shape[1] if target.values.ndim == 2 else 1
    )
    row = row_bytes(n_features, columns, settings)
    validation_row = n_features + _FLOAT * columns.targets + (_FLOAT + 3 * _DOUBLE) * columns.scores
    if columns.goals:  # a metric's view of each goal, and the ranks of one
        validation_row += (5 * _DOUBLE + 9) * columns.goals + 10 * _DOUBLE
    objective = problem.objective
    copies = 3 if objective.balances_totals else 0
    training = (
        n_rows * (sum(row) + copies * _FLOAT * columns.scores)
        + histogram_bytes(n_rows, n_features, columns, settings)
        + tree_bytes(columns, settings)
    )
    sample = min(n_rows, BinMapper().subsample or n_rows)
    binning = (
        n_rows * (n_features + _DOUBLE * (columns.targets + 1))
        + _DOUBLE * sample * n_features
        + _BINNING_BYTES
    )
    return max(training, binning) + n_validation_rows * validation_row


def _make_targets(task: str, n_outputs: int) -> np.ndarray:
    """Make a few targets that are valid for any objective."""
    if task == "classes":
        return np.arange(2 * max(2, n_outputs)) % max(2, n_outputs)
    values = (np.arange(4)[:, None] + np.arange(n_outputs)) % 2
    return values if task == "labels" else values[:, 0] + 1.0 if n_outputs == 1 else values + 1.0
