"""Rungs of `quality` beside other libraries' defaults: loss, time of a fit and of a prediction.

The first tables have at most 10,000 training rows, the last whole sets of 11,000 to 37,000.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import defaults
from .defaults import Job, Predict
from .harness.context import Context
from .harness.paper import Figures, Paper, make_subjects, make_table

SMALL = (
    "slump edm enb student_por wq california_housing casp "
    "vehicle yeast dna satimage waveform pendigits poker25k emotions"
).split()
# Sets that the values were tried on after they had been chosen.
FURTHER = (
    "atp1d bike_hour gas_turbine higgs7500 nursery optdigits parkinsons_updrs pol sarcos4449 "
    "scpf sf1 sf2 shuttle"
).split()
LARGE = "bike_hour california_housing casp gas_turbine covtype20k letter poker25k".split()
RUNGS = ("fast", "standard", "high")
LIMIT = 300.0  # seconds of processor time: longer than any library takes


def _polyleaf(**parameters: Any) -> Callable[[Job], Predict]:
    return lambda job: job.train("polyleaf", random_state=0, **parameters)


METHODS: dict[str, Callable[[Job], Predict]] = {
    **{rung: _polyleaf(quality=rung) for rung in RUNGS},
    "300 rounds": _polyleaf(n_estimators=300),
    **{name: defaults.LIBRARIES[name] for name in ("XGBoost", "LightGBM", "CatBoost")},
}
PEERS = ("XGBoost", "LightGBM", "CatBoost")


def small(context: Context, method: str, problem: str) -> Figures:
    """Return the figures of `defaults.measure`, with at most 10,000 rows."""
    return defaults.measure(context, METHODS[method], problem, limit=LIMIT)


def whole(context: Context, method: str, problem: str) -> Figures:
    """Return the same with all training rows."""
    return defaults.measure(context, METHODS[method], problem, None, LIMIT)


_PROTOCOL = (
    "Default settings of every library, and of Polyleaf with each value of `quality`; splits and "
    "losses of the study of default settings (RMSE over the standard deviation, or log loss). "
    "Seconds of processor time; one prediction of the whole test part."
)
_FIGURES: dict[str, tuple[str, Any, int]] = {
    "loss": ("test loss", "lower", 4),
    "seconds": ("s", None, 2),
    "predict": ("µs", None, 2),
}
_TITLES = {
    "loss": ("Loss", "test loss"),
    "seconds": ("Fit", "processor time"),
    "predict": ("Prediction", "processor time per row"),
}
PAPER = Paper(
    __name__,
    "Quality",
    "What more time buys: the values of `quality` beside the defaults of other libraries.",
    tuple(
        make_table(
            f"{name}, {rows}",
            title,
            make_subjects(names, *_FIGURES[figure], figure),
            run,
            _PROTOCOL,
            (*methods, *PEERS),
            methods,
            ranks=figure == "loss",
        )
        for rows, names, run, methods in (
            ("at most 10,000 rows", SMALL, small, RUNGS),
            ("further sets, at most 10,000 rows", FURTHER, small, RUNGS),
            ("all rows", LARGE, whole, ("300 rounds", "fast", "standard")),
        )
        for figure, (name, title) in _TITLES.items()
    ),
    golden=defaults.GOLDEN,
)
