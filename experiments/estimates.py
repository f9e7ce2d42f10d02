"""Comparison of `memory_estimate` with the measured memory of training."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import memory
from .harness.context import Context, Unavailable
from .harness.paper import Figures, Paper, Subject, Table

N_ROWS, N_FEATURES, ROUNDS, QUERY_ROWS = 60_000, 50, 20, 50

ONE_EACH = {"multi_strategy": "one_output_per_tree"}
# Task, outputs, parameters, and whether an equal number of rows is evaluated on.
TRAININGS: dict[str, tuple[str, int, dict[str, Any], bool]] = {
    "one number": ("regression", 1, {}, False),
    "16 numbers": ("regression", 16, {}, False),
    "16 numbers, `max_leaves=255`": ("regression", 16, {"max_leaves": 255}, False),
    "16 numbers, `subsample=0.5`": ("regression", 16, {"subsample": 0.5}, False),
    "16 numbers, a tree for each": ("regression", 16, ONE_EACH, False),
    "16 numbers, and as many rows to evaluate on": ("regression", 16, {}, True),
    "16 numbers, linear leaves": ("regression", 16, {"leaf": "linear"}, False),
    "16 labels": ("labels", 16, {}, False),
    "8 classes": ("classes", 8, {}, False),
    "8 classes, full Hessian": ("classes", 8, {"hessian": "full"}, False),
    "4 goals of a ranking": ("ranking", 4, {}, False),
    "4 goals of a ranking, and as many rows to evaluate on": ("ranking", 4, {}, True),
    "100 numbers": ("regression", 100, {}, False),
    '100 numbers, `sketch="auto"`': ("regression", 100, {"sketch": "auto"}, False),
}


def estimates(context: Context, method: str, problem: str) -> Figures:
    """Return the memory of the training `method` in MiB.

    Figures: `measured` (growth at the peak), `estimated`, and their `ratio`.
    """
    from polyleaf import PolyleafClassifier, PolyleafRanker, PolyleafRegressor, memory_estimate

    task, n_outputs, parameters, is_evaluated = TRAININGS[method]
    parameters = {"n_estimators": context.rounds(ROUNDS), "n_jobs": context.threads, **parameters}
    n_rows = context.rows(N_ROWS)
    X, y = _data(task, n_rows, n_outputs)
    given: dict[str, Any] = {}
    if is_evaluated:
        given["eval_set"] = [_data(task, n_rows, n_outputs, seed=1)]
    kinds: dict[str, Any] = {"regression": PolyleafRegressor, "ranking": PolyleafRanker}
    kind, small = kinds.get(task, PolyleafClassifier), {}
    if task == "ranking":
        query = np.arange(n_rows) // QUERY_ROWS
        given["qid"], small["qid"] = query, query[:300]
        if is_evaluated:
            given["eval_qid"] = [query]
    kind(**{**parameters, "n_estimators": 1}).fit(X[:300], y[:300], **small)  # load libraries
    memory.give_back()
    grown = memory.growth(lambda: kind(**parameters).fit(X, y, **given))
    if grown is None:
        raise Unavailable("the most memory held cannot be told apart here")
    estimated = memory_estimate(
        n_rows,
        N_FEATURES,
        n_outputs,
        task=task,  # type: ignore[arg-type]
        n_validation_rows=n_rows if is_evaluated else 0,
        **parameters,
    )
    return {"measured": grown / 2**20, "estimated": estimated / 2**20, "ratio": estimated / grown}


def _data(task: str, n_rows: int, n_outputs: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, N_FEATURES), np.float32)
    scores = X[:, :5] @ np.random.default_rng(9).standard_normal((5, n_outputs)).astype(np.float32)
    scores += rng.standard_normal(scores.shape, np.float32)
    if task == "classes":
        return X, scores.argmax(axis=1)
    if task == "ranking":
        return X, np.digitize(scores, [0, 2, 4, 6])
    values = (scores > 0).astype(np.int64) if task == "labels" else scores
    return X, values[:, 0] if n_outputs == 1 else values


PAPER = Paper(
    __name__,
    "Memory estimates",
    "What `memory_estimate` counts beside how the process grows.",
    (
        Table(
            "estimates",
            "memory beyond X and y",
            (
                Subject("measured", "MiB", None, 1, "growth", "measured"),
                Subject("estimated", "MiB", None, 1, "growth", "estimated"),
                Subject("estimated over measured", "ratio", None, 2, "growth", "ratio"),
            ),
            estimates,
            f"{N_ROWS:,} rows of {N_FEATURES} float32 features, {ROUNDS} rounds, defaults but for "
            "what is named. Measured: the process's memory at its peak in `fit` less what it "
            "holds before, when X, y and rows to evaluate on are there and a small fit has "
            "loaded the library; one process a line.",
            also=tuple(TRAININGS),
        ),
    ),
    golden=("defaults", "linear", "curvature full"),
)
