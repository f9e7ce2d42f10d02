"""How much memory a training will need, before it begins.

Owns: what a training holds at its peak, counted part by part. Must not know: how any part works; which
columns there are is asked of the parts themselves, on a few rows.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np

import polyleaf._core as _core
from polyleaf.estimators import PolyleafClassifier, PolyleafRegressor
from polyleaf.settings.settings import LinearLeaf, Settings, settings_of
from polyleaf.sketches import get_sketch
from polyleaf.threads import effective_threads
from polyleaf.training.derivatives import Derivatives
from polyleaf.training.sampling import Draw
from polyleaf.training.splits import HistogramSplits, PlainChannels

__all__ = ["memory_estimate"]

_SHORT, _FLOAT, _DOUBLE = 2, 4, 8  # bytes of a number
_FEATURES_OF_TILE = 8
_BINS = 256  # of a feature, in a histogram
# Nodes of fewer rows than this share of channels are built anew, so no histogram is kept for their children
# (HistogramSearch::lay_out_memory: where building costs what subtracting does).
_ROWS_OF_KEPT, _HALF_AT = 6800, 12
_NODE = 72  # bytes of a node of a tree, but for its gains by output


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
    ):
        if number < least:
            raise ValueError(f"{name} must be at least {least}, got {number}.")
    estimator = kind(**parameters)
    estimator._validate_params()
    threads = effective_threads(estimator.n_jobs)
    settings = settings_of(estimator, estimator.n_estimators, False, 0, threads)
    if settings.keeps_labels_sparse:
        raise ValueError(
            "What sparse labels need depends on how many there are: memory_estimate is for dense targets."
        )
    columns = _columns(estimator, settings, task, n_outputs)
    of_validation = n_features + _FLOAT * columns.of_y + (_FLOAT + 3 * _DOUBLE) * columns.scores
    return (
        n_rows * _of_row(n_features, columns, settings)
        + _of_histograms(n_rows, n_features, columns, settings, threads)
        + _of_trees(columns, settings)
        + n_validation_rows * of_validation
    )


class _Columns(NamedTuple):
    """How many numbers a row has of each kind."""

    of_y: int
    scores: int
    curvatures: int
    sketched: int  # 0: there is no sketch
    lanes: int
    trees_of_round: int


def _columns(estimator: Any, settings: Settings, task: str, n_outputs: int) -> _Columns:
    """What the parts of the training make of a few rows."""
    target = estimator._encode_target(_few_targets(task, n_outputs), None, None)
    objective = estimator._objective(target, None)
    problem = objective.prepare(target.values, None)
    memory, workers = settings.growth.histogram_memory_bytes, settings.workers
    derivatives = Derivatives(problem, settings.curvature, None, memory, workers)
    derivatives.renew(np.zeros(derivatives.g.shape, np.float32))
    one_tree = settings.run.multi_strategy == "multi_output_tree" or problem.n_outputs == 1
    sketch = get_sketch(settings.run.sketch, settings.run.sketch_dim, problem.n_outputs)
    bins = _core.Bins(
        np.zeros((1, len(derivatives.g)), np.uint8), np.ones(1, np.uint16), np.zeros(1, bool), 1, None
    )
    judge = HistogramSplits(bins, derivatives, sketch, PlainChannels(workers), None, settings)
    kind, g, _ = judge.columns(Draw(0, None, None, None, False), -1 if one_tree else 0)
    leaf = settings.leaf
    regressors = leaf.linear_features if isinstance(leaf, LinearLeaf) and leaf.looks_ahead else -1
    held = sum(array.shape[1] for array in (derivatives.h, derivatives.full) if array is not None)
    return _Columns(
        of_y=target.values.shape[1] if target.values.ndim == 2 else 1,
        scores=problem.n_outputs,
        curvatures=held,
        sketched=0 if sketch is None else g.shape[1],
        lanes=_core.channel_lanes(g.shape[1], kind, regressors),
        trees_of_round=1 if one_tree else problem.n_outputs,
    )


def _few_targets(task: str, n_outputs: int) -> np.ndarray:
    """Some that any objective takes."""
    if task == "classes":
        return np.arange(2 * max(2, n_outputs)) % max(2, n_outputs)
    values = (np.arange(4)[:, None] + np.arange(n_outputs)) % 2
    return values if task == "labels" else values[:, 0] + 1.0 if n_outputs == 1 else values + 1.0


def _of_row(n_features: int, columns: _Columns, settings: Settings) -> int:
    """Bytes of a row: while data are made ready, or in training, whichever are more."""
    words = _FEATURES_OF_TILE * -(-n_features // _FEATURES_OF_TILE)
    sampling = settings.sampling
    is_goss = sampling.sampling_method == "goss"
    share = sampling.top_rate + sampling.other_rate if is_goss else sampling.subsample
    copies = (
        2 if share == 1.0 else 3 * share
    )  # of the words of the rows in use: their own, and two as they are parted
    features = _FLOAT * n_features if isinstance(settings.leaf, LinearLeaf) else 0
    y = (_FLOAT + _DOUBLE) * columns.of_y
    made_ready = n_features + words
    derivatives = _FLOAT * (columns.scores + columns.curvatures + columns.sketched + 1)
    channels = 2 * _SHORT * columns.lanes  # those of all rows, and those gathered of nodes
    if isinstance(settings.leaf, LinearLeaf):
        derivatives += _FLOAT * columns.lanes
    raw, rows = _FLOAT * columns.scores, 4 * _FLOAT  # ids of rows, twice, their leaves, and bits
    training = words + raw + derivatives + channels + rows + math.ceil(copies * words)
    return features + y + max(made_ready, training)


def _of_histograms(n_rows: int, n_features: int, columns: _Columns, settings: Settings, threads: int) -> int:
    growth = settings.growth
    leaves = min(growth.max_leaves or 2**31, 2 ** min(31, growth.max_depth or 31))
    one = n_features * _BINS * _FLOAT * (columns.lanes + 1)
    of_thread = 3 * _FEATURES_OF_TILE * _BINS * _FLOAT * (columns.lanes + 1)
    if isinstance(settings.leaf, LinearLeaf) and settings.leaf.looks_ahead:
        return threads * of_thread  # whose channels are another node's no more
    least = _ROWS_OF_KEPT * columns.lanes // (columns.lanes + _HALF_AT)
    kept = min(leaves, n_rows // least) + 1  # nodes whose turn may come: no row is in two of them
    return min(growth.histogram_memory_bytes, kept * one) + threads * of_thread


def _of_trees(columns: _Columns, settings: Settings) -> int:
    growth, run = settings.growth, settings.run
    leaves = min(growth.max_leaves or 2**31, 2 ** min(31, growth.max_depth or 31))
    outputs = columns.scores if columns.trees_of_round == 1 else 1
    one = 2 * leaves * (_NODE + _FLOAT * outputs) + leaves * _FLOAT * outputs
    return run.n_estimators * columns.trees_of_round * one
