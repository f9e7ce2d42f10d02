"""Cost and accuracy of monotone constraints, compared with other libraries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from .harness.context import Context, Unavailable
from .harness.paper import Figures, Paper, Subject, Table, make_table
from .libraries import Library, Settings, train

ROUNDS, PATIENCE, LEAVES, RATE, LEAST = 400, 40, 31, 0.1, 5
REPEATS = 3
N_FEATURES, N_OUTPUTS = 10, 4
MADE = ("additive", "products", "steps", "correlated", "few rows")
COSTS = tuple(
    f"10,000 rows x {outputs} outputs x {leaves} leaves"
    for outputs, leaves in ((1, 31), (4, 31), (16, 31), (16, 255))
)
# Feature numbers and their directions, for all outputs, of sets from a folder.
REAL = {
    "enb": {4: 1, 6: 1},  # height, glazing area -> heating and cooling
    # schooling, study; failures, drinking, absence
    "student_por": {6: 1, 7: 1, 13: 1, 14: -1, 26: -1, 29: -1},
    "rf1": dict.fromkeys(range(8), 1),  # flows at eight places of a river -> in two days
}


@dataclass(frozen=True)
class Job:
    """Input of a library: rows for training and early stopping, and directions (F, K).

    Directions of 0 mean no constraint.
    """

    X: np.ndarray
    y: np.ndarray
    X_stop: np.ndarray
    y_stop: np.ndarray
    directions: np.ndarray
    threads: int
    rounds: int
    patience: int = PATIENCE
    leaves: int = LEAVES


Predict = Callable[[np.ndarray], np.ndarray]  # (n, K)


# --- problems ---


def get_directions(rng: np.random.Generator, is_shared: bool) -> np.ndarray:
    shape = (N_FEATURES, 1 if is_shared else N_OUTPUTS)
    drawn = rng.choice([-1, 0, 1], size=shape, p=[0.3, 0.4, 0.3])
    drawn[:2] = [[1], [-1]]
    return np.broadcast_to(drawn, (N_FEATURES, N_OUTPUTS)).astype(np.int8)


def truth(kind: str, X: np.ndarray, directions: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return (n, K) outputs: monotone where there is a direction, waves elsewhere."""
    found = np.zeros((len(X), N_OUTPUTS))
    for k in range(N_OUTPUTS):
        for f, d in enumerate(directions[:, k]):
            shape = np.ceil(X[:, f]).clip(-2, 2) / 1.5 if kind == "steps" else np.tanh(2 * X[:, f])
            found[:, k] += rng.uniform(0.3, 1) * (d * shape if d else 0.5 * np.sin(3 * X[:, f]))
        if kind in ("products", "few rows"):
            ruled = rng.permutation(np.flatnonzero(directions[:, k]))[:4]
            a, b, *c = (directions[f, k] * X[:, f] for f in np.resize(ruled, 4))
            found[:, k] += 0.7 * np.maximum(a, 0) * np.maximum(b + 1, 0) + np.minimum(c[0], c[1])
    return found


def made(
    kind: str, seed: int, is_shared: bool, context: Context
) -> tuple[Job, np.ndarray, np.ndarray]:
    """Make a job, and test rows with their noise-free outputs."""
    rng = np.random.default_rng([seed, *kind.encode()])
    directions = get_directions(rng, is_shared)
    n = context.rows(300 if kind == "few rows" else 2000)
    X = rng.normal(size=(n + 1000 + 4000, N_FEATURES))
    if kind == "correlated":
        X = 0.6 * X + 0.8 * rng.normal(size=(len(X), 1))
    X = X.astype(np.float32)
    whole = truth(kind, X, directions, rng)
    y = (whole + rng.normal(size=whole.shape)).astype(np.float32)
    stop, test = slice(n, n + 1000), slice(n + 1000, None)
    job = Job(X[:n], y[:n], X[stop], y[stop], directions, context.threads, context.rounds(ROUNDS))
    return job, X[test], whole[test]


def real(name: str, seed: int, context: Context) -> tuple[Job, np.ndarray, np.ndarray]:
    data = context.load(name)
    train, test = data.split(seed, 0.3)
    rng = np.random.default_rng(seed)
    train = rng.permutation(train)[: context.rows(5000)]
    n = 3 * len(train) // 4
    y = data.y.reshape(len(data.y), -1)
    directions = np.zeros((data.X.shape[1], y.shape[1]), np.int8)
    for f, d in REAL[name].items():
        directions[f] = d
    rows = data.X[train[:n]], y[train[:n]], data.X[train[n:]], y[train[n:]]
    return Job(*rows, directions, context.threads, context.rounds(ROUNDS)), data.X[test], y[test]


def jobs(context: Context, problem: str) -> Iterator[tuple[Job, np.ndarray, np.ndarray]]:
    kind, _, how = problem.partition(", ")
    for seed in context.seeds(REPEATS):
        if kind in MADE:
            yield made(kind, seed, how != "own", context)
        else:
            yield real(kind, seed, context)


# --- libraries ---


def fit(job: Job, library: str = "polyleaf", **own: Any) -> Library:
    data = {"X": job.X, "y": job.y, "X_val": job.X_stop, "y_val": job.y_stop}
    settings = Settings(
        job.rounds, None, job.leaves, RATE, None, 1.0, LEAST, job.patience, job.threads, own
    )
    return train(library, "regression", data, settings)


def polyleaf(job: Job, **own: Any) -> Predict:
    model = fit(job, monotone_constraints=job.directions, **own)
    return lambda X: model.predict(X).reshape(len(X), -1)


def xgboost(job: Job) -> Predict:
    """Fit trees with vector leaves, which support one direction for all outputs."""
    if np.any(job.directions != job.directions[:, :1]):
        raise Unavailable("it takes one direction for all outputs")
    directions = tuple(job.directions[:, 0].tolist())
    model = fit(job, "xgboost-multi-output-tree", monotone_constraints=directions)
    return lambda X: model.predict(X).reshape(len(X), -1)


def lightgbm(job: Job) -> Predict:
    """Fit one model per output."""
    models = []
    for y, y_stop, directions in zip(job.y.T, job.y_stop.T, job.directions.T, strict=True):
        own = {"monotone_constraints": directions.tolist()}
        own["monotone_constraints_method"] = "advanced"
        models.append(fit(replace(job, y=y, y_stop=y_stop), "lightgbm", **own))
    return lambda X: np.column_stack([model.predict(X) for model in models])


METHODS: dict[str, Callable[[Job], Predict]] = {
    "Polyleaf": polyleaf,
    "a tree per output": partial(polyleaf, multi_strategy="one_output_per_tree"),
    "free": lambda job: polyleaf(replace(job, directions=np.zeros_like(job.directions))),
    "XGBoost": xgboost,
    "LightGBM, advanced": lightgbm,
}


# --- measures ---


def monotone(context: Context, method: str, problem: str) -> Figures:
    """Return `error`, the RMSE in units of each output's standard deviation, averaged over outputs.

    It has one number per repeat.
    """
    figures: dict[str, list[float]] = {"error": []}
    for job, X_test, y_test in jobs(context, problem):
        squares = np.mean((METHODS[method](job)(X_test) - y_test) ** 2, axis=0)
        figures["error"].append(float(np.mean(np.sqrt(squares) / y_test.std(axis=0))))
    return dict(figures)


def cost(context: Context, method: str, problem: str) -> Figures:
    """Return `times`: processor time over that of fits without directions, in turns."""
    n, n_outputs, leaves = (int(part.split()[0].replace(",", "")) for part in problem.split(" x "))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(context.rows(n), 20)).astype(np.float32)
    y = np.tanh(X @ rng.normal(size=(20, n_outputs))) + 0.3 * rng.normal(size=(len(X), n_outputs))
    directions = np.repeat(rng.choice([-1, 0, 1], size=(20, 1)), n_outputs, axis=1).astype(np.int8)
    rounds = context.rounds(20)
    job = Job(X, y, X[:50], y[:50], directions, context.threads, rounds, rounds, leaves)
    figures: dict[str, list[float]] = {"times": []}
    METHODS[method](replace(job, rounds=1))  # import libraries outside the timed part
    for _ in context.seeds(REPEATS):
        seconds = []
        for each in (job, replace(job, directions=np.zeros_like(directions))):
            begin = time.process_time()
            METHODS[method](each)
            seconds.append(time.process_time() - begin)
        figures["times"].append(seconds[0] / seconds[1])
    return dict(figures)


_PROTOCOL = (
    f"Made problems: {N_FEATURES} features, {N_OUTPUTS} outputs, 2,000 rows (few rows: 300) with "
    "noise of deviation 1; the error is that to the truth without noise. Sets: 70 / 30 at "
    "random, at most 5,000 rows; the error is that of test rows. RMSE over the output's "
    f"deviation, the mean over outputs. All libraries: rate {RATE}, {LEAVES} leaves of at least "
    f"{LEAST} rows, ridge 1, at most {ROUNDS} rounds, the best by rows held out. {REPEATS} "
    "repeats."
)
_COST = (
    "20 features, of which about two thirds have a direction for all outputs; 20 rounds, the "
    f"mean of {REPEATS} repeats, each with the same fit without directions after it."
)


def _table(name: str, title: str, how: str, sets: Iterable[str] = ()) -> Table:
    needs = {**dict.fromkeys(MADE, ()), **{kind: (kind,) for kind in sets}}
    subjects = (
        Subject(kind, "RMSE / deviation", "lower", 4, f"{kind}, {how}", "error", needs[kind])
        for kind in needs
    )
    return make_table(name, title, subjects, monotone, _PROTOCOL, METHODS)


PAPER = Paper(
    __name__,
    "Monotone constraints",
    "What constraints gain, and what they cost.",
    (
        _table("Shared, error", "directions that all outputs share", "shared", REAL),
        _table("Own, error", "directions of each output's own", "own"),
        make_table(
            "Cost, times",
            "times the fit without directions",
            [Subject(problem, "times", None, 2, figure="times") for problem in COSTS],
            cost,
            _COST,
            ("Polyleaf", "XGBoost", "LightGBM, advanced"),
        ),
    ),
    golden=("defaults", "defaults, one output"),
)
