"""Refit, retraining and no update where the data drift, compared with LightGBM.

A model is trained on the first year. Each further month is predicted before its rows are used.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from .harness.context import Context
from .harness.paper import Figures, Paper, Subject, Table
from .libraries import Library, Settings, train
from .sets import find

ROUNDS, RATE, LEAVES = 300, 0.05, 31
HORIZONS = (1, 6, 12, 24)  # hours ahead
MONTH = 720  # hours
DECAY = 0.9  # of refits on a month, the default of LightGBM
MORE_ROUNDS = 20  # on a month
PROBLEMS = ("bike_hour", "etth1", "etth2", "tetuan")
LINEAR = 'Polyleaf, init="auto"'


@dataclass(frozen=True)
class Rows:
    """Rows in the order of time; `start` and `months` are the first rows after the first year."""

    X: np.ndarray
    y: np.ndarray
    start: int
    months: tuple[int, ...]


def load_rows(context: Context, name: str) -> Rows:
    if name == "bike_hour":
        data = context.load(name)
        month = data.X[:, 2] + 12 * data.X[:, 1]
        first = np.flatnonzero(np.diff(month)) + 1
        start = int(np.flatnonzero(data.X[:, 1])[0])
        later = (*(int(i) for i in first if i > start), len(month))
        return Rows(np.delete(data.X, 1, axis=1), data.y, start, later)
    with np.load(find(context.data, name), allow_pickle=False) as file:
        values, hour = file["values"].astype(np.float32), np.arange(len(file["values"]))
        start = int(file["split"][0])
    last, ahead = 24, max(HORIZONS)
    rows = np.arange(last, len(values) - ahead)
    lags = [values[rows - lag, -1] for lag in range(last)]
    X = np.column_stack([*lags, values[rows, :-1], values[rows - 23, :-1], hour[rows] % 24])
    y = np.column_stack([values[rows + h, -1] - values[rows, -1] for h in HORIZONS])
    later = tuple(range(start - last + MONTH, len(rows), MONTH))
    return Rows(X.astype(np.float32), y.astype(np.float32), start - last, later)


# --- updates ---


def fit(library: str, X: np.ndarray, y: np.ndarray, context: Context) -> Any:
    rounds, threads = context.rounds(ROUNDS), context.threads
    if library == LINEAR:
        from polyleaf import PolyleafRegressor

        settings = {"n_jobs": threads, "quality": "fast", "validation_order": "time"}
        return PolyleafRegressor(init="auto", **settings).fit(X, y)
    # Both libraries have 31 leaves by default.
    settings = Settings(rounds, learning_rate=RATE, max_bins=None, threads=threads)
    return train(library.lower(), "regression", {"X": X, "y": y}, settings)


def refit(library: Any, X: np.ndarray, y: np.ndarray, decay: float) -> None:
    if getattr(library, "module", "") == "lightgbm":
        models = zip(library.model, y.T, strict=True)
        library.model = [model.refit(X, target, decay_rate=decay) for model, target in models]
    else:
        getattr(library, "model", library).refit(X, y, decay_rate=decay)


def extend(library: Library, X: np.ndarray, y: np.ndarray, n_rounds: int) -> None:
    """Train more rounds."""
    if library.module == "lightgbm":
        import lightgbm

        models = zip(library.model, y.T, strict=True)
        parameters = {"learning_rate": RATE, "num_leaves": LEAVES, "verbose": -1, "num_threads": 1}
        library.model = [
            lightgbm.train(parameters, lightgbm.Dataset(X, target), n_rounds, init_model=model)
            for model, target in models
        ]
        return
    model = clone(library.model).set_params(n_estimators=n_rounds)
    library.model = model.fit(X, y, init_model=library.model)


MONTHS = ("the last month", "the last 3 months", "the last year", "all rows")
REFITS = tuple(f"refit on {rows}" for rows in MONTHS[1:])
REFITS += tuple(f"refit on the last month, decay {decay}" for decay in (0.5, DECAY))
RETRAININGS = tuple(f"retrain on {rows}" for rows in MONTHS[1:])
EXTENSION = f"{MORE_ROUNDS} more rounds on the last month"
UPDATES = ("no update", *REFITS, EXTENSION, *RETRAININGS)
OF_LINEAR = ("no update", "refit on the last 3 months", *RETRAININGS[1:])


def drift(context: Context, method: str, problem: str) -> Figures:
    """Return `loss`, the RMSE of each later month in units of the first year's standard
    deviation, and `seconds` of processor time of all updates."""
    library, _, update = method.partition(": ")
    kind, _, what = update.replace("retrain", "fit").partition(" on ")
    what, _, decay = what.partition(", decay ")
    rows = load_rows(context, problem)
    X, y, scale = rows.X, rows.y, rows.y[: rows.start].std(axis=0)
    model = fit(library, X[: rows.start], y[: rows.start], context)
    losses, seconds, begin = [], 0.0, rows.start
    for end in rows.months[: 2 if context.quick else None]:
        if begin > rows.start:
            sizes = dict(zip(MONTHS, (MONTH, 3 * MONTH, rows.start, begin), strict=True))
            recent = slice(begin - sizes.get(what, begin), begin)
            before = time.process_time()
            if kind == "refit":
                refit(model, X[recent], y[recent], float(decay or 0))
            elif kind == "fit":
                model = fit(library, X[recent], y[recent], context)
            elif kind != "no update":
                extend(model, X[recent], y[recent], MORE_ROUNDS)
            seconds += time.process_time() - before
        residual = (model.predict(X[begin:end]) - y[begin:end]) / scale
        losses.append(float(np.sqrt(np.mean(residual**2, axis=0)).mean()))
        begin = end
    return {"loss": float(np.mean(losses)), "months": losses, "seconds": seconds}


def _subject(name: str, figure: str) -> Subject:
    title = f"{name}, {figure}"
    unit, digits = ("deviations", 3) if figure == "loss" else ("s", 1)
    better = "lower" if figure == "loss" else None
    return Subject(title, unit, better, digits, name, figure, needs=(name,))


def _methods(library: str, updates: tuple[str, ...] = UPDATES) -> tuple[str, ...]:
    return tuple(f"{library}: {update}" for update in updates)


PAPER = Paper(
    __name__,
    "Drift",
    "What refitting the leaves every month gains over no update, and costs beside a new training.",
    (
        Table(
            "updates",
            "RMSE over twelve months after the first year, and processor seconds of all updates",
            tuple(_subject(name, f) for name in PROBLEMS for f in ("loss", "seconds")),
            drift,
            f"{ROUNDS} rounds of {LEAVES} leaves at a rate of {RATE}, no other setting. Each "
            "month is predicted by the model of the months before it; the loss is the mean over "
            "months and targets, in standard deviations of the first year. bike_hour: two "
            "targets, without the year as a feature. etth1 and etth2: oil temperature, and "
            "tetuan: power of a zone, 1, 6, 12 and 24 hours ahead, as a difference to now. "
            "LightGBM trains one model for each target. With a linear model the number of rounds "
            "is found on held-out rows.",
            ours=_methods("Polyleaf"),
            also=_methods("Polyleaf") + _methods(LINEAR, OF_LINEAR) + _methods("LightGBM"),
        ),
    ),
    golden=("defaults",),
)
