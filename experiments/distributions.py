"""Benchmark of predicted distributions: likelihood of test rows, CRPS and training time.

Data sets and splits are those of `sets`.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyleaf import PolyleafRegressor
from polyleaf.distributions import Normal
from polyleaf.objectives import Custom

from .harness.context import QUICK_ROUNDS, Context, require_module
from .harness.paper import Better, Figures, Paper, Table, make_subjects, make_table

MOST_ROWS = 8_000  # of a set, before it is split
SPLITS = 3
ROUNDS, RATE, PATIENCE = 400, 0.05, 50
SETS = (
    "enb", "casp", "california_housing", "pol", "bike_hour", "gas_turbine", "parkinsons_updrs",
    "sarcos4449",
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """Input of a library: rows for training and rows for early stopping."""

    X: np.ndarray
    y: np.ndarray
    X_val: np.ndarray
    y_val: np.ndarray
    threads: int
    rounds: int


Predict = Callable[[np.ndarray], Normal]


def polyleaf(job: Job, objective: Any = "normal", **parameters: Any) -> Predict:
    fixed = {"n_estimators": job.rounds, "learning_rate": RATE, "early_stopping_rounds": PATIENCE}
    model = PolyleafRegressor(objective=objective, **fixed, n_jobs=job.threads, **parameters)
    model.fit(job.X, job.y, X_val=job.X_val, y_val=job.y_val)
    return lambda X: _normal(model.predict_raw(X))


def _normal(raw: np.ndarray) -> Normal:
    return Normal(raw[:, 0], np.exp(raw[:, 1]))


def xgboost_hessian(job: Job) -> Predict:
    """Fit Polyleaf with the Hessian of `reg:normal` in XGBoost (pull request 12550, 2026).

    It replaces the Fisher information: 2 / 3 (1 + 2 z^2) for the logarithm of the deviation.
    """

    def derivatives(y: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        precision = np.exp(-np.clip(scores[:, 1], -30, 30))
        z = (scores[:, 0] - y) * precision
        hessian = np.column_stack([precision**2, (4 / 6) * (1 + 2 * z**2)])
        return np.column_stack([z * precision, 1 - z**2]), hessian

    def mean_nll(y: np.ndarray, scores: np.ndarray) -> float:
        return -float(Normal(scores[:, 0], np.exp(np.clip(scores[:, 1], -30, 30))).logpdf(y).mean())

    base_score = [float(job.y.mean()), float(np.log(job.y.std()))]
    return polyleaf(
        job, Custom(derivatives, n_outputs=2), base_score=base_score, eval_metric=mean_nll
    )


def ngboost(job: Job) -> Predict:
    from ngboost import NGBRegressor

    model = NGBRegressor(n_estimators=job.rounds, learning_rate=RATE, verbose=False, random_state=0)
    model.fit(job.X, job.y, X_val=job.X_val, Y_val=job.y_val, early_stopping_rounds=PATIENCE)
    return lambda X: Normal(model.pred_dist(X).loc, model.pred_dist(X).scale)


# The defaults choose the number of rounds by rows that the library holds out.
OF_ROUNDS: dict[str, int | None] = {"as it comes": None, "300 rounds": 300}

METHODS: dict[str, Callable[[Job], Predict]] = {
    "Polyleaf": polyleaf,
    "XGBoost's curvature": xgboost_hessian,
    "NGBoost": ngboost,
}


def distributions(context: Context, method: str, problem: str) -> Figures:
    """Return `nll` and `crps` of test rows and `seconds` of training, one number per split.

    Targets are in units of their standard deviation.
    """
    module = "ngboost" if method == "NGBoost" else "polyleaf.estimators"
    require_module(module)
    importlib.import_module(module)  # import outside the timed part
    figures: Figures = {"nll": [], "crps": [], "seconds": []}
    for job, X, y in _parts(context, problem):
        start = time.process_time()
        predict = METHODS[method](job)
        figures["seconds"].append(time.process_time() - start)
        _add_scores(figures, predict(X), y)
    return figures


def rounds(context: Context, method: str, problem: str) -> Figures:
    """Return `nll` and `crps` as `distributions` does, with only the number of rounds set.

    The rows for early stopping are added to the training rows. `rounds` is the number of trained
    rounds.
    """
    figures: Figures = {"nll": [], "crps": [], "rounds": []}
    n = OF_ROUNDS[method] if not context.quick else QUICK_ROUNDS
    for job, X, y in _parts(context, problem):
        model = PolyleafRegressor(
            objective="normal", n_estimators=n, n_jobs=job.threads, random_state=0
        )
        model.fit(np.vstack([job.X, job.X_val]), np.concatenate([job.y, job.y_val]))
        _add_scores(figures, _normal(model.predict_raw(X)), y)
        figures["rounds"].append(float(model.model_.n_rounds))
    return figures


def _add_scores(figures: Figures, predicted: Normal, y: np.ndarray) -> None:
    figures["nll"].append(-float(predicted.logpdf(y).mean()))
    figures["crps"].append(float(predicted.crps(y).mean()))


def _parts(context: Context, name: str) -> Iterator[tuple[Job, np.ndarray, np.ndarray]]:
    data = context.load(name)
    rows = np.random.default_rng(0).permutation(len(data.y))[: context.rows(MOST_ROWS)]
    X, y = data.X[rows], data.y[rows].astype(np.float64)
    y = y[:, 0] if y.ndim > 1 else y
    y = (y - y.mean()) / y.std()
    rounds = QUICK_ROUNDS if context.quick else ROUNDS
    for seed in context.seeds(SPLITS):
        order = np.random.default_rng(seed).permutation(len(y))
        test, held, train = np.split(order, [len(y) // 4, len(y) // 4 + len(y) * 3 // 20])
        yield Job(X[train], y[train], X[held], y[held], context.threads, rounds), X[test], y[test]


_PROTOCOL = (
    f"The first target of each set, at most {MOST_ROWS:,} rows; 60 % to train on, 15 % to stop "
    f"on, 25 % to test. {ROUNDS} rounds of rate {RATE}, ended {PATIENCE} after the best one; "
    "nothing else is set. NGBoost has normal distributions and trees of depth 3; XGBoost 3.4 has "
    "no `reg:normal` yet: of the one to come the Hessian is used, in Polyleaf's trees. Seconds "
    "are processor time of one thread."
)


_OF_ROUNDS = (
    "Sets and splits as above; nothing is set but the number of rounds, and 75 % are to train on."
)


def _table(
    figure: str, words: str, shown: tuple[str, Better, int], is_of_rounds: bool = False
) -> Table:
    subjects = make_subjects(SETS, *shown, figure)
    if is_of_rounds:
        of_rounds = rounds, _OF_ROUNDS, OF_ROUNDS, ("as it comes",)
        return make_table(f"Rounds, {figure}", words, subjects, *of_rounds)
    return make_table(figure, words, subjects, distributions, _PROTOCOL, METHODS)


_NLL = "test negative log-likelihood"
_CRPS = "test continuous ranked probability score"

PAPER = Paper(
    __name__,
    "Distributions",
    "How well normal distributions are predicted for each row, and what that takes.",
    (
        _table("nll", _NLL, ("nats", "lower", 3)),
        _table("crps", _CRPS, ("CRPS", "lower", 4)),
        _table("seconds", "seconds to train", ("s", "lower", 2)),
        _table("nll", f"{_NLL}, by who says how many rounds", ("nll", "lower", 3), True),
        _table("crps", f"{_CRPS}, likewise", ("crps", "lower", 4), True),
        _table("rounds", "how many there were", ("rounds", None, 0), True),
    ),
    golden=("defaults, one output",),
)
