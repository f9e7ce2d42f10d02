"""Groups of outputs that share trees: found from the data, beside one group and a tree per output.

M4 hourly is measured by its official test: windows of 168 hours, divided by their mean, forecast
48 hours. On the other sets all methods stop early on the same held-out rows, and the loss is a mean
over outputs: the RMSE divided by the standard deviation in training, or the log loss of labels.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from polyleaf import PolyleafRegressor

from .harness.context import Context, Unavailable, require_module
from .harness.paper import Figures, Paper, Subject, make_table
from .libraries import LIBRARIES, Settings

MOST_ROWS, SEEDS = 3_000, 5
MOST_SECONDS = {"XGBoost vector leaves": 10}  # of a method on a set; then no further seed
# The method was chosen on the first sets, and only measured on the others.
CHOSEN_ON = ("atp1d", "enb", "oes10", "scpf", "wq", "rf1", "sarcos4449", "student_por")
CHOSEN_ON += ("emotions", "yeast_ml", "birds")
CONFIRMED_ON = ("edm", "osales", "sf1", "sf2", "slump", "gas_turbine", "parkinsons_updrs")
CONFIRMED_ON += ("bike_hour", "rf2", "scene", "enron", "medical", "ohsumed", "imdb")
CONFIRMED_ON += ("cal500", "rcv1_subset1", "corel5k", "delicious")
MANY_LABELS = 100  # above: fewer rounds, one seed, no LightGBM
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "one group": ("polyleaf", {}),
    "a tree per output": ("polyleaf", {"multi_strategy": "one_output_per_tree"}),
    "auto": ("polyleaf", {"output_groups": "auto"}),
    "XGBoost vector leaves": ("xgboost-multi-output-tree", {}),
    "LightGBM per output": ("lightgbm", {}),
}
# On ETTh1 also the groups that suit hours: 3 hours of the day, on all days.
HOURLY = {**METHODS, "8 groups of 3 hours": ("polyleaf", {"output_groups": "hours"})}
LOADS = ("horizon 24", "horizon 24 level", "horizon 96", "horizon 96 level")
HORIZON, LAGS = 48, 168


def _same_hours(n: int) -> list[list[int]]:
    """Return groups of `n` hours of the day, each on both days."""
    return [[h + d for d in (0, 24) for h in range(a, a + n)] for a in range(0, 24, n)]


_ABSOLUTE = {"objective": "absolute_error", "learning_rate": 0.1, "max_bins": 63}
_EACH, _THREE = {"multi_strategy": "one_output_per_tree"}, {"output_groups": _same_hours(3)}
_CHANGE = {"objective": "absolute_error", **_THREE}
M4: dict[str, dict[str, Any]] = {
    "one group": {"n_estimators": 300},
    "a tree per output": {"n_estimators": 150, **_EACH},
    "auto": {"n_estimators": 300, "output_groups": "auto"},
    "groups of 3 hours on both days": {"n_estimators": 300, **_THREE},
    "the same, absolute error of the change since yesterday": {"n_estimators": 300, **_CHANGE},
    # Chosen on the 48 hours before the test.
    "groups of 2 hours on both days, absolute error": _ABSOLUTE
    | {"n_estimators": 150, "output_groups": _same_hours(2)},
    "a tree per output, absolute error": {**_ABSOLUTE, "n_estimators": 100, **_EACH},
}
Parts = dict[str, np.ndarray]


def _fit(context: Context, method: str, kind: str, parts: Parts, seed: int) -> tuple[Any, float]:
    """Return the trained library, and its seconds of processor time."""
    name, own = HOURLY[method]
    require_module(LIBRARIES[name].module)
    n_outputs = parts["y"].shape[1]
    is_wide = n_outputs > MANY_LABELS
    if is_wide and name == "lightgbm":
        raise Unavailable(f"more than {MANY_LABELS} models")
    if own.get("output_groups") == "hours":
        hours = np.arange(n_outputs) % 24 // 3
        own = {"output_groups": [np.flatnonzero(hours == h).tolist() for h in range(8)]}
    if name == "polyleaf":
        own = own | {"random_state": seed}
    shape = {"max_leaves": 31, "reg_lambda": 1.0, "min_rows": 5, "patience": 20}
    rounds = context.rounds(100 if is_wide else 300)
    library = LIBRARIES[name](kind, Settings(rounds, **shape, threads=context.threads, own=own))
    began = time.process_time()
    library.fit(parts)
    return library, time.process_time() - began


def compare_methods(context: Context, method: str, problem: str) -> Figures:
    """Return `loss` and `seconds` of each seed."""
    data, found = context.load(problem), []
    is_labels = data.task == "multilabel"
    n_seeds = 1 if data.y.shape[1] > MANY_LABELS else SEEDS
    for seed in context.seeds(n_seeds):
        n_rows = context.rows(MOST_ROWS * 5 // 4)
        rows = np.random.default_rng(seed).permutation(len(data.y))[:n_rows]
        test, train = np.split(rows, [len(rows) // 5])
        val, fitted = np.split(train, [len(train) // 5])
        y = data.y
        if is_labels:
            y = y[:, (y[fitted].sum(axis=0) >= 5) & (y[test].sum(axis=0) >= 1)]
        else:
            y = (y - y[train].mean(axis=0)) / np.maximum(y[train].std(axis=0), 1e-9)
        parts = {"X": data.X[fitted], "y": y[fitted], "X_val": data.X[val], "y_val": y[val]}
        kind = "multilabel" if is_labels else "regression"
        library, seconds = _fit(context, method, kind, parts, seed)
        predicted = library.predict(data.X[test])
        if is_labels:
            p = np.clip(predicted, 1e-6, 1 - 1e-6)
            loss = -np.where(y[test] == 1, np.log(p), np.log1p(-p)).mean()
        else:
            loss = np.sqrt(((predicted - y[test]) ** 2).mean(axis=0)).mean()
        found.append((float(loss), seconds))
        if sum(seconds for _, seconds in found) > MOST_SECONDS.get(method, 60):
            break
    losses, times = zip(*found, strict=True)
    return {"loss": list(losses), "seconds": list(times)}


def forecast_load(context: Context, method: str, problem: str) -> Figures:
    """Return the `loss`, a mean squared error, and `seconds` on the load of ETTh1."""
    horizon, has_level = int(problem.split()[1]), "level" in problem
    file = np.load(context.data / "etth1.npz")
    ends = file["split"]
    values = file["values"][: ends[-1], 0].astype(float)
    values = (values - values[: ends[0]].mean()) / values[: ends[0]].std()
    windows = np.lib.stride_tricks.sliding_window_view(values, LAGS + horizon)[::3]
    X, Y = windows[:, :LAGS].astype(np.float32), windows[:, LAGS:]
    level = X[:, -24:].mean(axis=1, keepdims=True) * has_level
    first = np.arange(len(X)) * 3 + LAGS  # of the hours to forecast
    part = np.searchsorted(ends[:2], first, side="right")
    is_whole = np.searchsorted(ends[:2], first + horizon - 1, side="right") == part
    train, val, test = (np.flatnonzero((part == i) & is_whole) for i in range(3))
    train = train[-context.rows(len(train)) :]
    change = Y - level
    parts = {"X": X[train], "y": change[train], "X_val": X[val], "y_val": change[val]}
    library, seconds = _fit(context, method, "regression", parts, 0)
    loss = ((library.predict(X[test]) - change[test]) ** 2).mean()
    return {"loss": float(loss), "seconds": seconds}


def forecast_hours(context: Context, method: str, problem: str) -> Figures:
    """Return `sMAPE`, `MASE` and `seconds` on M4 hourly."""
    file = np.load(context.data / "m4_hourly.npz")
    series = np.split(file["values"].astype(float), file["indptr"][1:-1])
    series, test = (all_of[:: 40 if context.quick else 1] for all_of in (series, file["test"]))
    steps = (range(len(v) - HORIZON, LAGS - 1, -24) for v in series)
    windows = [v[e - LAGS : e + HORIZON] for v, at in zip(series, steps, strict=True) for e in at]
    ends = np.array([v[-LAGS:] for v in series])

    def divide(rows: np.ndarray) -> np.ndarray:
        mean = rows[:, :LAGS].mean(axis=1, keepdims=True)
        return np.where(mean > 0, mean, 1.0)

    rows = np.array(windows)
    unit, last_unit = divide(rows), divide(ends)
    X, Y = rows[:, :LAGS] / unit, rows[:, LAGS:] / unit
    X_test = ends / last_unit
    how = {"learning_rate": 0.05, "max_leaves": 31, "min_child_samples": 20} | M4[method]
    how["n_estimators"] = context.rounds(how["n_estimators"])
    changes = "change" in method
    offset, offset_test = ((np.tile(part[:, -24:], 2) if changes else None) for part in (X, X_test))
    model = PolyleafRegressor(n_jobs=context.threads, random_state=0, **how)
    began = time.process_time()
    model.fit(X.astype(np.float32), Y, offset=offset)
    seconds = time.process_time() - began
    p = np.maximum(model.predict(X_test.astype(np.float32), offset=offset_test) * last_unit, 0.0)
    scale = np.array([np.abs(v[24:] - v[:-24]).mean() for v in series])[:, None]
    return {
        "sMAPE": float((200 * np.abs(p - test) / (np.abs(p) + np.abs(test))).mean()),
        "MASE": float((np.abs(p - test) / scale).mean()),
        "seconds": seconds,
    }


PROTOCOL = (
    f"At most {MOST_ROWS:,} training rows, a fifth for the test; {SEEDS} seeds; targets are "
    "standardised. Learning rate 0.1, 31 leaves of at least 5 rows, lambda 1, at most 300 rounds, "
    "stopped 20 rounds after the best on the same fifth of the training rows. Labels have at least "
    "5 rows in training. Seconds are processor time of one thread, with the search for groups. "
    "No further seed after 60 seconds, and after 10 of XGBoost. With more than "
    f"{MANY_LABELS} labels: one seed, at most 100 rounds."
)


def _subjects(problems: tuple[str, ...], unit: str, needs: str = "") -> tuple[Subject, ...]:
    """Return the loss and the seconds on each problem, which is a data set or `needs` one."""
    return tuple(
        Subject(f"{name}, {figure}", of, "lower", digits, name, figure, (needs or name,))
        for name in problems
        for figure, of, digits in (("loss", unit, 4), ("seconds", "s", 1))
    )


_M4_FIGURES = (("sMAPE", "sMAPE", 2), ("MASE", "MASE", 2), ("seconds", "s", 1))
_SETS = {
    "Chosen": ("sets that the method was chosen on", _subjects(CHOSEN_ON, "loss")),
    "Confirmed": ("other sets", _subjects(CONFIRMED_ON, "loss")),
}
PAPER = Paper(
    __name__,
    "Groups of outputs",
    "Which outputs share trees, found from the data.",
    (
        make_table(
            "M4",
            "M4 hourly, one model for 48 horizons",
            tuple(
                Subject(figure, unit, "lower", digits, "M4", figure, ("m4_hourly",))
                for figure, unit, digits in _M4_FIGURES
            ),
            forecast_hours,
            "Learning rate 0.05, 31 leaves, at least 20 rows; 150 rounds of a tree per output, 300 "
            "of the others. The last two columns have learning rate 0.1 and 63 bins, 150 rounds of "
            "the groups and 100 of a tree per output, chosen on the 48 hours before the test. "
            "Seconds include the search for groups.",
            M4,
            tuple(M4),
        ),
        make_table(
            "ETTh1",
            "load of ETTh1, one model for all horizons",
            _subjects(LOADS, "MSE", "etth1"),
            forecast_load,
            "168 lags of the standardised load HUFL, from every third hour; 12 months of training "
            "rows, 4 of validation for early stopping, 4 of the test; other settings as for the "
            "sets. level: the mean of the last day is subtracted from the targets.",
            HOURLY,
            tuple(HOURLY),
        ),
        *(
            make_table(name, *about, compare_methods, PROTOCOL, METHODS, tuple(METHODS))
            for name, about in _SETS.items()
        ),
    ),
    golden=("defaults", "groups"),
)
