"""Groups of outputs that share trees: found from the data, beside one group and a tree per output.

M4 hourly is measured by its official test: windows of 168 hours, divided by their mean, forecast
48 hours. On the other sets training is stopped early, and the loss is a mean over outputs: the
RMSE divided by the standard deviation in training, or the log loss of labels.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from polyleaf import PolyleafClassifier, PolyleafRegressor

from .harness.context import Context
from .harness.paper import Figures, Paper, Subject, Table

MOST_ROWS, SEEDS = 3_000, 2
# The method was chosen on the first sets, and only measured on the others.
CHOSEN_ON = ("atp1d", "enb", "oes10", "scpf", "wq", "rf1", "sarcos4449", "student_por")
CHOSEN_ON += ("emotions", "yeast_ml", "birds")
CONFIRMED_ON = ("edm", "osales", "sf1", "sf2", "slump", "gas_turbine", "parkinsons_updrs")
CONFIRMED_ON += ("bike_hour", "scene", "enron")
METHODS: dict[str, dict[str, Any]] = {
    "one group": {},
    "a tree per output": {"multi_strategy": "one_output_per_tree"},
    "auto": {"output_groups": "auto"},
}
HORIZON, LAGS = 48, 168
M4: dict[str, dict[str, Any]] = {
    "one group": {"n_estimators": 300},
    "a tree per output": {"n_estimators": 150, "multi_strategy": "one_output_per_tree"},
    "auto": {"n_estimators": 300, "output_groups": "auto"},
    "groups of 3 hours on both days": {
        "n_estimators": 300,
        "output_groups": [
            [h + d for d in (0, 24) for h in range(a, a + 3)] for a in range(0, 24, 3)
        ],
    },
    "the same, absolute error of the change since yesterday": {
        "n_estimators": 300,
        "objective": "absolute_error",
        "output_groups": [
            [h + d for d in (0, 24) for h in range(a, a + 3)] for a in range(0, 24, 3)
        ],
    },
}


def loss_of_outputs(context: Context, method: str, problem: str) -> Figures:
    """Return `loss` and `seconds` of each seed."""
    data, found = context.load(problem), []
    X = data.X.toarray() if hasattr(data.X, "toarray") else data.X
    is_labels = data.task == "multilabel"
    for seed in context.seeds(SEEDS):
        rows = np.random.default_rng(seed).permutation(len(X))[: context.rows(MOST_ROWS * 5 // 4)]
        test, train = np.split(rows, [len(rows) // 5])
        y = data.y
        if is_labels:
            y = y[:, (y[train].sum(axis=0) >= 5) & (y[test].sum(axis=0) >= 1)]
        kind = PolyleafClassifier if is_labels else PolyleafRegressor
        model = kind(
            n_estimators=context.rounds(300),
            early_stopping_rounds=20,
            validation_fraction=0.2,
            learning_rate=0.1,
            n_jobs=context.threads,
            random_state=seed,
            **METHODS[method],
        )
        began = time.process_time()
        model.fit(X[train], y[train])
        seconds = time.process_time() - began
        if is_labels:
            p = np.clip(model.predict_proba(X[test]), 1e-6, 1 - 1e-6)
            loss = -np.where(y[test] == 1, np.log(p), np.log1p(-p)).mean()
        else:
            error = ((model.predict(X[test]) - y[test]) ** 2).mean(axis=0)
            loss = np.sqrt(error / np.maximum(y[train].var(axis=0), 1e-9)).mean()
        found.append((loss, seconds))
    losses, times = zip(*found, strict=True)
    return {"loss": [float(x) for x in losses], "seconds": list(times)}


def forecast_hours(context: Context, method: str, problem: str) -> Figures:
    """Return `sMAPE`, `MASE` and `seconds` on M4 hourly."""
    file = np.load(context.data / "m4_hourly.npz")
    series = np.split(file["values"].astype(float), file["indptr"][1:-1])
    series, test = (
        series[:: 40 if context.quick else 1],
        file["test"][:: 40 if context.quick else 1],
    )
    windows = [
        v[e - LAGS : e + HORIZON] for v in series for e in range(len(v) - HORIZON, LAGS - 1, -24)
    ]
    ends = np.array([v[-LAGS:] for v in series])

    def divide(rows: np.ndarray) -> np.ndarray:
        mean = rows[:, :LAGS].mean(axis=1, keepdims=True)
        return np.where(mean > 0, mean, 1.0)

    rows = np.array(windows)
    unit, last_unit = divide(rows), divide(ends)
    X, Y = rows[:, :LAGS] / unit, rows[:, LAGS:] / unit
    X_test = ends / last_unit
    how = M4[method] | {"n_estimators": context.rounds(M4[method]["n_estimators"])}
    changes = "change" in method
    offset, offset_test = ((np.tile(part[:, -24:], 2) if changes else None) for part in (X, X_test))
    model = PolyleafRegressor(
        learning_rate=0.05,
        max_leaves=31,
        min_child_samples=20,
        n_jobs=context.threads,
        random_state=0,
        **how,
    )
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


def _sets(name: str, title: str, names: tuple[str, ...]) -> Table:
    return Table(
        name,
        title,
        tuple(
            Subject(f"{n}, {figure}", unit, "lower", digits, n, figure, (n,))
            for n in names
            for figure, unit, digits in (("loss", "loss", 4), ("seconds", "s", 1))
        ),
        loss_of_outputs,
        f"At most {MOST_ROWS:,} training rows, a fifth for the test; {SEEDS} seeds; learning rate "
        "0.1, at most 300 rounds, stopped 20 rounds after the best on a fifth of the rows.",
        ours=tuple(METHODS),
        also=tuple(METHODS),
        subjects_are="rows",
    )


PAPER = Paper(
    __name__,
    "Groups of outputs",
    "Which outputs share trees, found from the data.",
    (
        Table(
            "M4",
            "M4 hourly, one model for 48 horizons",
            tuple(
                Subject(figure, unit, "lower", digits, "M4", figure, ("m4_hourly",))
                for figure, unit, digits in (
                    ("sMAPE", "sMAPE", 2),
                    ("MASE", "MASE", 2),
                    ("seconds", "s", 1),
                )
            ),
            forecast_hours,
            "Learning rate 0.05, 31 leaves, at least 20 rows; 150 rounds of a tree per output, 300 "
            "of the others. Seconds include the search for groups.",
            ours=tuple(M4),
            also=tuple(M4),
            subjects_are="rows",
        ),
        _sets("Chosen", "sets that the method was chosen on", CHOSEN_ON),
        _sets("Confirmed", "other sets", CONFIRMED_ON),
    ),
    golden=("defaults", "groups"),
)
