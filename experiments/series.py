"""Forecasts of series by the last value, a linear model, trees, and `init="auto"`.

The protocol of long-term forecasting (Zeng, Chen, Zhang & Xu, "Are Transformers Effective for Time
Series Forecasting?", AAAI 2023): 12 months to train, the last 4 of 20 to test at each hour, values
in standard deviations of the training months. The features are 336 hours; all values are
differences to the last one. Models of all channels learn from their rows together. The power of a
city is forecast a day ahead and trained again every month.

A second table confirms `init="auto"` on series that took part in no choice of its rules, and a
third one measures intervals: adaptive conformal inference (Gibbs & Candès, NeurIPS 2021) with the
errors of the last two weeks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .harness.context import Context
from .harness.paper import Better, Figures, Paper, Subject, Table, make_table
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


# --- series that took part in no choice ---

SIMULATED: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "random walk": lambda e, t: np.cumsum(e),
    "random walk with a drift": lambda e, t: np.cumsum(e + 0.1),
    "autoregression": lambda e, t: _recur(e, lambda a, b: 1.2 * a - 0.3 * b),
    "threshold autoregression": lambda e, t: _recur(e, lambda a, b: -0.5 * a if a > 0 else 0.9 * a),
    "bounded map": lambda e, t: _recur(e / 20, lambda a, b: np.sin(3 * a) + 0.3 * b),
    "seasons and a trend": lambda e, t: t / 100 + 5 * np.sin(t / 24 * 2 * np.pi) + e,
    "seasons that grow": lambda e, t: np.exp(t / 1500) * (3 + np.sin(t / 24 * 2 * np.pi)) + e / 5,
    "seasons of two lengths": lambda e, t: 4 * (t % 24 > 8) * (t // 24 % 7 < 5) + e,
    "steps of the level": lambda e, t: np.cumsum(9 * e * (t % 400 == 0)) + e,
    "noise that changes": lambda e, t: np.cumsum(e * (1 + (t // 500) % 3)),
    "counts": lambda e, t: np.round(np.exp(1 + np.sin(t / 24 * 2 * np.pi) + e / 4)),
    "slow wave": lambda e, t: 20 * np.sin(t / 3000 * 2 * np.pi) + e,
}
N_SIMULATED, PAST, AHEAD = 4_000, 48, 24
# Columns of tables that are series by the hour.
STORED = {"gas_turbine": ("AT", "AP", "AH", "AFDP", "TIT", "TEY", "CO", "NOX"), "bike_hour": ()}
STORED["bike_hour"] = ("temp", "hum", "windspeed", "casual", "registered")
FRESH = (*SIMULATED, *(f"{name}: {c}" for name, columns in STORED.items() for c in columns))


def _recur(e: np.ndarray, follow: Any) -> np.ndarray:
    """Return a series each of whose values follows the last two, plus noise."""
    values = list(e[:2])
    for noise in e[2:]:
        values.append(follow(values[-1], values[-2]) + noise)
    return np.array(values)


def _draw(context: Context, problem: str) -> np.ndarray:
    name, _, column = problem.partition(": ")
    if not column:
        n = context.rows(N_SIMULATED)
        rng = np.random.default_rng(list(SIMULATED).index(name))
        return np.asarray(SIMULATED[name](rng.normal(size=n), np.arange(n)))
    with np.load(find(context.data, name), allow_pickle=False) as file:
        columns = [*file["feature_names"], *file["target_names"]]
        table = np.hstack([file["X"], file["y"]])[: context.rows(2 * N_SIMULATED)]
    return table[:, columns.index(column)].astype(float)


def confirm(context: Context, method: str, problem: str) -> Figures:
    """Return squared errors of the last quarter, in variances, and the ratio of the error of
    `init="auto"` to the better one of trees and a linear model.

    `method`: "levels", or "differences" to the last value.
    """
    windows = sliding_window_view(_draw(context, problem), PAST + AHEAD)[::2]
    if method == "differences":
        windows = windows - windows[:, PAST - 1 : PAST]
    n_test, gap = len(windows) // 4, AHEAD // 2
    X, Y = windows[:, :PAST], windows[:, PAST:]
    train, test = slice(len(X) - n_test - gap), slice(len(X) - n_test, None)
    update = Update(X[train], Y[train], np.arange(len(X))[train], X[test], Y[test])
    figures = {
        name: float(np.mean((_predict(context, name, update) - update.Y_test) ** 2) / Y.var())
        for name in METHODS[1:]
    }
    return figures | {"ratio": figures[METHODS[3]] / min(figures[name] for name in METHODS[1:3])}


# --- intervals ---

COVERED = ("etth1", "etth2", "tetuan", "bike_hour")
COVERAGE, RATE, LEVELS = 0.8, 0.1, (0.1, 0.5, 0.9)
A_DAY, N_RECENT = 24 // EVERY, 14 * 24 // EVERY  # forecasts
MODELS = ("quantiles", "normal")
CALIBRATIONS = ("", ", last two weeks", ", adaptive")
INTERVALS = tuple(model + calibration for model in MODELS for calibration in CALIBRATIONS)


def _load_series(context: Context, name: str) -> tuple[np.ndarray, int]:
    """Return a series by the hour, and the number of its first values, which are trained on."""
    with np.load(find(context.data, name), allow_pickle=False) as file:
        if name == "bike_hour":
            return file["y"].sum(axis=1).astype(float), 12 * MONTH
        values = file["values"].astype(float)
        columns = values[:, -3:].sum(axis=1) if name == "tetuan" else values[:, -1]
        return columns, int(file["split"][0])


def cover(context: Context, method: str, problem: str) -> Figures:
    """Return the coverage of each quarter of the test rows in percent, and the interval score
    (Winkler, JASA 1972), in deviations of the training values.

    The model is not trained again. The test begins two weeks after its last row.
    """
    values, start = _load_series(context, problem)
    values = (values - values[:start].mean()) / values[:start].std()
    origins = np.arange(LOOK_BACK, len(values) - AHEAD + 1, EVERY)
    X, Y = _make_rows(values, origins, AHEAD)
    is_known = origins + AHEAD <= start
    model = _make_interval_model(context, method)
    model.fit(X[is_known], Y[is_known], time=origins[is_known])
    X, Y = X[~is_known], Y[~is_known]
    bounds, first = np.empty((*Y.shape, 2)), N_RECENT + A_DAY
    asked, rate = COVERAGE, RATE if method.endswith("adaptive") else 0.0
    if method in MODELS:
        bounds[first:] = _predict_bounds(model, X[first:])
    else:
        for day in range(first, len(X), A_DAY):
            if day >= first + 2 * A_DAY:  # the hours of the day before the last one are known
                known = slice(day - 2 * A_DAY, day - A_DAY)
                asked += rate * (COVERAGE - float(_is_inside(bounds[known], Y[known]).mean()))
            recent = slice(day - A_DAY - N_RECENT, day - A_DAY)
            level = float(np.clip(asked, 0.01, N_RECENT / (N_RECENT + 1)))
            model.calibrate(X[recent], Y[recent], coverage=level)
            bounds[day : day + A_DAY] = model.predict_interval(X[day : day + A_DAY])
    low, high, y = bounds[first:, :, 0], bounds[first:, :, 1], Y[first:]
    inside = _is_inside(bounds[first:], y)
    beyond = np.maximum(low - y, 0) + np.maximum(y - high, 0)
    score = (high - low) + 2 / (1 - COVERAGE) * beyond
    quarters = [float(100 * part.mean()) for part in np.array_split(inside, 4)]
    return {f"quarter {i + 1}": share for i, share in enumerate(quarters)} | {
        "score": float(score.mean())
    }


def _is_inside(bounds: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (bounds[..., 0] <= y) & (y <= bounds[..., 1])


def _make_interval_model(context: Context, method: str) -> Any:
    from polyleaf import PolyleafRegressor

    own: dict[str, Any] = {"objective": "normal"}
    if method.startswith("quantiles"):
        own = {"objective": "quantile", "quantile_alpha": LEVELS}
    return PolyleafRegressor(
        init="auto",
        n_estimators=context.rounds(2) if context.quick else None,
        quality="fast",
        random_state=0,
        n_jobs=context.threads,
        **own,
    )


def _predict_bounds(model: Any, X: np.ndarray) -> np.ndarray:
    if model.objective == "normal":
        predicted = model.predict_dist(X)
        return np.stack([predicted.ppf(LEVELS[0]), predicted.ppf(LEVELS[2])], axis=-1)
    quantiles = model.predict(X).reshape(len(X), AHEAD, len(LEVELS))
    return np.asarray(quantiles[..., ::2])


PROBLEMS = tuple(f"{name}, {h}" for name in ("etth1", "etth2") for h in (24, 96, 336))
PROBLEMS += tuple(f"{name}, {h}, all channels" for name in ("etth1", "etth2") for h in (96, 336))
PROBLEMS += ("tetuan, 24",)


def _make_subjects(figure: str, unit: str, digits: int) -> tuple[Subject, ...]:
    better: Better = None if figure == "seconds" else "lower"
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
    (
        *(
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
        Table(
            "fresh",
            'squared error of init="auto" over the better one of trees and a linear model',
            tuple(
                Subject(name, "", None, 3, name, "ratio", (name.partition(":")[0],) * (":" in name))
                for name in FRESH
            ),
            confirm,
            f"{AHEAD} steps from {PAST}, the last quarter of the rows is the test; values, or "
            "their differences to the last one. Simulated series, and columns of hourly tables, "
            'none of which took part in a choice of the rules of init="auto".',
            also=("levels", "differences"),
        ),
        Table(
            "coverage",
            f"coverage of {COVERAGE:.0%} intervals, by quarter of the test rows, and their scores",
            tuple(
                Subject(f"{name}, {figure}", unit, None, digits, name, figure, (name,))
                for name in COVERED
                for figure, unit, digits in (
                    *((f"quarter {i}", "% (asked: 80)", 1) for i in range(1, 5)),
                    ("score", "interval score", 3),
                )
            ),
            cover,
            f"{AHEAD} hours from {LOOK_BACK}, in differences to the last one, every {EVERY} hours; "
            "oil temperatures (etth1, etth2), the power of a city (tetuan), rented bikes "
            "(bike_hour). Trained once, on the first 12 or 4 months. Intervals of the fit, "
            "calibrated every day on the last two weeks, and for the coverage that changes by "
            f"{RATE} of what a day covered too much. Score: width plus {2 / (1 - COVERAGE):.0f} "
            "times the distance of values outside, in deviations.",
            also=INTERVALS,
        ),
    ),
    golden=("defaults",),
)
