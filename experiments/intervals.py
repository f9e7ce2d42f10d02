"""Benchmark of predicted intervals and quantiles, with the libraries' defaults.

Measures the coverage of test rows and the pinball loss. Sets and splits are those of `sets`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .harness.context import QUICK_ROUNDS, Context, require_module
from .harness.paper import Figures, Paper, Subject, Table

MOST_ROWS = 6_000  # of a training part, and of a test part
SETS = {"enb": 4, "california_housing": 2, "casp": 2, "bike_hour": 2, "sarcos4449": 2}  # splits
NOMINAL = {"50": (0.25, 0.5, 0.75), "80": (0.1, 0.5, 0.9), "95": (0.025, 0.5, 0.975)}


@dataclass(frozen=True)
class Job:
    """Input of a library.

    Attributes
    ----------
    X, y : (n, F), (n, T)
    levels : tuple of float
        Quantile levels of each target.
    threads : int
    rounds : dict
        `n_estimators`, in quick runs only.
    """

    X: np.ndarray
    y: np.ndarray
    levels: tuple[float, ...]
    threads: int
    rounds: dict[str, int]


Predict = Callable[[np.ndarray], np.ndarray]  # (n, T, levels)


def polyleaf(job: Job, **parameters: Any) -> Predict:
    from polyleaf import PolyleafRegressor

    what = {"objective": "quantile", "quantile_alpha": job.levels, "n_jobs": job.threads}
    model = PolyleafRegressor(**what, **job.rounds, **parameters).fit(job.X, job.y)
    return lambda X: model.predict(X).reshape(len(X), job.y.shape[1], len(job.levels))


def not_calibrated(job: Job) -> Predict:
    return polyleaf(job, calibrate_quantiles=False)


def xgboost(job: Job) -> Predict:
    """Fit one model per target with all levels."""
    from xgboost import XGBRegressor

    what = {"objective": "reg:quantileerror", "quantile_alpha": job.levels, "n_jobs": job.threads}
    models = [XGBRegressor(**what, **job.rounds).fit(job.X, y) for y in job.y.T]
    return lambda X: np.stack([model.predict(X) for model in models], axis=1)


def lightgbm(job: Job) -> Predict:
    """Fit one model per target and level."""
    from lightgbm import LGBMRegressor

    what = {"objective": "quantile", "n_jobs": job.threads, "verbose": -1, **job.rounds}
    models = [[LGBMRegressor(alpha=a, **what).fit(job.X, y) for a in job.levels] for y in job.y.T]
    return lambda X: np.stack(
        [np.column_stack([model.predict(X) for model in of_levels]) for of_levels in models], axis=1
    )


METHODS: dict[str, Callable[[Job], Predict]] = {
    "Polyleaf": polyleaf,
    "not calibrated": not_calibrated,
    "XGBoost": xgboost,
    "LightGBM": lightgbm,
}


def intervals(context: Context, method: str, problem: str) -> Figures:
    """Return `coverage` of the outer levels in % and pinball `loss`, one number per split.

    Both are means over targets; the loss is in units of each target's standard deviation.
    """
    if method in ("XGBoost", "LightGBM"):
        require_module(method.lower())
    name, _, nominal = problem.partition(" ")
    levels = NOMINAL[nominal]
    figures: Figures = {"coverage": [], "loss": []}
    rounds = {"n_estimators": QUICK_ROUNDS} if context.quick else {}
    for X, y, X_test, y_test in _parts(context, name):
        predicted = METHODS[method](Job(X, y, levels, context.threads, rounds))(X_test)
        inside = (predicted.min(axis=2) <= y_test) & (y_test <= predicted.max(axis=2))
        residual = y_test[..., None] - predicted
        loss = np.maximum(np.array(levels) * residual, (np.array(levels) - 1) * residual).mean(
            axis=(0, 2)
        )
        figures["coverage"].append(float(100 * inside.mean()))
        figures["loss"].append(float(np.mean(loss / y_test.std(axis=0))))
    return figures


def _parts(
    context: Context, name: str
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    data, most = context.load(name), context.rows(MOST_ROWS)
    for seed in context.seeds(SETS[name]):
        train, test = data.split(seed, 0.25)
        rng = np.random.default_rng(seed)
        train, test = rng.permutation(train)[:most], rng.permutation(test)[:most]
        yield data.X[train], data.y[train], data.X[test], data.y[test]


_PROTOCOL = (
    f"75 / 25 at random, at most {MOST_ROWS:,} training and test rows. No setting of any library "
    "but the levels: the two that bound the interval and the median. XGBoost trains one model "
    "for each target, LightGBM one for each target and level, Polyleaf one for all."
)


def _table(nominal: str, figure: str, methods: tuple[str, ...]) -> Table:
    is_loss = figure == "loss"
    unit, words = (
        ("pinball", "pinball loss of") if is_loss else (f"% (asked: {nominal})", "coverage of")
    )
    return Table(
        f"{nominal} %, {figure}",
        f"test {words} intervals of {nominal} %",
        tuple(
            Subject(
                name, unit, "lower" if is_loss else None, 4 if is_loss else 1, f"{name} {nominal}",
                figure,
                needs=(name,),
            )
            for name in SETS
        ),
        intervals,
        _PROTOCOL,
        also=methods,
        ours=("Polyleaf",),
        subjects_are="rows",
    )  # fmt: skip


PAPER = Paper(
    __name__,
    "Intervals",
    "What share of test rows lies in intervals of quantiles, and what the quantiles cost.",
    tuple(
        _table(
            nominal, figure, tuple(METHODS) if nominal == "80" else ("Polyleaf", "not calibrated")
        )
        for nominal in ("80", "95", "50")
        for figure in ("coverage", "loss")
    ),
    golden=("quantiles",),
)
