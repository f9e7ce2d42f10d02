"""Rankings beside XGBoost, LightGBM and CatBoost: NDCG for one goal, fronts of several, clicks.

All libraries train as many rounds of as many leaves at the same rate, on the same threads. The
second goal of the real data is a column of high correlation with the relevance, taken out of X and
cut at quartiles.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import GroupKFold

from polyleaf import PolyleafRanker, RowData
from polyleaf.metrics.queries import QueryMetric

from .harness.context import Context, require_module
from .harness.paper import Figures, Paper, Subject, Table, make_table
from .sets import find

ROUNDS, RATE, LEAVES, REPEATS = 200, 0.05, 31, 5
DATA = "ranking_lightgbm"
N_TRADE_OFFS = 9
# Options of Polyleaf's fronts, by the end of the method's name.
FRONT_OPTIONS: dict[str, dict[str, Any]] = {
    f", {4 * ROUNDS} rounds": {"n_estimators": 4 * ROUNDS},
    ", sketched": {
        "n_estimators": 3 * ROUNDS // 2,
        "learning_rate": 2 * RATE,
        "max_leaves": (LEAVES + 1) // 2 - 1,
        "subsample": 0.5,
        "sketch": "random_projection",
        "sketch_dim": 4,
    },
}
FRONT_QUERIES, FRONT_DOCUMENTS, FRONT_TEST_QUERIES = 400, 25, 200
LISTS, SHOWN = 2_000, 10
# Sizes of the simulated data of one goal, and shares of relevances of at least 1 to 4, as in
# MSLR-WEB.
N_QUERIES, N_DOCUMENTS, N_FEATURES, N_TEST_QUERIES = 2_000, 100, 136, 500
SHARES = (0.48, 0.16, 0.03, 0.01)


class Kind(NamedTuple):
    """A kind of simulated problem: sizes, and how relevances come from features."""

    n_queries: int = 250
    n_documents: tuple[int, int] = (15, 35)  # the least and most of a query
    n_features: int = 20
    shares: tuple[float, ...] = SHARES  # of relevances of at least 1, 2, ...
    noise: float = 1.0
    interactions: float = 1.0  # size of the maxima of two features, beside a linear part
    by_query: bool = False  # a feature of the query turns the part of another one


# Problems that took part in no choice, of three seeds from this one.
FIRST_SEED = 5_000
KINDS = {
    "graded judgements": Kind(),
    "two grades": Kind(shares=(0.2,)),
    "one relevant document in fifty": Kind(shares=(0.02,)),
    "few documents, many queries": Kind(1_000, (3, 8)),
    "many documents, few queries": Kind(40, (100, 250)),
    "eighty features without a signal": Kind(n_features=100),
    "noisy judgements": Kind(noise=4.0),
    "the query decides what matters": Kind(interactions=3.0, noise=0.5, by_query=True),
}


class Part(NamedTuple):
    """Rows in the order of their queries; y is (n,), or (n, K) for several goals."""

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


def _simulate_kind(seed: int, kind: Kind) -> list[Part]:
    """Return training rows, and test rows of twice as many queries."""
    rng, n = np.random.default_rng(seed), 3 * kind.n_queries
    query = np.repeat(np.arange(n), rng.integers(*kind.n_documents, n, endpoint=True))
    X = rng.normal(size=(len(query), kind.n_features))
    weights, pairs = rng.normal(size=6), rng.permutation(12).reshape(-1, 2)
    signal = X[:, :6] @ weights
    if kind.by_query:
        X[:, -1] = rng.normal(size=n)[query]
        signal += 3 * X[:, 0] * np.sign(X[:, -1])
    signal += kind.interactions * sum(np.maximum(X[:, i], X[:, j]) for i, j in pairs)
    signal += kind.noise * signal.std() * rng.normal(size=len(query))
    limits = np.quantile(signal, 1 - np.array(kind.shares))
    part = Part(X, np.searchsorted(limits, signal).astype(np.float64), query)
    is_training = query < kind.n_queries
    return [part.take(np.flatnonzero(mask)) for mask in (is_training, ~is_training)]


def _iterate(context: Context, problem: str) -> Iterator[tuple[Part, Part, int]]:
    """Yield training rows, test rows and a seed."""
    if problem.startswith("simulated, "):
        for seed in context.seeds(REPEATS):
            n_goals = ("two", "three", "four").index(problem.split()[1]) + 2
            yield *_simulate_goals(context, seed, n_goals), seed
        return
    if problem in KINDS:
        for seed in context.seeds(3):
            kind = KINDS[problem]
            if context.quick:
                kind = kind._replace(n_queries=10)
            yield *_simulate_kind(FIRST_SEED + seed, kind), seed
        return
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


def _simulate_goals(context: Context, seed: int, n_goals: int) -> list[Part]:
    """Return training and test rows; a goal is a feature less those of the others, and a product.

    They share the last product.
    """
    rng = np.random.default_rng(seed)
    n_train, n_test = (15, 5) if context.quick else (FRONT_QUERIES, FRONT_TEST_QUERIES)
    query = np.repeat(np.arange(n_train + n_test), FRONT_DOCUMENTS)
    X = rng.normal(size=(len(query), 20))
    first, products = X[:, :n_goals], X[:, 8:13] * X[:, 13:18]
    signal = 1.5 * first - 0.5 * first.sum(axis=1, keepdims=True) + products[:, :n_goals]
    signal += products[:, [4]] + rng.normal(size=signal.shape)
    limits = np.quantile(signal, 1 - np.array(SHARES), axis=0)
    y = (signal[:, :, None] > limits.T).sum(axis=2).astype(np.float64)
    part = Part(X, y, query)
    return [part.take(np.flatnonzero(mask)) for mask in (query < n_train, query >= n_train)]


def _simulate_clicks(context: Context, seed: int, problem: str) -> tuple[Part, Part]:
    """Return clicks and relevances of the same rows, which are in the order of their positions.

    Users look at position p with the probability 1 / p, and click by the gain of the relevance.
    """
    rng, n = np.random.default_rng(seed), 20 if context.quick else LISTS
    X = rng.normal(size=(n, SHOWN, 8))
    score = X[..., 0] + X[..., 1] * (X[..., 2] > 0) + 0.5 * np.abs(X[..., 3])
    relevance = np.digitize(score + 0.3 * rng.normal(size=score.shape), [-0.5, 0.7, 1.5, 2.3])
    weight = {"another feature": 2 * X[..., 5], "chance": 0.0, "relevance": score}[problem]
    order = np.argsort(-(weight + rng.normal(size=score.shape)), axis=1)
    X = np.take_along_axis(X, order[..., None], axis=1).reshape(-1, X.shape[2])
    relevance = np.take_along_axis(relevance, order, axis=1)
    chance = (0.05 + 0.95 * (2.0**relevance - 1) / 15) / np.arange(1, SHOWN + 1)
    clicks, query = rng.random(chance.shape) < chance, np.repeat(np.arange(n), SHOWN)
    return tuple(Part(X, y.ravel().astype(np.float64), query) for y in (clicks, relevance))


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


def _polyleaf(
    objective: str,
    part: Part,
    context: Context,
    seed: int,
    positions: np.ndarray | None = None,
    **options: Any,
) -> Any:
    defaults = {"n_estimators": ROUNDS, "learning_rate": RATE, "max_leaves": LEAVES}
    model = PolyleafRanker(objective, n_jobs=context.threads, random_state=seed)
    model.set_params(**defaults | options)
    model.set_params(n_estimators=context.rounds(model.n_estimators))
    return model.fit(part.X, part.y, qid=part.query, positions=positions).predict


def _lightgbm(
    objective: str,
    part: Part,
    context: Context,
    seed: int,
    positions: np.ndarray | None = None,
    **options: Any,
) -> Any:
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
    data = lightgbm.Dataset(part.X, part.y, group=part.sizes, position=positions)
    return lightgbm.train(parameters, data, context.rounds(ROUNDS)).predict


def _xgboost(
    objective: str, part: Part, context: Context, seed: int, positions: np.ndarray | None = None
) -> Any:
    require_module("xgboost")
    import xgboost

    parameters = {
        "objective": objective,
        "grow_policy": "lossguide",
        "max_leaves": LEAVES,
        "max_depth": 0,
        "eta": RATE,
        "nthread": context.threads,
        "lambdarank_unbiased": positions is not None,  # positions are the order of the rows
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
OURS = ("Polyleaf xendcg", "Polyleaf lambdarank", "Polyleaf pairwise", "Polyleaf yetirank")
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
    """Return the `volume` of the front of NDCG@10 of several goals, and processor `seconds`.

    The volume is that of the points that are at most as good as one of the trade-offs. LightGBM
    trains one model for each: a label is the rank of a weighted sum of gains, which is its gain.
    """
    name, comma, end = method.partition(",")
    library, _, objective = name.partition(" ")
    options = dict(FRONT_OPTIONS[comma + end]) if end else {}
    figures: Figures = {"volume": [], "seconds": []}
    for train, test, seed in _iterate(context, problem):
        n_goals = train.y.shape[1]
        weights = _spread_weights(n_goals, n_goals + 1 if context.quick else N_TRADE_OFFS)
        before = time.process_time()
        if library == "Polyleaf":
            options |= {"goal_weights": weights}
            predict = _polyleaf(objective, train, context, seed, **options)
            figures["seconds"].append(time.process_time() - before)
            scores = predict(test.X)
        else:
            models = []
            for w in weights:
                gains, labels = np.unique((2.0**train.y - 1) @ w, return_inverse=True)
                joint = train._replace(y=labels)
                models.append(_lightgbm(objective, joint, context, seed, label_gain=list(gains)))
            figures["seconds"].append(time.process_time() - before)
            scores = np.column_stack([predict(test.X) for predict in models])
        goals = range(n_goals)
        points = [[_ndcg(test, column, 10, goal) for goal in goals] for column in scores.T]
        figures["volume"].append(_compute_volume(np.array(points)))
    return figures


def _spread_weights(n_goals: int, n: int) -> np.ndarray:
    """Return n weights of goals: from each of the goals towards their mean, and the mean."""
    levels = n // n_goals
    shares = 1 - np.arange(levels) / levels * (1 - 1 / n_goals)
    weights = [
        np.where(np.eye(n_goals) > 0, share, (1 - share) / (n_goals - 1)) for share in shares
    ]
    weights += [np.full((n - levels * n_goals, n_goals), 1 / n_goals)]
    return np.array(sorted(np.concatenate(weights).tolist(), reverse=True))


def _compute_volume(points: np.ndarray) -> float:
    """Return the volume between 0 and points (n, K) of positive coordinates."""
    if points.shape[1] == 1:
        return float(points.max())
    points = points[np.argsort(-points[:, -1])]
    heights = -np.diff(points[:, -1], append=0.0)
    return sum(_compute_volume(points[: i + 1, :-1]) * h for i, h in enumerate(heights) if h > 0)


def clicks(context: Context, method: str, problem: str) -> Figures:
    """Return NDCG@5 of relevance of models of clicks, `with` positions and `without`."""
    library, _, objective = method.partition(" ")
    figures: Figures = {"without": [], "with": []}
    for seed in context.seeds(REPEATS):
        train = _simulate_clicks(context, 2 * seed, problem)[0]
        test = _simulate_clicks(context, 2 * seed + 1, problem)[1]
        positions = np.tile(np.arange(SHOWN), len(train.sizes))
        for name, known in (("without", None), ("with", positions)):
            predict = LIBRARIES[library](objective, train, context, seed, positions=known)
            figures[name].append(_ndcg(test, predict(test.X), 5))
    return figures


# --- tables ---

_FRONT_PROBLEMS = {
    **dict.fromkeys(("two goals, own split", "two goals, five folds"), (DATA,)),
    **{f"simulated, {n} goals": () for n in ("two", "three", "four")},
}

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


_FRONT_FIGURES: Any = (("volume", "share", "higher", 4), ("seconds", "s", "lower", 2))
_FRONTS = (
    "Polyleaf xendcg",
    *(f"Polyleaf xendcg{end}" for end in FRONT_OPTIONS),
    "Polyleaf lambdarank",
    "Polyleaf yetirank",
    "LightGBM lambdarank",
)
_OF_KINDS = tuple(m for m in METHODS if "pairwise" not in m)
_CLICKS = (*OURS, "LightGBM lambdarank", "XGBoost rank:ndcg")

PAPER = Paper(
    __name__,
    "Ranking",
    "NDCG of test queries beside other libraries, what a front of goals costs, and clicks.",
    (
        _table("NDCG@5", "NDCG@5 of test queries", "ndcg5", "NDCG@5", 4),
        _table("NDCG@10", "NDCG@10 of test queries", "ndcg10", "NDCG@10", 4),
        _table("time", "processor seconds of a training", "seconds", "s", 2),
        make_table(
            "kinds",
            "NDCG@5 and NDCG@10 of kinds of problems that took part in no choice",
            tuple(
                Subject(f"{problem}, {title}", title, "higher", 4, problem, figure)
                for problem in KINDS
                for figure, title in (("ndcg5", "NDCG@5"), ("ndcg10", "NDCG@10"))
            ),
            ranking,
            f"{_SETTINGS} Three seeds each of simulated problems, which differ in one respect from "
            "250 queries of 15 to 35 documents with 20 features, relevances of web search and as "
            "much noise as signal.",
            _OF_KINDS,
            ours=_OF_KINDS[:3],
        ),
        make_table(
            "front",
            f"{N_TRADE_OFFS} trade-offs of goals: volume below the front, processor seconds",
            tuple(
                Subject(f"{problem}, {figure}", unit, better, digits, problem, figure, needs)
                for problem, needs in _FRONT_PROBLEMS.items()
                for figure, unit, better, digits in _FRONT_FIGURES
            ),
            front,
            f"{_SETTINGS} The second goal of the real data is a feature, cut at its quartiles; the "
            f"simulated goals contradict each other in part ({FRONT_QUERIES * FRONT_DOCUMENTS:,} x "
            "20, five seeds). Polyleaf trains one model with `goal_weights`, LightGBM a model for "
            "each trade-off, whose labels have weighted sums of the gains, which its "
            "`rank_xendcg` cannot express. Sketched: 300 rounds of 15 leaves at twice the rate, on "
            "half of the queries and four random projections of the nine gradients, chosen on "
            "other seeds.",
            _FRONTS,
            ours=_FRONTS[:-1],
        ),
        make_table(
            "clicks",
            "NDCG@5 of relevance, learned from simulated clicks without and with positions",
            tuple(
                Subject(f"shown by {problem}, {figure}", "NDCG@5", "higher", 4, problem, figure)
                for problem in ("another feature", "chance", "relevance")
                for figure in ("without", "with")
            ),
            clicks,
            f"{_SETTINGS} {LISTS:,} lists of {SHOWN}, five seeds. Users look at position p with "
            "the probability 1 / p. XGBoost: `lambdarank_unbiased`.",
            _CLICKS,
            ours=OURS,
        ),
    ),
    golden=("xendcg", "lambdarank", "pairwise", "yetirank"),
)
