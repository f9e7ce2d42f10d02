"""Rankings beside XGBoost, LightGBM and CatBoost: NDCG for one goal, and fronts of two goals.

All libraries train as many rounds of as many leaves at the same rate, on the same threads. The
second goal is a column of high correlation with the relevance, taken out of X and cut at quartiles.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import GroupKFold

from .harness.context import Context, require_module
from .harness.paper import Figures, Paper, Subject, Table, make_table
from .sets import find

ROUNDS, RATE, LEAVES, REPEATS = 200, 0.05, 31, 5
DATA = "ranking_lightgbm"
N_TRADE_OFFS = 9
# Sizes of the simulated data, and shares of its relevances 1 to 4 or more, as in MSLR-WEB.
N_QUERIES, N_DOCUMENTS, N_FEATURES, N_TEST_QUERIES = 2_000, 100, 136, 500
SHARES = (0.48, 0.16, 0.03, 0.01)


class Part(NamedTuple):
    """Rows in the order of their queries; y is (n,), or (n, 2) for two goals."""

    X: np.ndarray
    y: np.ndarray
    query: np.ndarray

    def take(self, rows: np.ndarray) -> Part:
        return Part(*(values[np.sort(rows)] for values in self))

    @property
    def sizes(self) -> np.ndarray:
        return np.unique(self.query, return_counts=True)[1]


# --- data ---


def _load(context: Context) -> tuple[Part, np.ndarray, np.ndarray]:
    with np.load(find(context.data, DATA), allow_pickle=False) as file:
        part = Part(file["X"], file["y"].astype(np.float64), file["qid"])
        return part, file["train"], file["test"]


def _simulate(seed: int, n_queries: int) -> Part:
    """Features of documents, of queries (each 8th) and heavy tails (each 3rd)."""
    rng, n = np.random.default_rng(seed), n_queries * N_DOCUMENTS
    query = np.repeat(np.arange(n_queries), N_DOCUMENTS)
    X = rng.normal(size=(n, N_FEATURES)).astype(np.float32)
    X[:, ::8] = X[::N_DOCUMENTS, ::8][query]
    signal = X[:, 1] + 0.7 * X[:, 2] * (X[:, 8] > 0) + np.abs(X[:, 3]) + X[:, 4] * X[:, 5]
    signal += 0.3 * X[:, 9:25].sum(axis=1) * rng.permutation([-1, 1])[0]
    noisy = signal + 2.0 * rng.normal(size=n) + rng.normal(size=n_queries)[query]
    limits = np.quantile(noisy, 1 - np.array(SHARES))
    X[:, ::3] = np.exp(X[:, ::3])
    return Part(X, np.searchsorted(limits, noisy).astype(np.float64), query)


def _iterate(context: Context, problem: str) -> Iterator[tuple[Part, Part, int]]:
    """Yield training rows, test rows and a seed."""
    if problem == "simulated":
        for seed in context.seeds(1):
            part = _simulate(seed, 20 if context.quick else N_QUERIES + N_TEST_QUERIES)
            is_test = part.query >= (15 if context.quick else N_QUERIES)
            yield part.take(np.flatnonzero(~is_test)), part.take(np.flatnonzero(is_test)), seed
        return
    part, train, test = _load(context)
    if problem.startswith("two goals"):
        part = _add_goal(part)
    if problem.endswith("five folds"):
        folds = GroupKFold(5, shuffle=True, random_state=0).split(part.X, groups=part.query)
        splits = list(folds)[: 2 if context.quick else None]
    else:
        splits = [(train, test) for _ in context.seeds(REPEATS)]
    for seed, (train, test) in enumerate(splits):
        yield part.take(train), part.take(test), seed


def _add_goal(part: Part) -> Part:
    """Move the column of highest correlation with the relevance from X to the goals."""
    deviations = part.X.std(axis=0)
    centred = part.X - part.X.mean(axis=0)
    correlation = (centred * (part.y - part.y.mean())[:, None]).mean(axis=0) / deviations
    chosen = int(np.argmax(np.abs(correlation)))
    values = part.X[:, chosen]
    second = np.searchsorted(np.quantile(values, [0.25, 0.5, 0.75]), values)
    goals = np.column_stack([part.y, second]).astype(np.float64)
    return Part(np.delete(part.X, chosen, axis=1), goals, part.query)


# --- libraries: functions of the training rows that return one of the test rows ---


def _polyleaf(objective: str, part: Part, context: Context, seed: int, **options: Any) -> Any:
    from polyleaf import PolyleafRanker

    model = PolyleafRanker(
        objective=objective,
        n_estimators=context.rounds(ROUNDS),
        learning_rate=RATE,
        max_leaves=LEAVES,
        n_jobs=context.threads,
        random_state=seed,
        **options,
    )
    return model.fit(part.X, part.y, qid=part.query).predict


def _lightgbm(objective: str, part: Part, context: Context, seed: int, **options: Any) -> Any:
    require_module("lightgbm")
    import lightgbm

    parameters = {
        "objective": objective,
        "num_leaves": LEAVES,
        "learning_rate": RATE,
        "num_threads": context.threads,
        "seed": seed,
        "verbose": -1,
        **options,
    }
    data = lightgbm.Dataset(part.X, part.y, group=part.sizes)
    return lightgbm.train(parameters, data, context.rounds(ROUNDS)).predict


def _xgboost(objective: str, part: Part, context: Context, seed: int) -> Any:
    require_module("xgboost")
    import xgboost

    parameters = {
        "objective": objective,
        "grow_policy": "lossguide",
        "max_leaves": LEAVES,
        "max_depth": 0,
        "eta": RATE,
        "nthread": context.threads,
        "seed": seed,
    }
    data = xgboost.QuantileDMatrix(part.X, part.y, qid=part.query)
    return xgboost.train(parameters, data, context.rounds(ROUNDS)).inplace_predict


def _catboost(objective: str, part: Part, context: Context, seed: int) -> Any:
    require_module("catboost")
    import catboost

    model = catboost.CatBoost(
        {
            "loss_function": objective,
            "grow_policy": "Lossguide",
            "max_leaves": LEAVES,
            "learning_rate": RATE,
            "iterations": context.rounds(ROUNDS),
            "thread_count": context.threads,
            "random_seed": seed,
            "allow_writing_files": False,
            "verbose": False,
        }
    )
    return model.fit(catboost.Pool(part.X, part.y, group_id=part.query)).predict


LIBRARIES: dict[str, Callable[..., Any]] = {
    "Polyleaf": _polyleaf,
    "LightGBM": _lightgbm,
    "XGBoost": _xgboost,
    "CatBoost": _catboost,
}
OURS = ("Polyleaf xendcg", "Polyleaf lambdarank", "Polyleaf pairwise")
METHODS = (
    *OURS,
    "LightGBM rank_xendcg",
    "LightGBM lambdarank",
    "XGBoost rank:ndcg",
    "XGBoost rank:pairwise",
    "CatBoost YetiRank",
)


# --- figures ---


def _ndcg(part: Part, scores: np.ndarray, k: int, goal: int = 0) -> float:
    from polyleaf import RowData
    from polyleaf.metrics.queries import QueryMetric

    y = part.y.reshape(len(part.y), -1)[:, [goal]]
    rows = RowData(y, query=part.query)
    return QueryMetric("ndcg", k).bind(rows)(np.asarray(scores).reshape(-1, 1))


def ranking(context: Context, method: str, problem: str) -> Figures:
    """Return `ndcg5` and `ndcg10` of test queries, and processor `seconds` of each training."""
    library, _, objective = method.partition(" ")
    figures: Figures = {"ndcg5": [], "ndcg10": [], "seconds": []}
    for train, test, seed in _iterate(context, problem):
        before = time.process_time()
        predict = LIBRARIES[library](objective, train, context, seed)
        figures["seconds"].append(time.process_time() - before)
        scores = predict(test.X)
        figures["ndcg5"].append(_ndcg(test, scores, 5))
        figures["ndcg10"].append(_ndcg(test, scores, 10))
    return figures


def front(context: Context, method: str, problem: str) -> Figures:
    """Return the `volume` of the front of NDCG@10 of two goals, and processor `seconds`.

    The volume is the area that is at most as good as one of the trade-offs. LightGBM trains one
    model for each: the labels are the pairs of relevances, whose gains are weighted sums.
    """
    library, _, objective = method.partition(" ")
    first = np.linspace(1.0, 0.0, 3 if context.quick else N_TRADE_OFFS)
    weights = np.column_stack([first, 1.0 - first])
    figures: Figures = {"volume": [], "seconds": []}
    for train, test, seed in _iterate(context, problem):
        before = time.process_time()
        if library == "Polyleaf":
            predict = _polyleaf(objective, train, context, seed, goal_weights=weights)
            figures["seconds"].append(time.process_time() - before)
            scores = predict(test.X)
        else:
            pairs, labels = np.unique(train.y, axis=0, return_inverse=True)
            joint = train._replace(y=labels.ravel())
            models = [
                _lightgbm(objective, joint, context, seed, label_gain=list((2.0**pairs - 1) @ w))
                for w in weights
            ]
            figures["seconds"].append(time.process_time() - before)
            scores = np.column_stack([predict(test.X) for predict in models])
        points = [[_ndcg(test, column, 10, goal) for goal in (0, 1)] for column in scores.T]
        figures["volume"].append(_compute_volume(np.array(points)))
    return figures


def _compute_volume(points: np.ndarray) -> float:
    """Return the area below the staircase of points (n, 2) of positive coordinates."""
    volume, reached = 0.0, 0.0
    for x, y in points[np.lexsort((points[:, 1], -points[:, 0]))]:
        if y > reached:
            volume, reached = volume + x * (y - reached), y
    return volume


# --- tables ---

PROBLEMS = {
    "own split": "the split of the example, five seeds",
    "five folds": "five folds of its queries",
    "simulated": f"{N_QUERIES * N_DOCUMENTS:,} x {N_FEATURES}, simulated",
}
_SETTINGS = f"{ROUNDS} rounds of {LEAVES} leaves at a rate of {RATE}, no other setting."


def _subjects(figure: str, unit: str, digits: int) -> tuple[Subject, ...]:
    better: Any = "lower" if figure == "seconds" else "higher"
    return tuple(
        Subject(title, unit, better, digits, problem, figure, () if "sim" in problem else (DATA,))
        for problem, title in PROBLEMS.items()
    )


def _table(name: str, title: str, figure: str, unit: str, digits: int) -> Table:
    protocol = (
        f"{_SETTINGS} The data are the ranking example of LightGBM (3,773 documents of 251 "
        "queries), and simulated ones with the sizes and relevances of web search."
    )
    subjects = _subjects(figure, unit, digits)
    return make_table(name, title, subjects, ranking, protocol, METHODS, ours=OURS)


_FRONT_FIGURES: Any = (("volume", "area", "higher", 4), ("seconds", "s", "lower", 2))
_FRONTS = ("Polyleaf xendcg", "Polyleaf lambdarank", "LightGBM rank_xendcg", "LightGBM lambdarank")

PAPER = Paper(
    __name__,
    "Ranking",
    "NDCG of test queries beside other libraries, and what a front of two goals costs.",
    (
        _table("NDCG@5", "NDCG@5 of test queries", "ndcg5", "NDCG@5", 4),
        _table("NDCG@10", "NDCG@10 of test queries", "ndcg10", "NDCG@10", 4),
        _table("time", "processor seconds of a training", "seconds", "s", 2),
        make_table(
            "front",
            f"{N_TRADE_OFFS} trade-offs of two goals: area below the front, processor seconds",
            tuple(
                Subject(f"{problem}, {figure}", unit, better, digits, problem, figure, (DATA,))
                for problem in ("two goals, own split", "two goals, five folds")
                for figure, unit, better, digits in _FRONT_FIGURES
            ),
            front,
            f"{_SETTINGS} The second goal is a feature, cut at its quartiles. Polyleaf trains one "
            "model with `goal_weights`, LightGBM a model for each trade-off, whose labels have "
            "weighted sums of both gains.",
            _FRONTS,
            ours=_FRONTS[:2],
        ),
    ),
    golden=("xendcg", "lambdarank", "pairwise"),
)
