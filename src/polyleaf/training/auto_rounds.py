"""Whether hold-out fits choose something for the training on all rows, and by which rows.

With `n_estimators=None` they find the number of rounds (`hold_out_search`). One hold-out fit is
enough if many held-out rows carry the loss; otherwise the median of several hold-out fits is taken,
so that no single row decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from polyleaf.callbacks import EarlyStopping
from polyleaf.metrics import Metric
from polyleaf.objectives._utils import compute_derivatives
from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator
from polyleaf.runtime.queries import count_queries
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.user_warnings import warn_user
from polyleaf.settings.parameters import DEFAULT_N_ESTIMATORS, SharedParameters
from polyleaf.training.boosting import compute_base_score
from polyleaf.training.factory import bind_objective
from polyleaf.training.prepare import HELD_OUT, check_parts
from polyleaf.training.training_run import TrainingRun, get_default_metric

MIN_ROWS, MAX_ROWS = 10, 1_000_000
MAX_ROUNDS, PATIENCE = 300.0, 10.0  # at a learning rate of 1; divided by the rate
# Cells are rows * columns * outputs. The limit of rounds times cells bounds the time of a fit.
MAX_CELL_ROUNDS = 25e9
# Number of hold-out fits if the effective number of rows is low; it is a third of all rows
# if residuals are normally distributed.
N_HOLD_OUTS, MANY_EFFECTIVE_ROWS, SOME_EFFECTIVE_ROWS = 5, 3_000, 1_000
N_TIME_HOLD_OUTS = 3  # in the order of time, where a linear model may be used
# With more cells there is a single hold-out fit.
MAX_REPEATED_CELLS = 2**23


def max_rounds(learning_rate: float, n_cells: int = 1) -> int:
    """Return the largest number of rounds that is chosen for so many cells."""
    limit = min(MAX_ROUNDS / learning_rate, MAX_CELL_ROUNDS / n_cells)
    return max(DEFAULT_N_ESTIMATORS, round(limit))


def get_patience(learning_rate: float, patience: float = PATIENCE) -> int:
    """Return after how many rounds without an improvement training stops.

    `patience`: the number of rounds at a learning rate of 1.
    """
    return max(10, round(patience / learning_rate))


def finds_rounds(n_rows: int) -> bool:
    """Return whether the number of rounds is found for data with this number of rows."""
    return MIN_ROWS <= n_rows <= MAX_ROWS


def plan_rounds(
    params: SharedParameters,
    run: TrainingRun,
    callbacks: Sequence[object],
    ranks: Communicator = SINGLE_PROCESS,
) -> Metric | None:
    """Return the metric that the number of rounds is found by; None if it is not found.

    Evaluation sets and callbacks do not change the number, except for early stopping: its training
    may have as many rounds as could be found.

    `callbacks`: callbacks of the estimator and of the fit. `ranks`: connection to the other rows.
    """
    settings = run.settings
    if params.n_estimators is not None or params.warm_start or run.init_model is not None:
        return None
    names = {cls.__name__ for callback in callbacks for cls in type(callback).__mro__}
    if params.early_stopping_rounds is not None or EarlyStopping.__name__ in names:
        limit = max_rounds(settings.boosting.learning_rate)
        run.settings = settings.replace_n_estimators(limit)
        return None
    if not can_hold_out(params, run, ranks):
        return None
    if params.eval_metric is None and not run.objective.has_default_metric:
        warn_user(
            f"n_estimators=None trains {DEFAULT_N_ESTIMATORS} rounds: none can be found by the "
            "loss of a custom objective, which is not known. Pass eval_metric, a function of y and "
            "the scores, or n_estimators."
        )
        return None
    return get_default_metric(run)


def plan_linear_model(params: SharedParameters, run: TrainingRun) -> Metric | None:
    """Return the metric by which hold-out fits decide about the linear model of a run; None if
    trees start from it in any case."""
    assert run.linear is not None
    has_metric = params.eval_metric is not None or run.objective.has_default_metric
    if run.linear.is_optional and has_metric and can_hold_out(params, run):
        return get_default_metric(run)
    run.use_linear_model()
    return None


def can_hold_out(
    params: SharedParameters, run: TrainingRun, ranks: Communicator = SINGLE_PROCESS
) -> bool:
    """Return whether hold-out fits may choose something for the training on all rows."""
    return (
        params.projection is None
        and run.settings.workers.device is None
        and not run.target.is_sparse
        and finds_rounds(ranks.sum(run.target.n_rows))
        and _has_enough_queries(run, ranks)
    )


def _has_enough_queries(run: TrainingRun, ranks: Communicator) -> bool:
    """Return whether queries can be held out, if the rows have queries."""
    query = run.target.rows.query
    return query is None or count_queries(query, ranks) >= MIN_ROWS


def iter_hold_outs(
    run: TrainingRun, n_hold_outs: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the rows to train on and the rows to evaluate on, of each hold-out fit."""
    target, seed = run.target, run.seeds.training
    classes = target.get_row_classes()
    if run.rules.time is not None:
        splits = _iter_last_rows(run, n_hold_outs)
    elif n_hold_outs == 1:
        splits = iter([run.rules.split(target.n_rows, HELD_OUT, seed, classes)])
    else:
        splits = run.rules.iter_cross_fits(target.n_rows, round(1 / HELD_OUT), seed, classes)
    for rows, held in islice(splits, n_hold_outs):
        check_parts(rows, held)
        if classes is not None:  # a class without training rows has no score
            held = held[np.isin(classes[held], classes[rows])]
        yield rows, held


def _iter_last_rows(
    run: TrainingRun, n_hold_outs: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the last rows in time after all rows before them, then those before these."""
    rows = np.flatnonzero(have_weight(run.target.rows))
    n_held = HELD_OUT * len(rows)
    for i in range(n_hold_outs):
        rules, seed = run.rules.take(rows), run.seeds.training
        earlier, later = rules.split(len(rows), n_held / len(rows), seed, None)
        if i > 0 and not (len(earlier) and len(later)):
            return
        yield rows[earlier], rows[later]
        rows = rows[earlier]


def have_weight(rows: RowData) -> NDArray[np.bool_]:
    """Return which rows have a weight; all of them if none has one."""
    if rows.weight is None:
        return np.ones(rows.n_rows, bool)
    known: NDArray[np.bool_] = np.any((rows.weight > 0).reshape(rows.n_rows, -1), axis=1)
    return known if known.any() else ~known


def count_hold_outs(run: TrainingRun) -> int:
    """Return an odd number of hold-out fits; the more, the fewer rows carry the loss.

    The effective number of rows is (sum of l)^2 / sum of l^2, where l is the squared length of the
    gradient of a row at the base score: for squared errors, the loss of the row. Outputs have equal
    shares in l if the metric is relative to their variances. In a ranking, queries take the place
    of rows.
    """
    bound = bind_objective(run.objective, run.rows, run.settings)
    n_rows, n_outputs = bound.n_rows, bound.n_outputs
    if count_cells(run) > MAX_REPEATED_CELLS:
        return 1
    if run.rules.time is not None:
        return N_TIME_HOLD_OUTS if run.linear is not None and run.linear.is_optional else 1
    base = run.base_score
    bound.set_base_score(compute_base_score(bound, run.settings) if base is None else base)
    raw = np.zeros((n_rows, n_outputs), np.float32)
    if run.rows.offset is not None:
        raw += run.rows.offset
    gradients, _ = compute_derivatives(bound, raw, run.settings.workers.n_threads)
    squares = gradients.astype(np.float64) ** 2
    if run.objective.is_translation_invariant:
        total = squares.sum(axis=0)
        squares /= np.where(total > 0, total, 1.0)
    losses = squares.sum(axis=1)
    if run.rows.query is not None:
        losses = np.bincount(run.rows.query, losses)
    fourth = float(np.sum(losses**2))
    n_effective = float(losses.sum()) ** 2 / fourth if fourth > 0 else float(n_rows)
    if n_effective >= MANY_EFFECTIVE_ROWS:
        return 1
    return 3 if n_effective >= SOME_EFFECTIVE_ROWS else N_HOLD_OUTS


def count_cells(run: TrainingRun) -> int:
    """Return rows * columns * outputs of a training."""
    n_outputs = run.objective.n_scores(run.target.encoding.n_outputs)
    return run.target.n_rows * run.dataset.mapper.n_columns_ * n_outputs
