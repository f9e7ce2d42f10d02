"""SketchBoost: tree structure from a sketch of the gradients, its speed and its loss of accuracy.

The paper's own figures were obtained with a GPU, five folds and early stopping at a learning rate
of 0.015. Here Polyleaf with and without a sketch, and XGBoost's vector leaves, are compared in one
run on the same split.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ..cases import Settings
from ..harness.context import Context
from ..harness.paper import Figures, Paper, Subject, Table
from ..problems import Arrays
from . import _fits
from ._fits import Method

METHODS = {
    "no sketch": Method("polyleaf", {"sketch": None}),
    "sketch": Method("polyleaf", {"sketch": "auto"}),
    "sketch of 5": Method("polyleaf", {"sketch": "random_projection", "sketch_dim": 5}),
    "XGBoost, vector leaves": Method("xgboost-multi-output-tree"),
}
OUTPUTS = {16: 200, 100: 50, 1000: 10}  # outputs: timed rounds, about a second


def labels(n: int, n_features: int, n_outputs: int) -> Arrays:
    """Draw labels that hold in about one row of six each: signs of random directions of the
    features.
    """
    rng = np.random.default_rng(1000)
    X = rng.standard_normal((n, n_features), dtype=np.float32)
    y = X @ rng.standard_normal((n_features, n_outputs), dtype=np.float32) > np.sqrt(n_features)
    return {"X": X, "y": y.astype(np.int64)}


def cost(context: Context, method: str, problem: str) -> Figures:
    """Return milliseconds per round at each number of outputs.

    The time is that of a fit minus a fit of one round, with all fits interleaved.
    """
    data = {k: labels(context.rows(10_000), 50, k) for k in OUTPUTS}
    figures: Figures = {f"K={k}": [] for k in OUTPUTS} | {"ratio": []}
    for _ in context.seeds(5):
        found = {}
        for k in OUTPUTS:
            rounds = context.rounds(OUTPUTS[k])
            few, many = (_seconds(context, method, data[k], n) for n in (1, 1 + rounds))
            found[k] = 1000 * (many - few) / rounds
            figures[f"K={k}"].append(found[k])
        figures["ratio"].append(found[1000] / found[16])
    return figures


def _seconds(context: Context, method: str, data: Arrays, rounds: int) -> float:
    start = time.perf_counter()
    fit(context, method, "multilabel", data, rounds)
    return time.perf_counter() - start


def fit(context: Context, method: str, kind: str, data: Arrays, rounds: int) -> tuple[Any, float]:
    """Fit with depth 6, 64 leaves, rate 0.1, 255 bins; return the model and the seconds."""
    settings = Settings(rounds, 6, 64, 0.1, 255, 1.0, 1, own=METHODS[method].own)
    return _fits.fit(context, METHODS[method].library, kind, data, settings)


def few_rounds(context: Context, method: str, problem: str) -> Figures:
    """Run five rounds on Delicious; return seconds per round, including binning, and the scores."""
    data = load(context, problem)
    model, seconds = fit(context, method, "multilabel", data, 5)
    return {"round seconds": seconds / context.rounds(5), **scores(problem, data, model)}


def many_rounds(context: Context, method: str, problem: str) -> Figures:
    """Run a hundred rounds on Delicious, or three hundred on Otto."""
    data = load(context, problem)
    rounds, kind = (100, "multilabel") if problem == "delicious" else (300, "multiclass")
    model, seconds = fit(context, method, kind, data, rounds)
    return {"round seconds": seconds / context.rounds(rounds), **scores(problem, data, model)}


def load(context: Context, problem: str) -> Arrays:
    """Load with the source's own split, or 80 / 20 at random."""
    data = context.load(problem)
    train, test = data.parts or data.split(0)
    X = data.X if isinstance(data.X, np.ndarray) else data.X.toarray()
    train, test = train[: context.rows(len(train))], test[: context.rows(len(test))]
    return {"X": X[train], "y": data.y[train], "X_test": X[test], "y_test": data.y[test]}


def scores(problem: str, data: Arrays, model: Any) -> Figures:
    """Return log loss (mean over labels), and the % of rows with a correct top prediction."""
    p, y = model.predict(data["X_test"]).astype(np.float64), data["y_test"]
    p = np.clip(p, 1e-7, 1 - 1e-7)
    rows = np.arange(len(y))
    if y.ndim == 2:
        loss = -np.mean(np.where(y == 1, np.log(p), np.log1p(-p)))
        return {"loss": loss, "best": 100 * np.mean(y[rows, p.argmax(axis=1)])}
    return {"loss": -np.mean(np.log(p[rows, y])), "best": 100 * np.mean(p.argmax(axis=1) == y)}


def _make_subjects(problem: str, title: str, best: str) -> tuple[Subject, ...]:
    about: dict[str, Any] = {"problem": problem, "needs": (problem,)}
    return (
        Subject(f"{title}, log loss", "log loss", "lower", 5, figure="loss", **about),
        Subject(f"{title}, {best}", "%", "higher", 1, figure="best", **about),
        Subject(f"{title}, s a round", "s", None, 3, figure="round seconds", **about),
    )


PAPER = Paper(
    __name__,
    "SketchBoost",
    "L. Iosipoi and A. Vakhrushev, SketchBoost: Fast Gradient Boosted Decision Tree for "
    "Multioutput "
    "Problems, NeurIPS 2022.",
    (
        Table(
            "Cost", "Milliseconds of a round by number of outputs",
            (
                *(Subject(f"K={k}", "ms", None, 1, "cost", f"K={k}") for k in OUTPUTS),
                Subject("K=1000 / K=16", "ratio", None, 2, "cost", "ratio"),
            ),
            cost,
            "10,000 x 50, labels, logistic loss; 200, 50 and 10 rounds beyond the first, sizes in "
            "turn, five "
            "times.",
            also=("no sketch", "sketch"),
        ),
        Table(
            "Delicious, five rounds", "Against vector leaves without a sketch",
            _make_subjects("delicious", "Delicious", "P@1"), few_rounds,
            "The customary split; binning is in the seconds.",
            also=("sketch", "no sketch", "XGBoost, vector leaves"),
        ),
        Table(
            "With and without", "What a sketch loses",
            (*_make_subjects("delicious", "Delicious", "P@1"), *_make_subjects("otto", "Otto",
            "accuracy")), many_rounds,
            "100 rounds on Delicious (the customary split), 300 on Otto (80 / 20 at random), rate "
            "0.1, depth "
            "6. For Otto's nine classes \"auto\" is no sketch.",
            also=("no sketch", "sketch", "sketch of 5"),
        ),
    ),
    golden=("sketch random_projection", "sketch, classes"),
)  # fmt: skip
