"""Cost of monotone constraints: processor time with them over that without, for each library."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from .harness.context import Context
from .harness.paper import Figures, Paper, Subject, make_table
from .libraries import Settings, train

REPEATS, ROUNDS = 3, 20
PROBLEMS = tuple(
    f"10,000 rows x {outputs} outputs x {leaves} leaves"
    for outputs, leaves in ((1, 31), (4, 31), (16, 31), (16, 255))
)
METHODS = ("Polyleaf", "XGBoost", "LightGBM, advanced")


def fit(method: str, X: np.ndarray, Y: np.ndarray, directions: np.ndarray, common: Any) -> None:
    """Train with directions (features,) that all outputs share; 0 is none."""
    constraints: dict[str, Any] = {"monotone_constraints": directions.tolist()}
    name = "polyleaf"
    if method == "XGBoost":
        constraints = {"monotone_constraints": tuple(directions.tolist())}
        name = "xgboost-multi-output-tree"
    elif method == "LightGBM, advanced":
        constraints["monotone_constraints_method"] = "advanced"
        name = "lightgbm"
    y = Y[:, 0] if Y.shape[1] == 1 else Y
    train(name, "regression", {"X": X, "y": y}, Settings(**common, own=constraints))


def cost(context: Context, method: str, problem: str) -> Figures:
    """Return `times`: processor time over that of fits without directions, in turns."""
    n, n_outputs, leaves = (int(part.split()[0].replace(",", "")) for part in problem.split(" x "))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(context.rows(n), 20)).astype(np.float32)
    Y = np.tanh(X @ rng.normal(size=(20, n_outputs))) + 0.3 * rng.normal(size=(len(X), n_outputs))
    directions = rng.choice([-1, 0, 1], size=20)
    common = {"rounds": context.rounds(ROUNDS), "max_leaves": leaves, "max_bins": None}
    common |= {"reg_lambda": 1.0, "min_rows": 5, "threads": context.threads}
    fit(method, X, Y, directions, common | {"rounds": 1})  # imports outside of the timed part
    times = []
    for _ in context.seeds(REPEATS):
        seconds = []
        for chosen in (directions, np.zeros_like(directions)):
            begin = time.process_time()
            fit(method, X, Y, chosen, common)
            seconds.append(time.process_time() - begin)
        times.append(seconds[0] / seconds[1])
    return {"times": times}


PAPER = Paper(
    __name__,
    "Monotone constraints",
    "What constraints cost.",
    (
        make_table(
            "Cost, times",
            "times the fit without directions",
            [Subject(problem, "times", None, 2, figure="times") for problem in PROBLEMS],
            cost,
            "20 features, of which about two thirds have a direction for all outputs; 20 rounds, "
            f"the mean of {REPEATS} repeats, each with the same fit without directions after it.",
            METHODS,
        ),
    ),
    golden=("defaults", "defaults, one output"),
)
