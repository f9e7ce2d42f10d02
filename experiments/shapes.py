"""Processor time of training and prediction over shapes of data, beside the fastest library.

Every shape is one run: the libraries take turns in one process, so that all meet the same other
work, and every turn gives a ratio. All grow the same trees: depth 6, up to 64 leaves, 255 bins,
learning rate 0.1. CatBoost grows symmetric trees and is left out.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from .harness.context import Context, require_module
from .harness.paper import Figure, Figures, Paper, Subject, Table

VECTOR = "XGBoost, vector leaves"
LIBRARIES = ("Polyleaf", "XGBoost", VECTOR, "LightGBM")
PEERS = LIBRARIES[1:]
BOTH = ("XGBoost", "LightGBM")
TURNS, ENOUGH = 5, 8.0  # turns that are counted; seconds after which there is no further one


@dataclass(frozen=True)
class Shape:
    """Data of one size and kind.

    Attributes
    ----------
    kind : "targets", "classes", "labels", "categories" or "words"
    rows, features, outputs : int
    rounds : int
    goal : float
        Time of the fastest library over Polyleaf's that is aimed at.
    missing : float
        Fraction of missing values.
    linear : bool
        Whether leaves are linear; only LightGBM has such leaves.
    peers : tuple of str
        Libraries to compare with: those that are fast on such data.
    """

    kind: str
    rows: int
    features: int
    outputs: int
    rounds: int
    goal: float
    missing: float = 0.0
    linear: bool = False
    peers: tuple[str, ...] = ("LightGBM",)


SHAPES = {
    "1,000 x 10": Shape("targets", 1_000, 10, 1, 100, 2.0, peers=BOTH),
    "1,000 x 10, 2 classes": Shape("classes", 1_000, 10, 2, 100, 2.0, peers=BOTH),
    "500 x 2,000": Shape("targets", 500, 2_000, 1, 50, 5.0),
    "50,000 x 10 of 50 categories": Shape("categories", 50_000, 10, 1, 100, 3.0),
    "50,000 x 10 of 50 categories -> 5": Shape("categories", 50_000, 10, 5, 50, 6.0),
    "5,000 x 1,000 -> 5": Shape("targets", 5_000, 1_000, 5, 50, 10.0),
    "10,000 x 20, 3 classes": Shape("classes", 10_000, 20, 3, 100, 3.5),
    "10,000 x 20, 10 classes": Shape("classes", 10_000, 20, 10, 100, 5.0),
    "10,000 x 20, 100 classes": Shape("classes", 10_000, 20, 100, 20, 14.0),
    "10,000 x 30 -> 24": Shape("targets", 10_000, 30, 24, 100, 14.0),
    "100,000 x 20, 2 classes, 20 % missing": Shape(
        "classes", 100_000, 20, 2, 100, 3.0, missing=0.2
    ),
    "100,000 x 30, 5 classes, 10 % missing": Shape("classes", 100_000, 30, 5, 50, 5.0, missing=0.1),
    "100,000 x 100": Shape("targets", 100_000, 100, 1, 50, 3.5),
    "100,000 x 100 -> 8": Shape("targets", 100_000, 100, 8, 50, 10.0),
    "500,000 x 20, 2 classes": Shape("classes", 500_000, 20, 2, 50, 3.0),
    "20,000 x 50 -> 20 labels": Shape("labels", 20_000, 50, 20, 50, 8.0, peers=BOTH),
    "20,000 x 30,000 words": Shape("words", 20_000, 30_000, 1, 20, 2.0, peers=("XGBoost",)),
    "20,000 x 30,000 words -> 20": Shape("words", 20_000, 30_000, 20, 20, 5.0, peers=(VECTOR,)),
    "40,000 x 28, linear leaves": Shape("targets", 40_000, 28, 1, 50, 2.0, linear=True),
}
PREDICTED = {"1": 1, "100": 100, "100,000": 100_000}  # rows
_MODELS = {
    "one target": Shape("targets", 10_000, 20, 1, 100, 2.0, peers=BOTH),
    "16 targets": Shape("targets", 10_000, 20, 16, 100, 2.0, peers=(VECTOR,)),
}
LAYERS, LINEAR = {"boosting_step": "layer", "grow_policy": "depthwise"}, {"leaf": "linear"}
_NARROW = Shape("targets", 40_000, 28, 1, 50, 0.0)
_WIDE = Shape("targets", 10_000, 50, 16, 50, 0.0)
# Data, parameters, and the goal of the time in that of whole trees with constant leaves.
EXTENSIONS: dict[str, tuple[Shape | str, dict[str, Any], float]] = {
    "layers, letter (26 classes)": ("letter", LAYERS, 1.6),
    "linear leaves, 40,000 x 28": (_NARROW, LINEAR, 1.7),
    "linear leaves, 10,000 x 50 -> 16": (_WIDE, LINEAR, 2.0),
}
SCALING = {
    "40,000 x 50 -> 16": Shape("targets", 40_000, 50, 16, 50, 1.85, peers=(VECTOR, "LightGBM")),
    "1,000,000 x 28, 2 classes": Shape("classes", 1_000_000, 28, 2, 50, 1.85, peers=BOTH),
}
for _name in ("1,000 x 10", "500 x 2,000", "10,000 x 20, 10 classes"):
    SCALING[_name] = SHAPES[_name]
for _name in ("100,000 x 100", "100,000 x 100 -> 8"):
    SCALING[_name] = SHAPES[_name]


def make_data(shape: Shape, n: int) -> tuple[Any, np.ndarray]:
    """Return features and targets, class numbers or labels of n rows."""
    rng = np.random.default_rng(0)
    if shape.kind == "words":
        X = sp.random(n, shape.features, density=0.002, format="csr", rng=0, dtype=np.float32)
        informative = rng.random((shape.features, 1)) < 0.02
        weight = rng.standard_normal((shape.features, shape.outputs)) * informative
        return X, _squeeze(X @ weight)
    if shape.kind == "categories":
        X = rng.integers(0, 50, (n, shape.features))
        effect = rng.standard_normal((shape.features, 50, shape.outputs))
        Y = sum(effect[f][X[:, f]] for f in range(shape.features))
        Y = Y + effect[0][X[:, 1]] * effect[1][X[:, 0]]
        return X, _squeeze(Y + 0.5 * rng.standard_normal(Y.shape))
    X = rng.standard_normal((n, shape.features), dtype=np.float32)
    m, k = min(shape.features, 20), 1 if shape.kind == "classes" and shape.outputs == 2 else 0
    factors = np.tanh(X[:, :m] @ rng.standard_normal((m, m)) * 0.5)
    factors = factors + X[:, :m] * np.roll(X[:, :m], 1, axis=1) * 0.3
    Y = factors @ rng.standard_normal((m, k or shape.outputs))
    Y += 0.3 * rng.standard_normal(Y.shape)
    X[rng.random(X.shape) < shape.missing] = np.nan
    if shape.kind == "classes":
        classes = Y[:, 0] > 0 if k else Y.argmax(axis=1)
        return X, np.unique(classes, return_inverse=True)[1]
    if shape.kind == "labels":
        return X, (Y > np.quantile(Y, 0.9, axis=0)).astype(int)
    return X, _squeeze(Y)


def _squeeze(Y: np.ndarray) -> np.ndarray:
    Y = Y.astype(np.float32)
    return Y[:, 0] if Y.shape[1] == 1 else Y


# --- the libraries: fit(shape, X, y, threads) returns predict(X) ---

Predict = Callable[[Any], Any]


def _make(shape: Shape, kinds: tuple[Any, Any], threads: int, own: dict[str, Any]) -> Any:
    """Return an estimator of one of the kinds, for classes and labels or for targets."""
    kind = kinds[shape.kind not in ("classes", "labels")]
    common = {"n_estimators": shape.rounds, "learning_rate": 0.1, "max_depth": 6}
    return kind(n_jobs=threads, **common, **own)


def _polyleaf(shape: Shape, X: Any, y: np.ndarray, threads: int, **own: Any) -> Predict:
    from polyleaf import PolyleafClassifier, PolyleafRegressor

    own |= {"max_leaves": 64, "max_bins": 255, "colsample_bynode": 1.0}
    if shape.linear:
        own["leaf"] = "linear"
    if shape.kind == "categories":
        own["categorical_features"] = list(range(shape.features))
    return _make(shape, (PolyleafClassifier, PolyleafRegressor), threads, own).fit(X, y).predict


def _xgboost(shape: Shape, X: Any, y: np.ndarray, threads: int, **own: Any) -> Predict:
    import xgboost

    own["max_bin"] = 255
    if shape.kind == "categories":
        own["enable_categorical"] = True
        X = _to_frame(X)
    kinds = xgboost.XGBClassifier, xgboost.XGBRegressor
    return _make(shape, kinds, threads, own).fit(X, y).predict


def _xgboost_vector(shape: Shape, X: Any, y: np.ndarray, threads: int) -> Predict:
    return _xgboost(shape, X, y, threads, multi_strategy="multi_output_tree")


def _lightgbm(shape: Shape, X: Any, y: np.ndarray, threads: int) -> Predict:
    import lightgbm

    own = {"num_leaves": 64, "verbose": -1} | ({"linear_tree": True} if shape.linear else {})
    categories = list(range(shape.features)) if shape.kind == "categories" else "auto"
    kinds = lightgbm.LGBMClassifier, lightgbm.LGBMRegressor
    models = [
        _make(shape, kinds, threads, own).fit(X, column, categorical_feature=categories)
        for column in ([y] if y.ndim == 1 else y.T)
    ]
    return lambda X: [model.predict(X) for model in models]


_FIT = dict(zip(LIBRARIES, (_polyleaf, _xgboost, _xgboost_vector, _lightgbm), strict=True))
_MODULES = dict(zip(LIBRARIES, ("polyleaf", "xgboost", "xgboost", "lightgbm"), strict=True))


def _to_frame(X: np.ndarray) -> Any:
    import pandas as pd

    return pd.DataFrame(X).astype(pd.CategoricalDtype(range(50)))


# --- the runs ---


def _reduce(shape: Shape, context: Context) -> Shape:
    return replace(
        shape,
        rows=context.rows(shape.rows),
        rounds=context.rounds(shape.rounds),
        features=min(shape.features, 50) if context.quick else shape.features,
    )


def _take_turns(
    calls: dict[str, Callable[[], Any]],
    turns: int,
    clock: Callable[[], float] = time.process_time,
    enough: float = ENOUGH,
) -> dict[str, list[float]]:
    """Return processor seconds, or those of another clock, of each call in each turn.

    The first turn is not counted, unless it takes so long that it stays the only one; Polyleaf has
    then had a turn of its own before.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    calls["Polyleaf"]()
    for _ in range(turns + 1):
        for name, call in calls.items():
            start = clock()
            call()
            seconds[name].append(clock() - start)
        if sum(map(sum, seconds.values())) > enough:
            break
    return {name: found[1:] or found for name, found in seconds.items()}


def _compare(seconds: dict[str, list[float]], scale: float = 1.0) -> Figures:
    """Return the time of Polyleaf and, turn by turn, that of other libraries over it."""
    own = seconds["Polyleaf"]
    figures: Figures = {"Polyleaf": [scale * s for s in own]}
    for name in PEERS:
        if name in seconds:
            figures[name] = [s / o for s, o in zip(seconds[name], own, strict=True)]
    fastest = [min(turn) for turn in zip(*(figures[p] for p in PEERS if p in figures), strict=True)]
    return figures | {"fastest": fastest}


def training(context: Context, method: str, problem: str) -> Figures:
    """Return the seconds of a fit on one shape, and the ratios of the other libraries."""
    shape = _reduce(SHAPES[method], context)
    for name in ("Polyleaf", *shape.peers):
        require_module(_MODULES[name])
        importlib.import_module(_MODULES[name])
    X, y = make_data(shape, shape.rows)

    def fit(name: str) -> Callable[[], Any]:
        return lambda: _FIT[name](shape, X, y, context.threads)

    fits = {name: fit(name) for name in ("Polyleaf", *shape.peers)}
    return _compare(_take_turns(fits, 1 if context.quick else TURNS)) | {"goal": shape.goal}


def prediction(context: Context, method: str, problem: str) -> Figures:
    """Return the milliseconds to predict so many rows, and the ratios of the other libraries."""
    name, n = method.rsplit(": ", 1)
    shape = _reduce(_MODELS[name], context)
    X, y = make_data(shape, shape.rows)
    rows = make_data(shape, PREDICTED[n.removesuffix(" rows")])[0]
    models = {p: _FIT[p](shape, X, y, context.threads) for p in ("Polyleaf", *shape.peers)}
    calls = 1 if len(rows) > 1_000 else 50  # of one measurement

    def predict(model: Predict) -> Callable[[], Any]:
        return lambda: [model(rows) for _ in range(calls)]

    seconds = _take_turns({p: predict(m) for p, m in models.items()}, 1 if context.quick else TURNS)
    return _compare(seconds, 1000.0 / calls) | {"goal": shape.goal}


def extensions(context: Context, method: str, problem: str) -> Figures:
    """Return the seconds of a fit with constant leaves, and the ratio of the extension to it."""
    source, own, goal = EXTENSIONS[method]
    if isinstance(source, str):
        found = context.load(source)
        X, y = found.X, found.y
        shape = Shape("classes", len(X), X.shape[1], len(np.unique(y)), context.rounds(50), goal)
    else:
        shape = _reduce(source, context)
        X, y = make_data(shape, shape.rows)
    calls = {
        "Polyleaf": lambda: _polyleaf(shape, X, y, context.threads),
        "extended": lambda: _polyleaf(shape, X, y, context.threads, **own),
    }
    seconds = _take_turns(calls, 1 if context.quick else TURNS)
    ratios = [e / c for e, c in zip(seconds["extended"], seconds["Polyleaf"], strict=True)]
    return {"constant leaves": seconds["Polyleaf"], "ratio": ratios, "goal": goal}


def scaling(context: Context, method: str, problem: str) -> Figures:
    """Return the wall time of a fit on two threads, one thread over it, and the peers over it."""
    shape = _reduce(SCALING[method], context)
    X, y = make_data(shape, shape.rows)
    calls: dict[str, Callable[[], Any]] = {
        name: lambda name=name: _FIT[name](shape, X, y, 2) for name in ("Polyleaf", *shape.peers)
    }
    calls["one thread"] = lambda: _polyleaf(shape, X, y, 1)
    seconds = _take_turns(calls, 1 if context.quick else TURNS, time.perf_counter, 4 * ENOUGH)
    pairs = zip(seconds["one thread"], seconds["Polyleaf"], strict=True)
    return _compare(seconds) | {"one thread": [one / two for one, two in pairs]}


def _subject(figure: str, digits: int, unit: str = "ratio") -> Subject:
    better = "lower" if figure == "Polyleaf" else None
    return Subject(figure, unit, better, digits, problem="shapes", figure=figure)


def _peers() -> tuple[Subject, ...]:
    return tuple(_subject(name, 1) for name in PEERS)


def _subjects(unit: str) -> tuple[Subject, ...]:
    return (_subject("Polyleaf", 3, unit), *_peers(), _subject("fastest", 2), _subject("goal", 1))


def _draw(canvas: Any, found: dict[tuple[str, str], Figures]) -> None:
    """Draw a bar for every shape: the fastest other library over Polyleaf."""
    from matplotlib.ticker import ScalarFormatter

    canvas.set_figheight(5.0)
    panel = canvas.subplots()
    names = [name for name in SHAPES if (name, "ratio") in found][::-1]
    ratios = [float(np.median(found[name, "ratio"]["fastest"])) for name in names]
    panel.barh(names, ratios, color="C0", height=0.6)
    for i, ratio in enumerate(ratios):
        panel.text(ratio * 1.03, i, f"{ratio:.1f}", va="center", fontsize=7)
    panel.axvline(1, color="black", lw=1)
    panel.set(xscale="log", xlabel="processor time of the fastest other library over Polyleaf's")
    panel.set_xticks([1, 2, 5, 10, 20])
    panel.xaxis.set_major_formatter(ScalarFormatter())
    panel.tick_params(axis="y", labelsize=7)


_PROTOCOL = (
    "Processor time of all threads, the libraries in turns within one process; ratios are taken "
    "turn by turn. The first turn is not counted, unless it takes more than eight seconds. The "
    "same trees: depth 6, 64 leaves, 255 bins, learning rate .1. LightGBM trains a model for each "
    "target or label. Each shape is compared with the libraries that are fast on it, so that the "
    "map takes minutes."
)
PAPER = Paper(
    __name__,
    "Shapes of data",
    "Where Polyleaf is fast and where it is not, beside the fastest library on each shape.",
    (
        Table(
            "shapes", "training by shape of the data", _subjects("s"), training, _PROTOCOL,
            also=tuple(SHAPES),
        ),
        Figure(
            "ratios", "Time of the fastest other library over Polyleaf's",
            (Subject("ratio", "ratio", None, 2, problem="shapes"),), training, _PROTOCOL,
            lines=tuple(SHAPES), draw=_draw,
        ),
        Table(
            "predicting", "prediction by number of rows", _subjects("ms"), prediction,
            "As above, with models of 100 rounds on 10,000 rows of 20 features.",
            also=tuple(f"{model}: {n} rows" for model in _MODELS for n in PREDICTED),
        ),
        Table(
            "extensions",
            "layers and linear leaves against constant leaves of whole trees",
            (_subject("constant leaves", 3, "s"), _subject("ratio", 2), _subject("goal", 1)),
            extensions,
            "Processor time of Polyleaf alone, in turns; the same trees as above, 50 rounds.",
            also=tuple(EXTENSIONS),
        ),
        Table(
            "scaling",
            "training on two threads",
            (_subject("Polyleaf", 3, "s"), _subject("one thread", 2), *_peers()),
            scaling,
            "Wall time on two threads, in turns with one thread and other libraries on two; ratios "
            "to it.",
            also=tuple(SCALING),
        ),
    ),
    golden=("defaults", "defaults, one output", "defaults, classes"),
)  # fmt: skip
