"""Forecasts of series by the last value, a linear model, trees, and `init="auto"`.

The protocol of long-term forecasting (Zeng, Chen, Zhang & Xu, "Are Transformers Effective for Time
Series Forecasting?", AAAI 2023): 12 months to train, the last 4 of 20 to test at each hour, values
in standard deviations of the training months. The features are 336 hours; all values are
differences to the last one. Models of all channels learn from their rows together. The power of a
city is forecast a day ahead and trained again every month.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .harness.context import Context
from .harness.paper import Figures, Paper, Subject, make_table
from .sets import find

LOOK_BACK, MONTH = 336, 720  # hours
EVERY = 4  # hours between the training rows of all channels
METHODS = ("last value", "linear", "trees", 'init="auto"')
DLINEAR = {
    "etth1, 96": (0.056, 0.180),
    "etth1, 336": (0.098, 0.244),
    "etth2, 96": (0.131, 0.279),
    "etth2, 336": (0.209, 0.367),
}
"""Published squared and absolute errors of DLinear, of one channel."""


class Update(NamedTuple):
    """Rows to train on, in the order of time, and rows to predict before they are known."""

    X: np.ndarray
    Y: np.ndarray
    time: np.ndarray
    X_test: np.ndarray
    Y_test: np.ndarray


def iter_updates(context: Context, problem: str) -> Iterator[Update]:
    """Yield the trainings of a problem: "etth1, 96", "etth1, 96, all channels" or "tetuan, 24"."""
    name, horizon, *channels = problem.split(", ")
    with np.load(find(context.data, name), allow_pickle=False) as file:
        values, start = file["values"].astype(float), int(file["split"][0])
    if name == "tetuan":
        yield from _iter_months(values, start, int(horizon))
        return
    values = (values - values[:start].mean(axis=0)) / values[:start].std(axis=0)
    columns = range(values.shape[1]) if channels else [-1]
    first, last = 16 * MONTH, 20 * MONTH - int(horizon) + 1
    origins = np.arange(LOOK_BACK, start - int(horizon) + 1, EVERY if channels else 1)
    parts = [_make_rows(values[:, c], origins, int(horizon)) for c in columns]
    tests = [_make_rows(values[:, c], np.arange(first, last), int(horizon)) for c in columns]
    X, Y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    X_test, Y_test = (np.concatenate(arrays) for arrays in zip(*tests, strict=True))
    yield Update(X, Y, np.tile(origins, len(columns)), X_test, Y_test)


def _make_rows(values: np.ndarray, origins: np.ndarray, horizon: int) -> tuple[Any, Any]:
    windows = sliding_window_view(values, LOOK_BACK + horizon)[origins - LOOK_BACK]
    differences = windows - windows[:, LOOK_BACK - 1 : LOOK_BACK]
    return differences[:, :LOOK_BACK], differences[:, LOOK_BACK:]


def _iter_months(values: np.ndarray, start: int, horizon: int) -> Iterator[Update]:
    """Yield a training for each month after the first ones: the last day of three zones, the day of
    the last week that is forecast, the weather, and the hour and the day of the week."""
    week = 168
    scaled = values / values[:start].std(axis=0)
    power, weather, origins = scaled[:, -3:], scaled[:, :-3], np.arange(week, len(values) - horizon)
    last = power[origins - 1]
    windows = sliding_window_view(power, horizon, axis=0).transpose(0, 2, 1)
    parts = [windows[origins - lag] - last[:, None] for lag in (horizon, week, 0)]
    day, week_ago, Y = (part.reshape(len(origins), -1) for part in parts)
    hours, days = np.eye(24)[origins % 24], np.eye(7)[origins // 24 % 7]
    X = np.hstack([day, week_ago, last, weather[origins - 1], hours, days])
    for begin in range(start - week, len(origins) - MONTH // 2, MONTH):
        rows, test = np.arange(begin - horizon), slice(begin, begin + MONTH)
        yield Update(X[rows], Y[rows], rows, X[test], Y[test])


def forecast(context: Context, method: str, problem: str) -> Figures:
    """Return the squared and the absolute error, and the processor seconds of training."""
    squares, errors, seconds = [], [], 0.0
    for update in iter_updates(context, problem):
        before = time.process_time()
        predicted = _predict(context, method, update)
        seconds += time.process_time() - before
        residual = predicted - update.Y_test
        squares.append(float(np.mean(residual**2)))
        errors.append(float(np.mean(np.abs(residual))))
        if context.quick:
            break
    return {"mse": float(np.mean(squares)), "mae": float(np.mean(errors)), "seconds": seconds}


def _predict(context: Context, method: str, update: Update) -> Any:
    if method == "last value":
        return 0.0
    if method == "linear":
        from sklearn.linear_model import RidgeCV
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        line = make_pipeline(StandardScaler(), RidgeCV(np.logspace(0, 4, 9)))
        return line.fit(update.X, update.Y).predict(update.X_test)
    from polyleaf import PolyleafRegressor

    model = PolyleafRegressor(
        init=None if method == "trees" else "auto",
        n_estimators=context.rounds(2) if context.quick else None,
        quality="fast",
        random_state=0,
        n_jobs=context.threads,
    )
    return model.fit(update.X, update.Y, time=update.time).predict(update.X_test)


PROBLEMS = tuple(f"{name}, {h}" for name in ("etth1", "etth2") for h in (24, 96, 336))
PROBLEMS += tuple(f"{name}, {h}, all channels" for name in ("etth1", "etth2") for h in (96, 336))
PROBLEMS += ("tetuan, 24",)


def _make_subjects(figure: str, unit: str, digits: int) -> tuple[Subject, ...]:
    better = None if figure == "seconds" else "lower"
    return tuple(
        Subject(problem, unit, better, digits, problem, figure, (problem.partition(",")[0],))
        for problem in PROBLEMS
    )


_PROTOCOL = (
    "Oil temperature (etth1 and etth2), or all seven channels, from every fourth hour. Published "
    "errors of DLinear: "
    + "; ".join(f"{problem}: {mse} and {mae}" for problem, (mse, mae) in DLINEAR.items())
    + ". tetuan: power of three zones, in deviations, mean of the months. Hyperparameters are the "
    'defaults, with quality="fast"; the penalty of the linear model is chosen by leave-one-out.'
)
PAPER = Paper(
    __name__,
    "Series",
    "Forecasts by trees, by a linear model, and by the better of them or both.",
    tuple(
        make_table(
            figure,
            title,
            _make_subjects(figure, unit, digits),
            forecast,
            _PROTOCOL,
            METHODS,
            METHODS[2:],
        )
        for figure, title, unit, digits in (
            ("mse", "mean squared error", "", 4),
            ("mae", "mean absolute error", "", 4),
            ("seconds", "processor time of training and prediction", "s", 1),
        )
    ),
    golden=("defaults",),
)
