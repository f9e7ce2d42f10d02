"""Benchmark of predicted intervals and quantiles, with the libraries' defaults.

Measures the coverage of test rows and the pinball loss. Sets and splits are those of `sets`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from .harness.context import QUICK_ROUNDS, Context
from .harness.paper import Better, Figures, Paper, Subject, Table, make_table
from .libraries import Settings, train

MOST_ROWS = 6_000  # of a training part, and of a test part
SETS = {"enb": 4, "california_housing": 2, "casp": 2, "bike_hour": 2, "sarcos4449": 2}  # splits
LEVELS = (0.1, 0.5, 0.9)


METHODS = ("Polyleaf", "not calibrated", "XGBoost", "LightGBM")


def predict(
    method: str, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, settings: Settings
) -> np.ndarray:
    """Return the quantiles of `LEVELS`: (n, targets, levels).

    XGBoost trains a model for each target, LightGBM one for each target and level, Polyleaf one.
    """

    def quantiles(library: str, y: np.ndarray, **own: Any) -> np.ndarray:
        chosen = replace(settings, own=own)
        return train(library, "regression", {"X": X, "y": y}, chosen).predict(X_test)

    if method == "XGBoost":
        own = {"objective": "reg:quantileerror", "quantile_alpha": LEVELS}
        return np.stack([quantiles("xgboost", column, **own) for column in y.T], axis=1)
    if method == "LightGBM":
        each = [
            [quantiles("lightgbm", column, objective="quantile", alpha=a) for a in LEVELS]
            for column in y.T
        ]
        return np.array(each).transpose(2, 0, 1)
    own = {"objective": "quantile", "quantile_alpha": LEVELS}
    own |= {"calibrate_quantiles": False} if method == "not calibrated" else {}
    return quantiles("polyleaf", y, **own).reshape(len(X_test), y.shape[1], len(LEVELS))


def intervals(context: Context, method: str, problem: str) -> Figures:
    """Return `coverage` of the outer levels in % and pinball `loss`, one number per split.

    Both are means over targets; the loss is in units of each target's standard deviation.
    """
    figures: Figures = {"coverage": [], "loss": []}
    rounds = QUICK_ROUNDS if context.quick else None
    settings = Settings(rounds, learning_rate=None, max_bins=None, threads=context.threads)
    for X, y, X_test, y_test in _parts(context, problem.partition(" ")[0]):
        predicted = predict(method, X, y, X_test, settings)
        inside = (predicted.min(axis=2) <= y_test) & (y_test <= predicted.max(axis=2))
        residual = y_test[..., None] - predicted
        levels = np.array(LEVELS)
        loss = np.maximum(levels * residual, (levels - 1) * residual).mean(axis=(0, 2))
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


def _table(figure: str, words: str, unit: str, better: Better, digits: int) -> Table:
    subjects = (Subject(n, unit, better, digits, f"{n} 80", figure, (n,)) for n in SETS)
    title = f"test {words} intervals of 80 %"
    return make_table(f"80 %, {figure}", title, subjects, intervals, _PROTOCOL, METHODS)


PAPER = Paper(
    __name__,
    "Intervals",
    "What share of test rows lies in intervals of quantiles, and what the quantiles cost.",
    (
        _table("coverage", "coverage of", "% (asked: 80)", None, 1),
        _table("loss", "pinball loss of", "pinball", "lower", 4),
    ),
    golden=("quantiles",),
)
