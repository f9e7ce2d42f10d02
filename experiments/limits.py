"""Efficiency of training and prediction in time, memory and threads, compared with other libraries.

Times are processor times of all threads together unless stated otherwise, so that they are valid on
a machine with other load.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from . import memory
from .harness.context import Context, Unavailable, require_module
from .harness.paper import Figure, Figures, Paper, Run, Subject, Table

REPEATS = 3  # the minimum counts
N_TREES = 10_000  # of the model that is loaded
ROWS = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)  # of one tree

Call = Callable[[], Any]


@dataclass(frozen=True)
class Work:
    """Data and settings of a measurement.

    Attributes: features `X` and targets `y`; `task` as in data sets; and the settings common to all
    libraries.
    """

    X: Any
    y: np.ndarray
    task: str
    rounds: int
    leaves: int = 64
    depth: int | None = None


# --- the workloads ---


def _sixteen(context: Context) -> Work:
    rng, n = np.random.default_rng(0), context.rows(40_000)
    X = rng.standard_normal((n, 50), dtype=np.float32)
    smooth = np.tanh(X[:, :20] @ rng.standard_normal((20, 20)) * 0.5)
    y = smooth @ rng.standard_normal((20, 16)) + 0.3 * rng.standard_normal((n, 16))
    return Work(X, y.astype(np.float32), "regression", context.rounds(50), depth=6)


def _one(context: Context) -> Work:
    rng, n = np.random.default_rng(0), context.rows(1_000_000)
    X = rng.standard_normal((n, 28), dtype=np.float32)
    score = X[:, 0] * X[:, 1] + np.sin(X[:, 2] * 2) + X[:, 3]
    return Work(
        X, (score > 0.3 * rng.standard_normal(n)).astype(np.int64), "binary", context.rounds(50)
    )


def _words(context: Context) -> Work:
    """Make rows with few of 30,000 words each, a fiftieth of which are informative."""
    rng, n = np.random.default_rng(0), context.rows(20_000)
    X = sp.random(n, 30_000, density=0.002, format="csr", random_state=0, dtype=np.float32)
    weight = rng.standard_normal(30_000) * (rng.random(30_000) < 0.02)
    return Work(X, (X @ weight).astype(np.float32), "regression", context.rounds(50), leaves=31)


WORK: dict[str, Callable[[Context], Work]] = {
    "16 targets": _sixteen,
    "one output": _one,
    "sparse words": _words,
}


# --- the libraries ---


def _polyleaf(work: Work, threads: int, **more: Any) -> Any:
    from polyleaf import PolyleafClassifier, PolyleafRegressor

    estimator = PolyleafRegressor if work.task == "regression" else PolyleafClassifier
    # All features for each node, as in the other libraries.
    shape = {
        "max_leaves": work.leaves,
        "max_depth": work.depth,
        "max_bins": 255,
        "colsample_bynode": 1.0,
    }
    est = estimator(n_estimators=work.rounds, learning_rate=0.1, n_jobs=threads, **shape, **more)
    return est.fit(work.X, work.y)


def _xgboost(work: Work, threads: int) -> Any:
    import xgboost

    estimator = xgboost.XGBRegressor if work.task == "regression" else xgboost.XGBClassifier
    shape = {
        "max_leaves": work.leaves,
        "max_depth": work.depth or 0,
        "max_bin": 255,
        "tree_method": "hist",
    }
    if work.depth is None:
        shape["grow_policy"] = "lossguide"
    if work.y.ndim > 1:
        shape["multi_strategy"] = "multi_output_tree"
    est = estimator(n_estimators=work.rounds, learning_rate=0.1, n_jobs=threads, **shape)
    return est.fit(work.X, work.y)


class _OnePerTarget(list[Any]):
    def predict(self, X: Any) -> np.ndarray:
        return np.stack([model.predict(X) for model in self], axis=1)


def _lightgbm(work: Work, threads: int) -> Any:
    import lightgbm

    estimator = lightgbm.LGBMRegressor if work.task == "regression" else lightgbm.LGBMClassifier
    shape = {
        "num_leaves": work.leaves,
        "max_depth": work.depth or -1,
        "max_bin": 255,
        "verbose": -1,
    }

    def fit(y: np.ndarray) -> Any:
        est = estimator(n_estimators=work.rounds, learning_rate=0.1, n_jobs=threads, **shape)
        return est.fit(work.X, y)

    return fit(work.y) if work.y.ndim == 1 else _OnePerTarget(fit(y) for y in work.y.T)


METHODS: dict[str, Callable[[Work, int], Any]] = {
    "Polyleaf": _polyleaf,
    "XGBoost": _xgboost,
    "LightGBM": _lightgbm,
}


# --- the measures ---


def _shortest(call: Call, repeats: int, clock: Callable[[], float] = time.process_time) -> float:
    taken = []
    for _ in range(repeats):
        begun = clock()
        call()
        taken.append(clock() - begun)
    return min(taken)


def _warm(method: str) -> None:
    """Run a library once, to exclude one-time costs from the timing."""
    rng = np.random.default_rng(0)
    METHODS[method](Work(rng.random((300, 3), np.float32), rng.random(300), "regression", 2), 1)


def _repeats(context: Context) -> int:
    return 1 if context.quick else REPEATS


def training(context: Context, method: str, problem: str) -> Figures:
    """Return `seconds` of a fit with binning, and `memory`: peak MB above the data in the first
    fit.
    """
    require_module(method.lower())
    _warm(method)
    work = WORK[problem](context)
    fit = partial(METHODS[method], work, context.threads)
    most = _most_memory(fit)
    return {"seconds": _shortest(fit, _repeats(context)), "memory": most}


def _most_memory(call: Call) -> float:
    """Return the peak MB above the memory held before the call."""
    grown = memory.growth(call)
    if grown is None:
        raise Unavailable("the most memory held cannot be told apart here")
    return grown / 2**20


def threads(context: Context, method: str, problem: str) -> Figures:
    """Return `ratio`: wall time of one thread over that of two, minimum of alternating fits."""
    require_module(method.lower())
    _warm(method)
    work = WORK[problem](context)
    taken: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(_repeats(context)):
        for n, found in taken.items():
            found.append(_shortest(partial(METHODS[method], work, n), 1, time.perf_counter))
    return {"ratio": min(taken[1]) / min(taken[2])}


def predicting(context: Context, method: str, problem: str) -> Figures:
    """Return `ms` to predict 5,000 rows of the training data."""
    require_module(method.lower())
    work = WORK[problem](context)
    model, rows = METHODS[method](work, context.threads), work.X[:5_000]
    return {"ms": 1e3 * _shortest(lambda: model.predict(rows), 10 * _repeats(context))}


def kinds(context: Context, method: str, problem: str) -> Figures:
    """Return `ratio`: time of a fit with the parameters of `problem` over one without."""
    more, make = KINDS[problem]
    work = make(context)
    _polyleaf(work, context.threads, **more)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(_repeats(context)):
        for asked, found in seconds.items():
            fit = partial(_polyleaf, work, context.threads, **(more if asked else {}))
            found.append(_shortest(fit, 1))
    return {"ratio": min(seconds[True]) / min(seconds[False])}


def _letter(context: Context) -> Work:
    data = context.load("letter")
    rows = slice(context.rows(len(data.y)))
    return Work(data.X[rows], data.y[rows], "multiclass", context.rounds(20), leaves=31)


def _sixteen_by_leaves(context: Context) -> Work:
    work = _sixteen(context)
    return Work(work.X[:, :28], work.y, work.task, context.rounds(20))


def _one_by_leaves(context: Context) -> Work:
    work = _sixteen_by_leaves(context)
    return Work(work.X, work.y[:, 0], work.task, work.rounds)


KINDS: dict[str, tuple[dict[str, Any], Callable[[Context], Work]]] = {
    "letter, layer by layer": ({"boosting_step": "layer", "grow_policy": "depthwise"}, _letter),
    "linear leaves, one output": ({"leaf": "linear"}, _one_by_leaves),
    "linear leaves, 16 outputs": ({"leaf": "linear"}, _sixteen_by_leaves),
}


# Source of the tree structure, for very many outputs.
LABELS: dict[str, Callable[[Work, int], Any]] = {
    "Polyleaf, random projection": partial(_polyleaf, sketch="random_projection"),
    "Polyleaf, top outputs": partial(_polyleaf, sketch="top_outputs"),
    "XGBoost": _xgboost,
}


def labels(context: Context, method: str, problem: str) -> Figures:
    """Return times of fits with many labels.

    Figures: `round` in ms, half the difference of fits of three rounds and of one; `five`, seconds
    of a fit of five rounds, including binning.
    """
    require_module("xgboost" if method == "XGBoost" else "polyleaf")
    data = context.load(problem)
    rows = slice(context.rows(len(data.y)))
    X, y = np.asarray(data.X[rows], np.float32), data.y[rows]

    def fit(rounds: int) -> Call:
        return lambda: LABELS[method](Work(X, y, "multilabel", rounds), context.threads)

    fit(1)()
    one, three = (_shortest(fit(n), _repeats(context)) for n in (1, 3))
    return {"round": 1e3 * (three - one) / 2, "five": _shortest(fit(5), 1)}


def loading(context: Context, method: str, problem: str) -> Figures:
    """Return `load` and `first` in ms: a model of many 8-leaf trees from its file, and its first
    row.
    """
    require_module(method.lower())
    rng, n_trees = np.random.default_rng(0), context.rows(N_TREES)
    X = rng.random((2_000, 10), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        load = LOADING[method](
            X, X[:, 0] * X[:, 1] + 0.1 * rng.random(2_000), n_trees, str(Path(folder) / "model")
        )
        load().predict(X[:1])
        found = [_load_and_predict(load, X[:1]) for _ in range(3 * _repeats(context))]
    return {"load": min(load for load, _ in found), "first": min(first for _, first in found)}


def _load_and_predict(load: Call, row: np.ndarray) -> tuple[float, float]:
    begun = time.process_time()
    model = load()
    loaded = time.process_time()
    model.predict(row)
    return 1e3 * (loaded - begun), 1e3 * (time.process_time() - loaded)


def _polyleaf_file(X: np.ndarray, y: np.ndarray, n_trees: int, path: str) -> Call:
    from polyleaf import PolyleafRegressor, load_model

    PolyleafRegressor(n_estimators=n_trees, max_leaves=8, learning_rate=0.01, n_jobs=1).fit(
        X, y
    ).save_model(path)
    return lambda: load_model(path)


def _xgboost_file(X: np.ndarray, y: np.ndarray, n_trees: int, path: str) -> Call:
    import xgboost

    shape = {"max_leaves": 8, "max_depth": 0, "grow_policy": "lossguide", "tree_method": "hist"}
    est = xgboost.XGBRegressor(n_estimators=n_trees, learning_rate=0.01, n_jobs=1, **shape).fit(
        X, y
    )
    est.save_model(path + ".ubj")

    def load() -> Any:
        model = xgboost.XGBRegressor(n_jobs=1)
        model.load_model(path + ".ubj")
        return model

    return load


def _lightgbm_file(X: np.ndarray, y: np.ndarray, n_trees: int, path: str) -> Call:
    import lightgbm

    shape = {"num_leaves": 8, "learning_rate": 0.01, "verbose": -1}
    lightgbm.LGBMRegressor(n_estimators=n_trees, n_jobs=1, **shape).fit(X, y).booster_.save_model(
        path
    )
    return lambda: lightgbm.Booster(model_file=path)


def _catboost_file(X: np.ndarray, y: np.ndarray, n_trees: int, path: str) -> Call:
    import catboost

    shape = {"depth": 3, "learning_rate": 0.01, "thread_count": 1, "verbose": False}
    catboost.CatBoostRegressor(n_estimators=n_trees, allow_writing_files=False, **shape).fit(
        X, y
    ).save_model(path)
    return lambda: catboost.CatBoostRegressor().load_model(path)


LOADING = {
    "Polyleaf": _polyleaf_file,
    "XGBoost": _xgboost_file,
    "LightGBM": _lightgbm_file,
    "CatBoost": _catboost_file,
}


def rows(context: Context, method: str, problem: str) -> Figures:
    """Return `curves["tree"]`: rows, and nanoseconds per row of one tree.

    The time includes derivatives and leaf values.
    """
    curve = []
    for n in ROWS[:1] if context.quick else ROWS:
        n = context.rows(n)
        rng = np.random.default_rng(0)
        X = rng.random((n, 50), np.float32)
        y = np.stack([X[:, k] * X[:, k + 1] for k in range(4)], axis=1)
        curve.append([n, _get_tree(X, y, context.threads) * 1e9 / n])
    return {"curves": {"tree": curve}, "largest over smallest": curve[-1][1] / curve[0][1]}


def _get_tree(X: np.ndarray, y: np.ndarray, threads: int) -> float:
    """Return seconds of a tree: a fit of three trees minus a fit of one, on existing bins."""
    from polyleaf import Dataset, PolyleafRegressor

    data = Dataset(X, y, n_jobs=threads)

    def fit(rounds: int) -> Call:
        return lambda: PolyleafRegressor(n_estimators=rounds, max_leaves=64, n_jobs=threads).fit(
            data
        )

    fit(1)()
    return (_shortest(fit(3), 2) - _shortest(fit(1), 2)) / 2


# --- the tables ---

_PEERS = ("Polyleaf", "XGBoost", "LightGBM")
_TRAINING = (
    "16 targets: 40,000 rows of 50 features, 50 rounds of depth 6; one output: 1,000,000 rows of "
    "28, "
    "two classes, 50 rounds of 64 leaves, best first; sparse words: 20,000 rows of 60 of 30,000 "
    "columns, 50 "
    "rounds of 31 leaves. 255 bins, learning rate .1; XGBoost with vector leaves, LightGBM a "
    "model for each "
    f"target. The shortest of {REPEATS} fits in one process, what a library does once left out, "
    "binning not."
)
_PROBLEMS = tuple(WORK)


def _compare(
    name: str,
    title: str,
    shown: tuple[str, Literal["higher", "lower"], int],
    run: Run,
    protocol: str,
    figure: str,
    problems: Sequence[str] = _PROBLEMS,
) -> Table:
    """Return a table of one figure for all libraries.

    `shown` holds the unit, the better direction and the digits.
    """
    subjects = tuple(Subject(problem, *shown, figure=figure) for problem in problems)
    return Table(name, title, subjects, run, protocol, also=_PEERS, ours=("Polyleaf",))


PAPER = Paper(
    __name__,
    "Resource limits",
    "Time, memory and threads of what is left between the kernels and the whole, beside other "
    "libraries.",
    (
        _compare(
            "training", "processor time of a fit", ("s", "lower", 3), training, _TRAINING, "seconds"
        ),
        _compare(
            "memory",
            "memory above the data, at most",
            ("MB", "lower", 0),
            training,
            "Of the first fit: held at most, less what is held before, when features and targets "
            "are there.",
            "memory",
        ),
        _compare(
            "threads",
            "one thread over two, by the clock on the wall",
            ("ratio", "higher", 2),
            threads,
            "Fits with one and two threads in turns. Means nothing on a machine that has other "
            "work.",
            "ratio",
            _PROBLEMS[:2],
        ),
        _compare(
            "prediction",
            "processor time to predict 5,000 rows",
            ("ms", "lower", 2),
            predicting,
            "With the models of the table of training.",
            "ms",
        ),
        Table(
            "kinds",
            "processor time of a fit over that of constant leaves, whole trees",
            tuple(
                Subject(
                    name,
                    "ratio",
                    None,
                    2,
                    figure="ratio",
                    needs=("letter",) if "letter" in name else (),
                )
                for name in KINDS
            ),
            kinds,
            "Letter: 20 rounds of 31 leaves. Linear leaves: 40,000 rows of 28 features, 20 rounds "
            "of 64.",
            also=("Polyleaf",),
            ours=("Polyleaf",),
        ),
        Table(
            "labels",
            "983 labels, dense",
            (
                Subject(
                    "a round",
                    "ms",
                    "lower",
                    1,
                    problem="delicious",
                    figure="round",
                    needs=("delicious",),
                ),
                Subject(
                    "five rounds",
                    "s",
                    "lower",
                    2,
                    problem="delicious",
                    figure="five",
                    needs=("delicious",),
                ),
            ),
            labels,
            "Delicious, all its rows, trees of 64 leaves. Processor time; a round: half of what "
            "fits of "
            f"three take longer than fits of one, the shortest of {REPEATS}; five rounds: with "
            "binning. "
            "XGBoost with vector leaves.",
            also=tuple(LABELS),
            ours=("Polyleaf, random projection", "Polyleaf, top outputs"),
        ),
        Table(
            "loading",
            f"a model of {N_TREES:,} trees of 8 leaves",
            (
                Subject("from its file", "ms", "lower", 1, problem="10,000 trees", figure="load"),
                Subject("first row", "ms", "lower", 2, problem="10,000 trees", figure="first"),
            ),
            loading,
            "Processor time, the shortest of nine; each library's own format; the system has the "
            "file "
            "in memory; one thread. CatBoost's trees are symmetric ones of depth 3.",
            also=("Polyleaf", "XGBoost", "LightGBM", "CatBoost"),
            ours=("Polyleaf",),
        ),
        Figure(
            "rows",
            "One tree by the number of rows",
            (Subject("50 features, 4 outputs", "ns a row", None, 0),),
            rows,
            "Processor time of a tree of 64 leaves, derivatives and leaf values included, binning "
            "not; half "
            "the difference of fits of three trees and of one.",
            lines=("Polyleaf",),
            curves=("tree",),
            x="rows",
            y="ns a row",
            log="x",
        ),
    ),
    golden=("defaults", "defaults, one output", "defaults, classes"),
)
