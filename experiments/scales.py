"""Benchmark of targets with different scales in one model, with the libraries' defaults.

Measures R2 of each target on test rows. The calls of the libraries are defined in `defaults`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np

from . import defaults
from .defaults import Deadline, Job, Predict
from .harness.context import Context, require_module
from .harness.paper import Figures, Paper, Subject, Table

LIMIT = 40.0  # limit of a fit in seconds of processor time
MOST_ROWS = 4_000  # of a training part, and of a test part
SETS = {
    "rf1": 2,
    "rf2": 1,
    "enb": 4,
    "sf1": 6,
    "sf2": 6,
    "wq": 4,
    "sarcos4449": 2,
    "scpf": 6,
}  # number of splits
RATIOS = {"1 : 1": 1.0, "10 : 1": 10.0, "1e3 : 1": 1e3, "1e6 : 1": 1e6}
PAIRS = 4  # draws of each
PAIR_ROWS = 2_000

SETTINGS = {
    "as they are": {"normalize_targets": False},
    "equal scales": {"normalize_targets": True},
    "a tree per output": {"multi_strategy": "one_output_per_tree"},
}
METHODS: dict[str, Callable[[Job], Predict]] = {
    "Polyleaf": defaults.polyleaf,
    **{name: functools.partial(defaults.polyleaf, **what) for name, what in SETTINGS.items()},
    "XGBoost": defaults.xgboost,
    "XGBoost, vector leaves": functools.partial(
        defaults.xgboost, multi_strategy="multi_output_tree"
    ),
    "LightGBM": defaults.lightgbm,
}


def pair(kind: str, ratio: float, seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw features and two targets with a fifth of noise, the first `ratio` times as large.

    "shared" targets have common features and a common term; "apart" targets have none.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 10)).astype(np.float32)
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] ** 2
    g = (
        np.cos(2 * X[:, 0]) + X[:, 1] * X[:, 2] - X[:, 4]
        if kind == "shared"
        else np.sin(2 * X[:, 5]) + X[:, 6] * X[:, 7] + 0.5 * X[:, 8] ** 2
    )
    Y = np.column_stack([f / f.std(), g / g.std()]) + 0.2 * rng.standard_normal((n, 2))
    return X, Y * [ratio, 1.0]


def r2_of_targets(context: Context, method: str, problem: str) -> Figures:
    """Return `mean` and `least` over targets, and `0`, `1`, ... of each: one number per split."""
    library = method.partition(",")[0].lower()
    if library in ("xgboost", "lightgbm"):
        require_module(library)
    found = []
    for X, y, X_test, y_test in _parts(context, problem):
        predict = METHODS[method](Job("regression", X, y, context.threads, Deadline(LIMIT)))
        error = np.mean((np.asarray(predict(X_test), np.float64) - y_test) ** 2, axis=0)
        spread = np.var(y_test, axis=0, dtype=np.float64)
        found.append(
            1 - np.divide(error, spread, out=np.full(len(spread), np.nan), where=spread > 0)
        )
    each = np.array(found)
    figures = {str(k): column.tolist() for k, column in enumerate(each.T)}
    return {
        "mean": np.nanmean(each, axis=1).tolist(),
        "least": np.nanmin(each, axis=1).tolist(),
        **{k: values for k, values in figures.items() if np.isfinite(values).all()},
    }


def _parts(
    context: Context, problem: str
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    if problem in SETS:
        data, most = context.load(problem), context.rows(MOST_ROWS)
        for seed in context.seeds(SETS[problem]):
            train, test = data.split(seed)
            rng = np.random.default_rng(seed)
            train, test = rng.permutation(train)[:most], rng.permutation(test)[:most]
            yield data.X[train], data.y[train], data.X[test], data.y[test]
        return
    kind, _, ratio = problem.partition(" ")
    n = context.rows(PAIR_ROWS)
    for seed in context.seeds(PAIRS):
        X, Y = pair(kind, RATIOS[ratio], seed, 2 * n)
        yield X[:n], Y[:n], X[n:], Y[n:]


_PROTOCOL = (
    'No setting of any library but what a name says; "Polyleaf" is `normalize_targets="auto"`. At '
    "most "
    f"{MOST_ROWS:,} training and test rows, 80 / 20 at random; made pairs {PAIR_ROWS:,} and as "
    f"many, {PAIRS} "
    "draws. LightGBM trains one model for each target, XGBoost as it comes one tree for each."
)


def _pairs(kind: str) -> Table:
    return _table(
        f"Pairs, {kind}",
        f"two targets that {'share features' if kind == 'shared' else 'have nothing in common'}",
        tuple(
            Subject(f"{ratio}, {which}", "R2", "higher", 3, f"{kind} {ratio}", str(k))
            for ratio in RATIOS
            for k, which in enumerate(("first", "second"))
        ),
    )


def _table(name: str, title: str, subjects: tuple[Subject, ...]) -> Table:
    return Table(
        name,
        f"R2 of {title}",
        subjects,
        r2_of_targets,
        _PROTOCOL,
        also=tuple(METHODS),
        ours=("Polyleaf",),
        subjects_are="rows",
    )


PAPER = Paper(
    __name__,
    "Targets on different scales",
    "What each target gets of a model of all of them.",
    (
        _pairs("apart"),
        _pairs("shared"),
        *(
            _table(
                f"Sets, {figure}",
                f"targets of real sets, {words}",
                tuple(Subject(n, "R2", "higher", 4, figure=figure, needs=(n,)) for n in SETS),
            )
            for figure, words in (("mean", "their mean"), ("least", "the worst one"))
        ),
    ),
    golden=("defaults", "normalized targets"),
)
