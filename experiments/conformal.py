"""Coverage of intervals after `calibrate`, per target and jointly over all targets.

Data sets and splits are those of `sets`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .harness.context import Context
from .harness.paper import Figures, Paper, Subject, Table

SETS = "enb rf1 wq sarcos4449 scpf edm casp gas_turbine oes10".split()
SPLITS = 3
MOST_ROWS = 5_000
TESTED, HELD = 0.3, 0.25  # share of test rows; share of the other rows for calibration
COVERAGE = 0.9

QUANTILES = {"objective": "quantile", "quantile_alpha": (0.05, 0.95), "calibrate_quantiles": False}
MODELS: dict[
    str, tuple[dict[str, Any], bool | None]
] = {  # parameters, and whether calibration is joint; None: no calibration
    "quantiles as they are": (QUANTILES, None),
    "quantiles, each": (QUANTILES, False),
    "quantiles, joint": (QUANTILES, True),
    "means, each": ({}, False),
    "means, joint": ({}, True),
}


def conformal(context: Context, method: str, problem: str) -> Figures:
    """Return coverage in % and width of the intervals, as lists with one number per split.

    Figures: `each` (mean coverage over targets), `worst` (worst target), `all` (all targets
    jointly), `width` (mean width in standard deviations of the targets) and `error` (standard error
    of a coverage in %, from the calibration rows and the test rows).
    """
    from polyleaf import PolyleafRegressor

    parameters, joint = MODELS[method]
    figures: Figures = {name: [] for name in ("each", "worst", "all", "width", "error")}
    for fit, held, test in _parts(context, problem):
        what = {"n_estimators": context.rounds(150), "max_leaves": 15, "n_jobs": context.threads}
        model = PolyleafRegressor(**what | parameters).fit(*fit)
        if joint is None:
            bounds = model.predict(test[0]).reshape(*test[1].shape, 2)
        else:
            bounds = model.calibrate(*held, coverage=COVERAGE, joint=joint).predict_interval(
                test[0]
            )
            bounds = bounds.reshape(*test[1].shape, 2)
        inside = (bounds[..., 0] <= test[1]) & (test[1] <= bounds[..., 1])
        width = (bounds[..., 1] - bounds[..., 0]).mean(axis=0) / test[1].std(axis=0)
        error = np.sqrt(COVERAGE * (1 - COVERAGE) * (1 / len(held[0]) + 1 / len(test[0])))
        figures["each"].append(float(100 * inside.mean()))
        figures["worst"].append(float(100 * inside.mean(axis=0).min()))
        figures["all"].append(float(100 * inside.all(axis=1).mean()))
        figures["width"].append(float(width[np.isfinite(width)].mean()))
        figures["error"].append(float(100 * error))
    return figures


Rows = tuple[np.ndarray, np.ndarray]


def _parts(context: Context, name: str) -> Iterator[tuple[Rows, Rows, Rows]]:
    """Yield the rows for training, calibration and testing, as (X, y) each."""
    data = context.load(name)
    y = data.y.reshape(len(data.y), -1).astype(np.float64)
    for seed in context.seeds(SPLITS):
        order = np.random.default_rng(seed).permutation(len(y))[: context.rows(MOST_ROWS)]
        n_test = round(TESTED * len(order))
        n_held = round(HELD * (len(order) - n_test))
        test, held, fit = np.split(order, [n_test, n_test + n_held])
        yield tuple((data.X[rows], y[rows]) for rows in (fit, held, test))  # type: ignore[misc]


_PROTOCOL = (
    f"At most {MOST_ROWS:,} rows; 30 % to test, a quarter of the others to calibrate on; {SPLITS} "
    "splits. "
    "150 rounds of 15 leaves, otherwise defaults; quantiles of 5 and 95 %. The standard error is "
    "that of one "
    "split, from the rows that were calibrated and tested on, if targets vary continuously: equal "
    "scores "
    "(edm, wq and scpf have whole numbers) put more rows inside."
)

_FIGURES = {
    "each": ("test coverage, mean over targets", f"% (asked: {100 * COVERAGE:.0f})", 1),
    "worst": (
        "test coverage of the target with the least",
        f"% (asked: {100 * COVERAGE:.0f} of each)",
        1,
    ),
    "all": (
        "share of test rows with all targets inside",
        f"% (asked of joint ones: {100 * COVERAGE:.0f})",
        1,
    ),
    "width": ("mean width", "standard deviations", 2),
    "error": ("standard error of one coverage", "%", 1),
}


def _table(figure: str) -> Table:
    title, unit, digits = _FIGURES[figure]
    first, *others = MODELS if figure != "error" else ["quantiles, each"]
    return Table(
        figure,
        title,
        tuple(Subject(name, unit, None, digits, name, figure, needs=(name,)) for name in SETS),
        conformal,
        _PROTOCOL,
        also=(first, *others),
        subjects_are="rows",
    )


PAPER = Paper(
    __name__,
    "Conformal intervals",
    f"Intervals that are calibrated on rows held out, {100 * COVERAGE:.0f} % asked.",
    tuple(_table(figure) for figure in _FIGURES),
    golden=("quantiles", "quantiles as they are", "defaults"),
)
