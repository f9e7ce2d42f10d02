"""Hessians of the softmax loss in equal processor time, and Newton steps to the best constant.

The second table is the case of dmlc/xgboost#12278: the constant scores of the 7 classes of
Covertype.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from .harness.context import Context
from .harness.paper import Figures, Paper, Table, make_subjects, make_table

SETS = (
    "dna waveform vehicle nursery satimage covtype20k shuttle otto optdigits pendigits poker25k "
    "usps yeast"
).split()
MOST_ROWS, MOST_ROUNDS, PATIENCE, SPLITS = 5_000, 1_000, 50, 3
BUDGETS = (0.1, 0.5, 5.0)  # seconds of processor time
METHODS: dict[str, dict[str, Any]] = {
    "residual": {},
    "upper": {"softmax_hessian": "upper"},
    "full leaves": {"hessian": "diagonal", "leaf_hessian": "full"},
    "block": {"hessian": "block"},
    "full": {"hessian": "full"},
}
_STEPS, _CLOSE = 1_000, 1e-6  # Newton steps, and the excess of the mean loss that ends them


class _Clock:
    """Records the processor time after each round, and ends training after the largest budget."""

    def __init__(self, limit: float) -> None:
        self.limit, self.begun, self.seconds = limit, time.process_time(), list[float]()

    def __call__(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self.seconds.append(time.process_time() - self.begun)
        values = evals_log["held out"]["mlogloss"]
        has_passed = len(values) - 1 - int(np.argmin(values)) >= PATIENCE
        return has_passed or self.seconds[-1] >= self.limit


def equal_seconds(context: Context, method: str, problem: str) -> Figures:
    """Return the test log loss within each budget, of the round with the lowest loss on rows that
    were held out.

    Figures: the loss after each of `BUDGETS`; `rounds` and `seconds` up to the best round of all.
    """
    from polyleaf import PolyleafClassifier

    found: dict[str, list[float]] = {}
    data = context.load(problem)
    for seed in context.seeds(SPLITS):
        training, test = (part[: context.rows(MOST_ROWS)] for part in data.split(seed))
        training, held = training[len(training) // 5 :], training[: len(training) // 5]
        classes = np.unique(data.y[training])
        parts = [part[np.isin(data.y[part], classes)] for part in (test, held)]
        clock = _Clock(BUDGETS[-1] / (20 if context.quick else 1))
        model = PolyleafClassifier(
            n_estimators=context.rounds(MOST_ROUNDS), n_jobs=context.threads, **METHODS[method]
        ).fit(
            data.X[training],
            data.y[training],
            eval_set=[(data.X[part], data.y[part]) for part in parts],
            eval_names=["test", "held out"],
            callbacks=[clock],
        )
        values = np.array(model.evals_result_["held out"]["mlogloss"])
        for budget in BUDGETS:
            used = values[: max(1, int(np.searchsorted(clock.seconds, budget, "right")))]
            best = model.evals_result_["test"]["mlogloss"][int(used.argmin())]
            found.setdefault(f"{budget:g}", []).append(best)
        found.setdefault("rounds", []).append(float(values.argmin() + 1))
        found.setdefault("seconds", []).append(clock.seconds[int(values.argmin())])
    return {**found}


def intercepts(context: Context, method: str, problem: str) -> Figures:
    """Return the Newton steps from scores of 0 to the constant scores of the lowest loss."""
    from polyleaf import PolyleafClassifier

    y = context.load(problem).y[:5_000]
    classes, y = np.unique(y, return_inverse=True)
    shares = np.bincount(y) / len(y)
    best = -float((shares * np.log(shares)).sum())
    model = PolyleafClassifier(
        n_estimators=context.rounds(_STEPS),
        learning_rate=1.0,
        reg_lambda=0.0,
        base_score=np.zeros(len(classes)),
        n_jobs=1,
        **METHODS[method],
    ).fit(np.zeros((len(y), 1)), y)
    for step, p in enumerate(model.staged_predict_proba(np.zeros((1, 1)))):
        if -float((shares * np.log(p[0])).sum()) - best < _CLOSE:
            return {"steps": float(step + 1)}
    return {"steps": float("inf")}


_PROTOCOL = (
    f"{SPLITS} random splits, at most {MOST_ROWS:,} training rows, of which a fifth is held out; "
    "default settings but for the Hessian. The test log loss is that of the round with the "
    "lowest log loss on the rows held out, among the rounds that end within so many seconds of "
    f"processor time, binning and evaluation included. Training ends {PATIENCE} rounds after that "
    f"round, or after {BUDGETS[-1]:g} s."
)


_OURS = ("full leaves", "block", "full")


def _table(budget: float) -> Table:
    name = f"{budget:g}"
    title = f"test log loss within {name} s of processor time"
    subjects = make_subjects(SETS, "log loss", "lower", 4, name)
    return make_table(
        f"{name} s", title, subjects, equal_seconds, _PROTOCOL, METHODS, _OURS, ranks=True
    )


PAPER = Paper(
    __name__,
    "Softmax Hessians",
    "Diagonals, blocks and the exact Hessian of softmax in equal processor time.",
    (
        *map(_table, BUDGETS),
        make_table(
            "Newton steps",
            "steps to the best constant scores, from 0",
            make_subjects(["covtype20k"], "steps", "lower", 0, "steps"),
            intercepts,
            "The first 5,000 rows, a feature without information, learning rate 1, no penalty: "
            f"steps until the mean loss is within {_CLOSE:g} of the lowest.",
            METHODS,
            _OURS,
        ),
    ),
    golden=("softmax residual", "curvature full", "curvature block", "leaf curvature full"),
)
