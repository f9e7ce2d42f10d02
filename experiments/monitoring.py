"""Power of `measure_drift`: shares of draws in which it names the changed feature, and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .harness.context import Context
from .harness.paper import Figures, Paper, Subject, Table

N_TRAINING, N_NUMBERS, N_CITIES = 20_000, 20, 30
ROWS, DRAWS = (300, 1_000, 5_000), 200
COUNTER, ZEROS, GAPS = "x2", "x3", "x4"


def draw_rows(n: int, rng: np.random.Generator) -> Any:
    """Return a frame: normal numbers, a log-normal one, a counter, zeros, gaps, and cities."""
    import pandas as pd

    frame = pd.DataFrame(rng.normal(size=(n, N_NUMBERS))).add_prefix("x")
    frame["x1"] = np.exp(frame["x1"])
    frame[COUNTER] = rng.integers(0, 12, n)
    frame.loc[rng.random(n) < 0.7, ZEROS] = 0.0
    frame.loc[rng.random(n) < 0.1, GAPS] = np.nan
    shares = np.append(0.3, np.full(N_CITIES - 1, 0.7 / (N_CITIES - 1)))
    frame["city"] = rng.choice([f"c{i}" for i in range(N_CITIES)], n, p=shares).astype(object)
    return frame


def _replace(name: str, share: float, value: object) -> Callable[[Any, np.random.Generator], None]:
    def change(frame: Any, rng: np.random.Generator) -> None:
        frame.loc[rng.random(len(frame)) < share, name] = value

    return change


def _add(name: str, amount: float) -> Callable[[Any, np.random.Generator], None]:
    def change(frame: Any, rng: np.random.Generator) -> None:
        frame[name] = frame[name] + amount

    return change


def _multiply(name: str, factor: float) -> Callable[[Any, np.random.Generator], None]:
    def change(frame: Any, rng: np.random.Generator) -> None:
        frame[name] = frame[name] * factor

    return change


# The feature that changes, and its change.
CHANGES: dict[str, tuple[str | None, Callable[[Any, np.random.Generator], None]]] = {
    "none": (None, lambda frame, rng: None),
    "mean moves by 0.1 deviations": ("x0", _add("x0", 0.1)),
    "mean moves by 0.3 deviations": ("x0", _add("x0", 0.3)),
    "spread grows by half": ("x0", _multiply("x0", 1.5)),
    "log-normal numbers grow by 30 %": ("x1", _multiply("x1", 1.3)),
    "counter of 12 values moves by 1": (COUNTER, _add(COUNTER, 1)),
    "zeros, 70 to 80 %": (ZEROS, _replace(ZEROS, 1 / 3, 0.0)),
    "missing values, 0 to 5 %": ("x0", _replace("x0", 0.05, np.nan)),
    "missing values, 10 to 20 %": (GAPS, _replace(GAPS, 1 / 9, np.nan)),
    "unknown categories, 0 to 5 %": ("city", _replace("city", 0.05, "new")),
    "most frequent category, 30 to 40 %": ("city", _replace("city", 1 / 7, "c0")),
}


def named(context: Context, method: str, problem: str) -> Figures:
    """Return the percentage of draws of `problem` rows in which the feature that has changed is
    named; without a change, in which any is."""
    from polyleaf import PolyleafRegressor
    from polyleaf.inspection import measure_drift

    name, change = CHANGES[method]
    rng, hits = np.random.default_rng(0), []
    training = draw_rows(context.rows(N_TRAINING), rng)
    model = PolyleafRegressor(n_estimators=1, n_jobs=context.threads).fit(training, training["x0"])
    for _ in range(DRAWS // (20 if context.quick else 1)):
        rows = draw_rows(int(problem), rng)
        change(rows, rng)
        # Without a change the reference is drawn anew, as its chance is a part of the error.
        reference = draw_rows(len(training), rng) if name is None else None
        drift = measure_drift(model, rows, X_reference=reference)
        is_named = dict(zip(drift.feature_names, drift.is_drifted.tolist(), strict=True))
        hits.append(any(is_named.values()) if name is None else is_named[name])
    return {"named": 100 * float(np.mean(hits))}


PAPER = Paper(
    __name__,
    "Monitoring",
    "How often drift of one feature is found in new rows.",
    (
        Table(
            "changes",
            "draws of new rows in which the feature that has changed is named, in percent",
            tuple(Subject(f"{n:,} rows", "%", None, 1, str(n), "named") for n in ROWS),
            named,
            f"`measure_drift` with its defaults, {DRAWS} draws, {N_TRAINING:,} training rows of "
            f"{N_NUMBERS + 1} independent features, of which one changes. Without a change: draws "
            "in which any feature is named.",
            also=tuple(CHANGES),
        ),
    ),
    golden=("defaults, one output",),
)
