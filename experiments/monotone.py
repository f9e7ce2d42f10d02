"""Cost and accuracy of monotone constraints, compared with other libraries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from .harness.context import Context, Unavailable, require_module
from .harness.paper import Figures, Paper, Subject, Table

ROUNDS, PATIENCE, LEAVES, RATE, LEAST = 400, 40, 31, 0.1, 5
REPEATS = 3
MORE_REPEATS = 12  # where few rows cause a large variance between repeats
N_FEATURES, N_OUTPUTS = 10, 4
MADE = ("additive", "products", "steps", "correlated", "few rows")
COSTS = (
    "10,000 rows x 1 outputs x 31 leaves",
    "10,000 rows x 4 outputs x 31 leaves",
    "10,000 rows x 16 outputs x 31 leaves",
    "10,000 rows x 16 outputs x 255 leaves",
)
MOVED = 2_000  # pairs of rows for each repeat and output

# Feature numbers and their directions, for all outputs, of sets from a folder.
REAL = {
    "enb": {4: 1, 6: 1},  # height, glazing area -> heating and cooling
    "student_por": {
        6: 1,
        7: 1,
        13: 1,
        14: -1,
        26: -1,
        29: -1,
    },  # schooling, study; failures, drinking, absence
    "rf1": {f: 1 for f in range(8)},  # flows at eight places of a river -> in two days
}
ONE = {"enb": 0, "student_por": 2, "california_housing": 0}  # index of the single output
REAL_ONE = {**REAL, "california_housing": {7: 1}}  # income -> price


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
    for f, d in REAL_ONE[name].items():
        directions[f] = d
    rows = data.X[train[:n]], y[train[:n]], data.X[train[n:]], y[train[n:]]
    return Job(*rows, directions, context.threads, context.rounds(ROUNDS)), data.X[test], y[test]


def alone(job: Job, y_test: np.ndarray, output: int) -> tuple[Job, np.ndarray]:
    """Return the job and test outputs for one of the outputs."""
    k = slice(output, output + 1)
    return replace(
        job,
        y=job.y[:, k],
        y_stop=job.y_stop[:, k],
        directions=np.ascontiguousarray(job.directions[:, k]),
    ), y_test[:, k]


def jobs(
    context: Context, problem: str, repeats: int = REPEATS
) -> Iterator[tuple[Job, np.ndarray, np.ndarray]]:
    kind, _, how = problem.partition(", ")
    for seed in context.seeds(repeats):
        if kind in MADE:
            job, X_test, y_test = made(kind, seed, how != "own", context)
        else:
            job, X_test, y_test = real(kind, seed, context)
        if how == "one":
            job, y_test = alone(job, y_test, ONE.get(kind, 0))
        yield job, X_test, y_test


# --- libraries ---


def polyleaf(job: Job, **changed: Any) -> Predict:
    from polyleaf import PolyleafRegressor

    given = {
        "n_estimators": job.rounds, "learning_rate": RATE, "max_leaves": job.leaves,
        "min_child_samples": LEAST, "colsample_bynode": 1.0, "early_stopping_rounds": job.patience,
        "n_jobs": job.threads, "verbose": 0, "monotone_constraints": job.directions,
    }  # fmt: skip
    model = PolyleafRegressor(**given | changed)
    model.fit(job.X, job.y, eval_set=[(job.X_stop, job.y_stop)])
    return lambda X: model.predict(X).reshape(len(X), -1)


def free(job: Job) -> Predict:
    return polyleaf(replace(job, directions=np.zeros_like(job.directions)))


def tree_each(job: Job) -> Predict:
    return polyleaf(job, multi_strategy="one_output_per_tree")


def xgboost(job: Job) -> Predict:
    """Fit trees with vector leaves, which support one direction for all outputs."""
    from xgboost import XGBRegressor

    if np.any(job.directions != job.directions[:, :1]):
        raise Unavailable("it takes one direction for all outputs")
    model = XGBRegressor(
        n_estimators=job.rounds, learning_rate=RATE, max_leaves=job.leaves, max_depth=0,
        grow_policy="lossguide", min_child_weight=LEAST, tree_method="hist", n_jobs=job.threads,
        multi_strategy="multi_output_tree", early_stopping_rounds=job.patience,
        monotone_constraints=tuple(job.directions[:, 0].tolist()),
    )  # fmt: skip
    model.fit(job.X, job.y, eval_set=[(job.X_stop, job.y_stop)], verbose=False)
    return lambda X: model.predict(X).reshape(len(X), -1)


def lightgbm(job: Job) -> Predict:
    """Fit one model per output."""
    import lightgbm

    models = []
    for k, y in enumerate(job.y.T):
        model = lightgbm.LGBMRegressor(
            n_estimators=job.rounds, learning_rate=RATE, num_leaves=job.leaves,
            min_child_samples=LEAST,
            reg_lambda=1, n_jobs=job.threads, verbose=-1, monotone_constraints_method="advanced",
            monotone_constraints=job.directions[:, k].tolist(),
        )  # fmt: skip
        stop = lightgbm.early_stopping(job.patience, verbose=False)
        model.fit(job.X, y, eval_set=[(job.X_stop, job.y_stop[:, k])], callbacks=[stop])
        models.append(model)
    return lambda X: np.column_stack([model.predict(X) for model in models])


METHODS: dict[str, Callable[[Job], Predict]] = {
    "Polyleaf": polyleaf,
    "a tree per output": tree_each,
    "free": free,
    "XGBoost": xgboost,
    "LightGBM, advanced": lightgbm,
}


# --- measures ---


def disobeyed(predict: Predict, X: np.ndarray, directions: np.ndarray, seed: int) -> float:
    """Return the % of row pairs whose predictions violate the directions.

    One row of each pair is moved along an output's directions.
    """
    rng = np.random.default_rng(seed)
    rows = X[rng.integers(len(X), size=MOVED)]
    spread = np.nanstd(X, axis=0)
    wrong = 0.0
    for k in range(directions.shape[1]):
        step = np.abs(rng.normal(size=rows.shape)) * spread * (rng.random(rows.shape) < 0.3)
        moved = (rows + step * directions[:, k]).astype(np.float32)
        wrong += np.mean(predict(moved)[:, k] < predict(rows)[:, k])
    return 100 * wrong / directions.shape[1]


def monotone(context: Context, method: str, problem: str) -> Figures:
    """Return `error` and `disobeyed`, one number per repeat.

    `error` is the RMSE in units of each output's standard deviation, averaged over outputs; see the
    function `disobeyed` for the other.
    """
    _check_installed(method)
    figures: dict[str, list[float]] = {"error": [], "disobeyed": []}
    for seed, (job, X_test, y_test) in enumerate(jobs(context, problem)):
        predict = METHODS[method](job)
        figures["error"].append(error(predict, X_test, y_test))
        figures["disobeyed"].append(disobeyed(predict, X_test, job.directions, seed))
    return dict(figures)


def error(predict: Predict, X: np.ndarray, y: np.ndarray) -> float:
    """Return the RMSE in units of each output's standard deviation, averaged over outputs."""
    squares = np.mean((predict(X) - y) ** 2, axis=0)
    return float(np.mean(np.sqrt(squares) / y.std(axis=0)))


def obedience(context: Context, method: str, problem: str) -> Figures:
    """Return `error` with directions, `free` without them, and the `ratio` of the two.

    Each has one number per repeat; both models are of the same library.
    """
    _check_installed(method)
    figures: dict[str, list[float]] = {"error": [], "free": [], "ratio": []}
    for job, X_test, y_test in jobs(context, problem, MORE_REPEATS):
        both = job, replace(job, directions=np.zeros_like(job.directions))
        constrained, free_error = (error(METHODS[method](each), X_test, y_test) for each in both)
        figures["error"].append(constrained)
        figures["free"].append(free_error)
        figures["ratio"].append(constrained / free_error)
    return dict(figures)


def cost(context: Context, method: str, problem: str) -> Figures:
    """Return `ms` of processor time per round, and `times`: the ratio to fits without directions.

    The fits with and without directions are interleaved.
    """
    _check_installed(method)
    n, n_outputs, leaves = (int(part.split()[0].replace(",", "")) for part in problem.split(" x "))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(context.rows(n), 20)).astype(np.float32)
    y = np.tanh(X @ rng.normal(size=(20, n_outputs))) + 0.3 * rng.normal(size=(len(X), n_outputs))
    directions = np.repeat(rng.choice([-1, 0, 1], size=(20, 1)), n_outputs, axis=1).astype(np.int8)
    rounds = context.rounds(20)
    job = Job(X, y, X[:50], y[:50], directions, context.threads, rounds, rounds, leaves)
    figures: dict[str, list[float]] = {"ms": [], "times": []}
    METHODS[method](replace(job, rounds=1))  # import libraries outside the timed part
    for _ in context.seeds(REPEATS):
        seconds = []
        for each in (job, replace(job, directions=np.zeros_like(directions))):
            begin = time.process_time()
            METHODS[method](each)
            seconds.append(time.process_time() - begin)
        figures["ms"].append(1000 * seconds[0] / rounds)
        figures["times"].append(seconds[0] / seconds[1])
    return dict(figures)


def _check_installed(method: str) -> None:
    for name in ("XGBoost", "LightGBM"):
        if method.startswith(name):
            require_module(name.lower())


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
_SHOWN: dict[str, tuple[str, Literal["lower"] | None, int]] = {
    "error": ("RMSE / deviation", "lower", 4),
    "free": ("RMSE / deviation", "lower", 4),
    "ratio": ("ratio", "lower", 3),
    "disobeyed": ("% of pairs", None, 2),
    "ms": ("ms", None, 1),
    "times": ("times", None, 2),
}


def _table(
    name: str, title: str, how: str, methods: Iterable[str], figure: str, sets: Iterable[str] = ()
) -> Table:
    shown = _SHOWN[figure]
    subjects = [Subject(kind, *shown, f"{kind}, {how}", figure) for kind in MADE]
    subjects += [Subject(kind, *shown, f"{kind}, {how}", figure, needs=(kind,)) for kind in sets]
    what = {"also": tuple(methods), "ours": ("Polyleaf",), "subjects_are": "rows"}
    return Table(name, title, tuple(subjects), monotone, _PROTOCOL, **what)


def _constraint_table(name: str, title: str, figure: str) -> Table:
    problems = {f"{kind}, {how}": kind for how in ("one", "shared") for kind in ("few rows", "enb")}
    subjects = tuple(
        Subject(problem, *_SHOWN[figure], problem, figure, needs=(kind,) if kind in REAL else ())
        for problem, kind in problems.items()
    )
    libraries = ("Polyleaf", "XGBoost", "LightGBM, advanced")
    what = {"also": libraries, "ours": ("Polyleaf",), "subjects_are": "rows"}
    return Table(
        name, title, subjects, obedience, f"As shared, error, with {MORE_REPEATS} repeats.", **what
    )


def _cost_table(name: str, title: str, figure: str) -> Table:
    subjects = tuple(Subject(problem, *_SHOWN[figure], figure=figure) for problem in COSTS)
    what = {
        "also": ("Polyleaf", "XGBoost", "LightGBM, advanced"),
        "ours": ("Polyleaf",),
        "subjects_are": "rows",
    }
    return Table(name, title, subjects, cost, _COST, **what)


_OF_ONE = ("Polyleaf", "free", "XGBoost", "LightGBM, advanced")

PAPER = Paper(
    __name__,
    "Monotone constraints",
    "What constraints gain, what they cost, and who keeps to them.",
    (
        _table(
            "Shared, error", "directions that all outputs share", "shared", METHODS, "error", REAL
        ),
        _table("Own, error", "directions of each output's own", "own", METHODS, "error"),
        _table("One, error", "one output", "one", _OF_ONE, "error", ONE),
        _table(
            "Shared, disobeyed", "who keeps to directions", "shared", METHODS, "disobeyed", REAL
        ),
        _constraint_table("Few rows, error", "where others are ahead, more often", "error"),
        _constraint_table("Few rows, free", "the same without directions", "free"),
        _constraint_table(
            "Few rows, ratio", "what directions make of each library's own error", "ratio"
        ),
        _cost_table("Cost, times", "times the fit without directions", "times"),
        _cost_table("Cost, ms", "milliseconds of the processor a round", "ms"),
    ),
    golden=("defaults", "defaults, one output"),
)
